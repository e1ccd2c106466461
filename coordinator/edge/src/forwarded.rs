//! Connections that another coordinator forwards: before the client's first byte comes a header that says who the client is, the
//! PROXY protocol of HAProxy in its version 2. Where the client is on a link of the forwarder, that alone can know its Ethernet address:
//! the header has it. Of other hosts a header is not believed.

use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use landfall_api::MacAddr;
use nix::sys::socket::{setsockopt, sockopt};
use proxy_header::{ParseConfig, ProxiedAddress, ProxyHeader, Tlv};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::gate::Seat;
use crate::names::addresses;

/// How a header begins. No TLS handshake does, and no HTTP request.
const FIRST: u8 = b'\r';
/// Every header's signature, command and family; then the length of what follows, in two bytes.
const FIXED: usize = 16;
/// What follows at most, bytes: two IPv6 addresses with their ports take 36.
const MOST: u16 = 256;
/// The field with the client's Ethernet address: the first number that the protocol leaves to applications.
const MAC: u8 = 0xe0;
/// For the addresses of a name.
const LOOK_UP: Duration = Duration::from_secs(2);

/// How a client's connection came here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Via {
    /// By itself: this host's own tables say who is behind its address.
    #[default]
    Itself,
    /// By a standby, with the client's Ethernet address where it is on a link of that one.
    Standby(Option<MacAddr>),
}

/// The hosts that may forward connections.
#[derive(Debug, Clone, Default)]
pub struct Forwarders(Arc<[String]>);

impl Forwarders {
    /// Of these, each an address or a name.
    pub fn new(hosts: impl IntoIterator<Item = String>) -> Self {
        Self(hosts.into_iter().collect())
    }

    /// Whether one of them has this address. A name is looked up each time: it may move.
    async fn have(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let literal = |host: &str| host.parse::<IpAddr>().map(|literal| literal.to_canonical());
        if self.0.iter().any(|host| literal(host) == Ok(address)) {
            return true;
        }
        for host in self.0.iter().filter(|host| literal(host).is_err()) {
            let found = addresses(host, LOOK_UP).await.unwrap_or_default();
            if found.iter().any(|found| found.to_canonical() == address) {
                return true;
            }
        }
        false
    }

    /// The client of a connection that came from `remote`: another one where it is forwarded. Waits for its first byte, where any host
    /// may forward; one that sends none is quiet meanwhile. What a standby's host asks itself is that host's.
    ///
    /// # Errors
    /// A header that is not whole or not of that protocol, or one of a host that may not forward.
    pub async fn client_of(
        &self, stream: &mut TcpStream, remote: SocketAddr, seat: &Seat,
    ) -> Result<(SocketAddr, Via)> {
        if self.0.is_empty() || !is_forwarded(stream, seat).await? {
            return Ok((remote, Via::Itself));
        }
        if !self.have(remote.ip()).await {
            let why = "it is forwarded by a host that is not in `others` of the configuration";
            return Err(Error::new(ErrorKind::PermissionDenied, why));
        }
        let mut header = vec![0; FIXED];
        stream.read_exact(&mut header).await?;
        let length = u16::from_be_bytes([header[FIXED - 2], header[FIXED - 1]]);
        let invalid = |what: String| Error::new(ErrorKind::InvalidData, format!("its PROXY header is invalid: {what}"));
        if length > MOST {
            return Err(invalid(format!("it has {length} bytes")));
        }
        header.resize(FIXED + usize::from(length), 0);
        stream.read_exact(&mut header[FIXED..]).await?;
        let only = ParseConfig { include_tlvs: true, allow_v1: false, allow_v2: true };
        let (parsed, _) = ProxyHeader::parse(&header, only).map_err(|error| invalid(error.to_string()))?;
        // Without an address the forwarder speaks for itself.
        let Some(proxied) = parsed.proxied_address() else { return Ok((remote, Via::Itself)) };
        let mac = parsed.tlvs().find_map(|field| match field {
            Ok(Tlv::Custom(MAC, bytes)) => <[u8; 6]>::try_from(&*bytes).ok().map(MacAddr),
            _ => None,
        });
        let client = proxied.source.ip().to_canonical();
        if client.is_loopback() || client == remote.ip().to_canonical() {
            return Ok((remote, Via::Itself));
        }
        Ok((proxied.source, Via::Standby(mac)))
    }
}

/// Whether a connection begins with such a header; waits for its first byte, and says so in its seat.
///
/// # Errors
/// The socket's.
pub async fn is_forwarded(stream: &TcpStream, seat: &Seat) -> Result<bool> {
    let mut first = [0];
    seat.waits();
    let read = stream.peek(&mut first).await?;
    seat.heard();
    Ok(read == 1 && first == [FIRST])
}

/// Says to the other end of `to` who the client is that it is forwarded for, which address that client asked, and the client's Ethernet
/// address where it is on a link of this host.
///
/// # Errors
/// The socket's.
pub async fn announce(to: &mut TcpStream, client: SocketAddr, asked: SocketAddr, mac: Option<MacAddr>) -> Result<()> {
    // Of one family, as the header wants it.
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let proxied = ProxiedAddress::stream(canonical(client), canonical(asked));
    let field = mac.map(|mac| Tlv::Custom(MAC, mac.0.to_vec().into()));
    let mut header = Vec::new();
    ProxyHeader::with_tlvs(Some(proxied), field).encode_v2(&mut header).map_err(Error::other)?;
    to.write_all(&header).await
}

