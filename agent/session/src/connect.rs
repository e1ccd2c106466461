//! One connection: name, TCP, TLS, HTTP/2, each step with its own limit and its own error.
//!
//! Never getaddrinfo: a static glibc binary cannot load NSS. Names go through hickory, literal addresses go straight.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hyper_util::rt::TokioIo;
use landfall_proto::SERVER_NAME;
use rustls::pki_types::ServerName;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::{TlsConnector, client::TlsStream};
use tonic::transport::{Channel, Endpoint};

use crate::error::{ProxyError, Step};
use crate::proxy::{self, Proxy, authority};
use crate::surroundings::{BootClock, Dial, Dialling, Surroundings, Wire};
use crate::{ConnectError, Credentials, Place, Target, Validity, backoff};

/// Resolving a name, retries included.
const RESOLVE_LIMIT: Duration = Duration::from_secs(10);
/// TCP connect, an address.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// The same where there is another coordinator: it has taken over in that time.
const CONNECT_LIMIT_OF_SEVERAL: Duration = Duration::from_secs(2);
/// A proxy's connection to the coordinator, with the proxy's own look-up of its name.
const PROXY_LIMIT: Duration = Duration::from_secs(30);
/// TLS handshake; generous, since a thousand machines may come at once.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(15);
/// In place of either of these two, where another coordinator is tried after this one.
const LIMIT_BEFORE_ANOTHER: Duration = Duration::from_secs(5);
/// Addresses of one name that are tried.
const MAX_ADDRESSES: usize = 8;
/// HTTP/2 pings: a peer that vanished silently is noticed within the sum of both.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_LIMIT: Duration = Duration::from_secs(10);

/// Connects and starts HTTP/2. The channel is this one connection: when it breaks, calls fail and the caller connects
/// again, so that every failure is visible and logged.
pub(crate) async fn connect(
    way: &dyn Dial, target: &Target, validity: Validity, credentials: Option<&Credentials>,
) -> Result<Channel, ConnectError> {
    let (stream, address) = way.dial(target, validity, credentials).await?;
    let stream = Arc::new(Mutex::new(Some(TokioIo::new(stream))));
    let connector = tower::service_fn(move |_uri: http::Uri| {
        let stream = stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        async move { stream.ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "the connection has ended")) }
    });
    let http2 = |source| ConnectError::Http2 { address, source: Some(source) };
    Endpoint::from_shared(format!("https://{SERVER_NAME}"))
        .map_err(http2)?
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_LIMIT)
        .keep_alive_while_idle(true)
        .connect_with_connector(connector)
        .await
        .map_err(http2)
}

/// TCP and TLS.
pub(crate) struct Tls;

impl Dial for Tls {
    fn dial<'a>(
        &'a self, target: &'a Target, validity: Validity, credentials: Option<&'a Credentials>,
    ) -> Dialling<'a> {
        Box::pin(async move {
            let (stream, address) = dial(target, validity, credentials).await?;
            if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
                return Err(ConnectError::Http2 { address, source: None });
            }
            let stream: Box<dyn Wire> = Box::new(stream);
            Ok((stream, address))
        })
    }
}

impl Default for Surroundings {
    /// The real world: TLS over TCP, CLOCK_BOOTTIME.
    fn default() -> Self {
        Self { dial: Arc::new(Tls), clock: BootClock::new(crate::boot_time), chance: Arc::new(backoff::chance) }
    }
}

async fn dial(
    target: &Target, validity: Validity, credentials: Option<&Credentials>,
) -> Result<(TlsStream<TcpStream>, SocketAddr), ConnectError> {
    let config = landfall_pin::client_config(target.pins(), validity, credentials.map(Credentials::parts), &[b"h2"])
        .map_err(ConnectError::Credentials)?;
    let connector = TlsConnector::from(Arc::new(config));
    let mut errors = Vec::new();
    // Of one that died nothing listens.
    let places = target.places();
    let mut left = places.len();
    for place in &places {
        left -= 1;
        let (limit, proxy_limit) = match left {
            0 => (HANDSHAKE_LIMIT, PROXY_LIMIT),
            _ => (LIMIT_BEFORE_ANOTHER, LIMIT_BEFORE_ANOTHER),
        };
        let outcome = match connection(target, place, proxy_limit).await {
            Ok((tcp, address)) => {
                handshake(&connector, target, (address, limit), tcp).await.map(|stream| (stream, address))
            }
            Err(error) => Err(error),
        };
        match outcome {
            Ok(connected) => {
                target.prefer(place);
                return Ok(connected);
            }
            Err(error) => errors.push(error),
        }
    }
    Err(ConnectError::of_several(errors))
}

