//! Names, by the port's name servers. Never getaddrinfo: the agent is static and has no NSS.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use hickory_resolver::Resolver;
use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;

/// For one name, all servers and repeats together.
const LIMIT: Duration = Duration::from_secs(10);

/// The addresses of `host`, which may be an address already.
///
/// # Errors A sentence that names the servers asked and their answers.
pub(super) async fn resolve(host: &str, port: u16, servers: &[IpAddr]) -> Result<Vec<SocketAddr>, String> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    if servers.is_empty() {
        return Err(format!(
            "{host} is a name, but neither DHCP nor the command line names a name server; use the coordinator's IP address"
        ));
    }
    let named = |e: &dyn std::fmt::Display| format!("cannot resolve {host} with {servers:?}: {e}");
    let servers = servers.iter().map(|s| NameServerConfig::udp_and_tcp(*s)).collect();
    let config = ResolverConfig::from_name_servers(servers);
    let resolver =
        Resolver::builder_with_config(config, TokioRuntimeProvider::default()).build().map_err(|e| named(&e))?;
    // The trailing dot: the name is taken as written, without search domains.
    let asked = format!("{}.", host.trim_end_matches('.'));
    match tokio::time::timeout(LIMIT, resolver.lookup_ip(asked)).await {
        Ok(Ok(found)) => Ok(found.iter().map(|a| SocketAddr::new(a, port)).collect()),
        Ok(Err(e)) => Err(named(&e)),
        Err(_elapsed) => Err(named(&"no answer in 10 s")),
    }
}

/// Writes `servers` to the one place where this process reads them: every new connection of the session and every image
/// source looks there. Replaced as a whole, so that no reader sees half of it.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write_resolv_conf(path: &Path, servers: &[IpAddr]) -> io::Result<()> {
    let text: String = servers.iter().map(|s| format!("nameserver {s}\n")).collect();
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let new = path.with_extension("new");
    std::fs::write(&new, text)?;
    std::fs::rename(new, path)
}