/// Sends what is written at once, and notices within about a minute that the other end has lost its power.
///
/// # Errors
/// The socket's.
pub fn keep_alive(stream: &TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &30)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &10)?;
    setsockopt(stream, sockopt::TcpKeepCount, &3)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::gate::{Admission, Gate, Limits};

    /// Both ends of a connection over loopback.
    async fn pair() -> (TcpStream, TcpStream, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (client, accepted) =
            tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), async { listener.accept().await });
        let (server, remote) = accepted.unwrap();
        (client.unwrap(), server, remote)
    }

    fn seat() -> Arc<Seat> {
        let gate = Gate::new(Limits { total: 1, waiting: LOOK_UP, stalled: LOOK_UP });
        let Admission::Admitted(place) = gate.try_admit(&0, 1) else { panic!("it is free") };
        place.seat().clone()
    }

    async fn client_of(hosts: &[&str], sent: &[u8]) -> Result<(Option<SocketAddr>, Via, Vec<u8>)> {
        let (mut client, mut server, remote) = pair().await;
        client.write_all(sent).await.unwrap();
        client.shutdown().await.unwrap();
        let forwarders = Forwarders::new(hosts.iter().map(|host| (*host).to_owned()));
        let (found, via) = forwarders.client_of(&mut server, remote, &seat()).await?;
        let mut rest = Vec::new();
        server.read_to_end(&mut rest).await.unwrap();
        Ok((Some(found).filter(|found| *found != remote), via, rest))
    }

    async fn announced(client: &str, asked: &str, mac: Option<MacAddr>) -> Vec<u8> {
        let (mut reader, mut writer, _) = pair().await;
        announce(&mut writer, client.parse().unwrap(), asked.parse().unwrap(), mac).await.unwrap();
        drop(writer);
        let mut header = Vec::new();
        reader.read_to_end(&mut header).await.unwrap();
        header
    }

    #[tokio::test]
    async fn a_forwarded_connection_has_its_clients_address() {
        let mac = Some(MacAddr([0x52, 0x54, 0, 0, 0, 7]));
        for (client, asked, mac) in [
            ("192.0.2.7:4000", "192.0.2.1:7443", mac),
            ("[2001:db8::7]:4000", "[2001:db8::1]:7443", None),
            ("[::ffff:192.0.2.7]:4000", "[::ffff:192.0.2.1]:7443", mac),
        ] {
            let sent = [announced(client, asked, mac).await.as_slice(), b"\x16\x03\x01"].concat();
            let client: SocketAddr = client.parse().unwrap();
            let client = SocketAddr::new(client.ip().to_canonical(), client.port());
            for host in ["127.0.0.1", "localhost"] {
                let found = client_of(&["192.0.2.9", host], &sent).await.unwrap();
                assert_eq!(found, (Some(client), Via::Standby(mac), b"\x16\x03\x01".to_vec()), "{client} {host}");
            }
        }
    }

    #[tokio::test]
    async fn a_standbys_own_host_is_no_other_client() {
        for client in ["127.0.0.1:4000", "[::ffff:127.0.0.9]:4000"] {
            let header = announced(client, "127.0.0.1:7443", Some(MacAddr([2; 6]))).await;
            assert_eq!(client_of(&["127.0.0.1"], &header).await.unwrap(), (None, Via::Itself, Vec::new()));
        }
    }

    #[tokio::test]
    async fn a_client_that_says_nothing_gives_way() {
        let gate = Gate::new(Limits { total: 1, waiting: Duration::ZERO, stalled: LOOK_UP });
        let Admission::Admitted(place) = gate.try_admit(&0, 1) else { panic!("it is free") };
        let (_client, mut server, remote) = pair().await;
        let forwarders = Forwarders::new(["127.0.0.1".to_owned()]);
        tokio::select! {
            found = forwarders.client_of(&mut server, remote, place.seat()) => panic!("{found:?}"),
            () = async {
                while !matches!(gate.try_admit(&1, 1), Admission::Admitted(_)) {
                    tokio::task::yield_now().await;
                }
                place.seat().wanted().await;
            } => {}
        }
    }

    #[tokio::test]
    async fn only_hosts_that_may_forward_are_believed() {
        let header = announced("192.0.2.7:4000", "192.0.2.1:7443", None).await;
        let refused = client_of(&["192.0.2.9"], &header).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        // Where no host may forward, nothing is waited for and nothing read.
        assert_eq!(client_of(&[], &header).await.unwrap(), (None, Via::Itself, header.clone()));
        for sent in [&b""[..], b"\x16", b"GET / HTTP/1.1\r\n\r\n"] {
            assert_eq!(client_of(&["127.0.0.1"], sent).await.unwrap(), (None, Via::Itself, sent.to_vec()));
        }
        let long = [&header[..14], &[1, 1]].concat();
        for invalid in [&header[..20], b"\r\nx", &[b'\r'; 64], &long] {
            let error = client_of(&["127.0.0.1"], invalid).await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof), "{error}");
        }
    }
}
