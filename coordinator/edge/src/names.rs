//! Hosts' names. By a resolver of our own: the C library's loads plug-ins, which a static program has not.

use std::net::IpAddr;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use tokio::time::timeout;

/// Addresses of one name that are taken at most.
const MOST: usize = 4;

/// The addresses of a host within a time limit; of one that is written as an address, that one.
///
/// # Errors
/// Why it has none, in words.
pub async fn addresses(host: &str, limit: Duration) -> Result<Vec<IpAddr>, String> {
    if let Ok(address) = host.parse() {
        return Ok(vec![address]);
    }
    let resolver = TokioResolver::builder_tokio().and_then(|builder| builder.build());
    let resolver = resolver.map_err(|error| error.to_string())?;
    let Ok(found) = timeout(limit, resolver.lookup_ip(host)).await else {
        return Err(format!("no name server answered within {} s", limit.as_secs()));
    };
    Ok(found.map_err(|error| error.to_string())?.iter().take(MOST).collect())
}
