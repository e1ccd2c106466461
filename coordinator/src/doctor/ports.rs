//! Ports: free, or the running coordinator's own; else whose.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::{fs, io};

use super::running::{Running, sockets_of};
use crate::config::{Config, DhcpMode};
use crate::finding::Finding;
use landfall_boot::dhcp::DhcpError;
use landfall_boot::dhcp::socket::{PXE_PORT, SERVER_PORT, Sharing, open};
use landfall_boot::dhcp::v6::socket as v6;

const CHECK: &str = "port";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// Every port of the configuration.
pub(super) async fn check(config: &Config, running: &Running) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut tcp = vec![("http.listen", config.http.listen), ("tls.listen", config.tls.listen)];
    tcp.extend(config.metrics.listen.map(|listen| ("metrics.listen", listen)));
    for (key, at) in tcp {
        findings.push(judge(key, Protocol::Tcp, at, TcpListener::bind(at).map(drop), running));
    }
    if config.tftp.enabled {
        let at = config.tftp.listen;
        findings.push(judge("tftp.listen", Protocol::Udp, at, UdpSocket::bind(at).map(drop), running));
    }
    if let (true, Some(interface)) = (config.dhcp.mode != DhcpMode::Off, &config.dhcp.interface) {
        let alone =
            |port| (SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)), open(interface, port, Sharing::Alone).map(drop));
        let tried = match config.advertise {
            IpAddr::V4(_) => [SERVER_PORT, PXE_PORT].map(alone).into_iter().collect::<Vec<_>>(),
            IpAddr::V6(_) => {
                let at = SocketAddr::from((Ipv6Addr::UNSPECIFIED, v6::SERVER_PORT));
                vec![(at, v6::open(interface, v6::SERVER_PORT, Sharing::Alone).map(drop))]
            }
        };
        for (at, tried) in tried {
            // Of several coordinators the one that leads gives addresses.
            let is_led = running.is_led && config.dhcp.mode == DhcpMode::Full;
            match tried {
                Ok(()) if is_led => findings.push(free("dhcp.mode", Protocol::Udp, at)),
                tried => findings.push(judge("dhcp.mode", Protocol::Udp, at, tried.map_err(cause), running)),
            }
        }
    }
    findings
}

/// The kernel's refusal.
fn cause(error: DhcpError) -> io::Error {
    std::error::Error::source(&error)
        .and_then(|source| source.downcast_ref::<io::Error>())
        .map_or_else(|| io::Error::other(error.to_string()), |source| source.kind().into())
}

fn free(key: &str, protocol: Protocol, at: SocketAddr) -> Finding {
    Finding::ok(CHECK, format!("{} {at} ({key}) is free", protocol.name()))
}

fn judge(key: &str, protocol: Protocol, at: SocketAddr, tried: io::Result<()>, running: &Running) -> Finding {
    let what = format!("{} {at} ({key})", protocol.name());
    match tried {
        Ok(()) if running.pid.is_some() => {
            let hint = "its configuration has changed since it started: restart it";
            Finding::warn(CHECK, format!("{what} is free, although a coordinator runs"), hint)
        }
        Ok(()) => free(key, protocol, at),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let inodes = holders(protocol, at);
            if inodes.iter().any(|inode| running.owns(*inode)) {
                return Finding::ok(CHECK, format!("{what} is the coordinator's"));
            }
            let whose = owner(&inodes).unwrap_or_else(|| "another program".to_owned());
            Finding::fail(
                CHECK,
                format!("{what} is used by {whose}"),
                format!("stop that program, or set {key} to another"),
            )
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let hint =
                "run as root, or with CAP_NET_BIND_SERVICE and, for DHCP, CAP_NET_RAW; the systemd unit has both";
            Finding::fail(CHECK, format!("this user may not open {what}"), hint)
        }
        Err(error) => {
            let hint = format!("{key} must be an address of this host, or 0.0.0.0");
            Finding::fail(CHECK, format!("cannot open {what}: {error}"), hint)
        }
    }
}