async fn connection(
    target: &Target, place: &Place, proxy_limit: Duration,
) -> Result<(TcpStream, SocketAddr), ConnectError> {
    match target.proxy() {
        None => first_hop(target, place.host(), place.port()).await,
        Some(proxy) => {
            let by_proxy = by_proxy(target, proxy, place, proxy_limit).await;
            by_proxy.map_err(|source| ConnectError::Proxy { proxy: proxy.to_string(), source })
        }
    }
}

/// A connection to the coordinator's TLS port that the proxy made.
async fn by_proxy(
    target: &Target, proxy: &Proxy, place: &Place, limit: Duration,
) -> Result<(TcpStream, SocketAddr), ProxyError> {
    let first_hop = first_hop(target, proxy.host(), proxy.port()).await;
    let (mut tcp, address) = first_hop.map_err(|error| ProxyError::Unreachable(Box::new(error)))?;
    let to = authority(place.host(), place.port());
    match timeout(limit, proxy::connect(&mut tcp, &to)).await {
        Ok(connected) => connected.map(|()| (tcp, address)),
        Err(_) => Err(ProxyError::Late(limit.as_secs())),
    }
}

/// A connection to the first address of the coordinator, or of the proxy, that takes one.
async fn first_hop(target: &Target, host: &str, port: u16) -> Result<(TcpStream, SocketAddr), ConnectError> {
    let mut last = None;
    let limit = if target.has_several() { CONNECT_LIMIT_OF_SEVERAL } else { CONNECT_LIMIT };
    for address in resolve(target, host, port).await? {
        match tcp(address, limit).await {
            Ok(tcp) => return Ok((tcp, address)),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| ConnectError::NameNotResolvable {
        host: host.to_owned(),
        source: "the name exists but has no address".into(),
    }))
}

async fn tcp(address: SocketAddr, limit: Duration) -> Result<TcpStream, ConnectError> {
    let unreachable = |source| ConnectError::Unreachable { address, source };
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }
    .map_err(unreachable)?;
    socket.set_keepalive(true).map_err(unreachable)?;
    socket.set_nodelay(true).map_err(unreachable)?;
    match timeout(limit, socket.connect(address)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(source)) if source.kind() == io::ErrorKind::ConnectionRefused => {
            Err(ConnectError::Refused { address, source })
        }
        Ok(Err(source)) => Err(unreachable(source)),
        Err(_) => Err(ConnectError::Timeout { step: Step::Connect, address: address.to_string(), limit }),
    }
}

async fn handshake(
    connector: &TlsConnector, target: &Target, (address, limit): (SocketAddr, Duration), tcp: TcpStream,
) -> Result<TlsStream<TcpStream>, ConnectError> {
    let name = ServerName::try_from(SERVER_NAME)
        .map_err(|source| ConnectError::Tls { address, source: io::Error::new(io::ErrorKind::InvalidInput, source) })?;
    match timeout(limit, connector.connect(name, tcp)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(ConnectError::handshake(address, target.pins(), error)),
        Err(_) => Err(ConnectError::Timeout { step: Step::Handshake, address: address.to_string(), limit }),
    }
}

async fn resolve(target: &Target, host: &str, port: u16) -> Result<Vec<SocketAddr>, ConnectError> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| ConnectError::NameNotResolvable {
        host: host.to_owned(),
        source,
    };
    let builder = if target.nameservers().is_empty() {
        TokioResolver::builder_tokio().map_err(|e| failed(e.into()))?
    } else {
        let servers = target.nameservers().iter().map(|ip| NameServerConfig::udp_and_tcp(*ip)).collect();
        TokioResolver::builder_with_config(ResolverConfig::from_name_servers(servers), TokioRuntimeProvider::default())
    };
    let resolver = builder.build().map_err(|e| failed(e.into()))?;
    match timeout(RESOLVE_LIMIT, resolver.lookup_ip(host)).await {
        Ok(Ok(found)) => Ok(found.iter().take(MAX_ADDRESSES).map(|ip| SocketAddr::new(ip, port)).collect()),
        Ok(Err(error)) => Err(failed(error.into())),
        Err(_) => Err(ConnectError::Timeout { step: Step::Resolve, address: host.to_owned(), limit: RESOLVE_LIMIT }),
    }
}