/// Inodes of the sockets that hold this port, whatever their address.
fn holders(protocol: Protocol, at: SocketAddr) -> Vec<u64> {
    let tables = ["", "6"].map(|suffix| format!("/proc/net/{}{suffix}", protocol.name()));
    let texts = tables.iter().filter_map(|table| fs::read_to_string(table).ok());
    texts.flat_map(|text| in_table(&text, protocol, at)).collect()
}

/// `sl local_address rem_address st … inode`, hexadecimal; state 0A is a listening TCP socket.
fn in_table(table: &str, protocol: Protocol, at: SocketAddr) -> Vec<u64> {
    let holder = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (address, port) = fields.get(1)?.rsplit_once(':')?;
        let all = address.bytes().all(|b| b == b'0');
        let same = match at.ip() {
            IpAddr::V4(ip) => address.ends_with(&format!("{:08X}", u32::from_le_bytes(ip.octets()))),
            IpAddr::V6(_) => true,
        };
        let fits = u16::from_str_radix(port, 16).ok()? == at.port() && (all || same || at.ip().is_unspecified());
        let bound = protocol == Protocol::Udp || *fields.get(3)? == "0A";
        (fits && bound).then(|| fields.get(9)?.parse().ok()).flatten()
    };
    table.lines().skip(1).filter_map(holder).collect()
}

/// `dnsmasq (process 12)`. Only root sees other users' sockets.
fn owner(inodes: &[u64]) -> Option<String> {
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let base = Path::new("/proc").join(pid.to_string());
        let sockets = sockets_of(&base.join("fd"));
        inodes.iter().any(|inode| sockets.contains(inode)).then(|| {
            let name = fs::read_to_string(base.join("comm")).unwrap_or_default();
            format!("{} (process {pid})", name.trim())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;

    #[test]
    fn a_used_port_is_reported_with_its_program() {
        let [port] = landfall_edge::testing::ports();
        let at = SocketAddr::from(([127, 0, 0, 1], port));
        let listener = TcpListener::bind(at).unwrap();
        let none = Running::find(&config());
        let found = judge("tls.listen", Protocol::Tcp, at, TcpListener::bind(at).map(drop), &none);
        assert_eq!(found.level, Level::Fail, "{found:?}");
        assert!(found.message.contains(&format!("process {}", std::process::id())), "{found:?}");
        drop(listener);
        let found = judge("tls.listen", Protocol::Tcp, at, TcpListener::bind(at).map(drop), &none);
        assert_eq!(found.level, Level::Ok, "{found:?}");
        let found = judge("tls.listen", Protocol::Tcp, at, Err(ErrorKind::PermissionDenied.into()), &none);
        assert!(found.hint.contains("CAP_NET_BIND_SERVICE"));
    }

    fn config() -> Config {
        let text = include_str!("../../../docs/coordinator.toml").replace("/var/lib/landfall", "/nonexistent");
        Config::parse(Path::new("c"), &text).unwrap()
    }

    #[test]
    fn the_kernels_table_is_read_by_port_address_and_state() {
        let table = "sl local_address rem_address st tx rx tr tm retrnsmt uid timeout inode\n\
            0: 0100007F:1D13 00000000:0000 0A 0:0 0:0 0 0 0 77\n\
            1: 0100007F:1D13 0100007F:9999 01 0:0 0:0 0 0 0 78\n\
            broken\n";
        // 0x1d13 = 7443
        let holders = |at: &str| in_table(table, Protocol::Tcp, at.parse().unwrap());
        assert_eq!(holders("127.0.0.1:7443"), [77]);
        assert_eq!(holders("0.0.0.0:7443"), [77]);
        assert_eq!(holders("127.0.0.2:7443"), [0u64; 0]);
        assert_eq!(holders("127.0.0.1:7444"), [0u64; 0]);
    }
}
