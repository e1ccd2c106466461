//! The HTTP client for the two ways to the coordinator.
//!
//! Over the network the server is checked against the given CA and Landfall's fixed logical name, never by address: the
//! URL's host is that name, pointed at the address given. Names are resolved in Rust, because the static binary cannot use
//! getaddrinfo.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use hickory_resolver::TokioResolver;
use landfall_api::{Digest, Pin, SERVER_NAME};
use landfall_pin::{Validity, client_config};
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Certificate, ClientBuilder};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject};

use crate::ready::Ready;
use crate::server::Place;
use crate::{ClientError, Server};

/// A coordinator and the caller.
pub struct Endpoint {
    /// Where the coordinator is.
    pub server: Server,
    /// By what it is known; the socket needs nothing.
    pub trust: Option<Trust>,
    /// Who calls; the socket needs nothing.
    pub identity: Option<Identity>,
}

/// By what the coordinator is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Its CA's certificate.
    Ca(PathBuf),
    /// The digest of its CA's key.
    Pin(Digest),
}

/// Who calls.
pub enum Identity {
    /// A certificate and its key, PEM files.
    Certificate {
        /// The certificate.
        cert: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// A bearer token.
    Token(String),
}

/// Connecting, TLS included.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Silence after which an answer counts as lost. A followed stream sends a line every 15 s, at least an empty one.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// While an answer goes on, a coordinator is asked so often whether it is still there, and has so long to say so: one that hangs keeps
/// its connections.
const ASK_EVERY: Duration = Duration::from_secs(15);
const THERE_LIMIT: Duration = Duration::from_secs(10);
const RESOLVE_LIMIT: Duration = Duration::from_secs(10);

/// A client, and the URL that stands before every path.
pub(crate) async fn http_client(endpoint: &Endpoint) -> Result<(reqwest::Client, String), ClientError> {
    match &endpoint.server {
        Server::Unix(path) => over_socket(identified(endpoint)?, path),
        Server::Https(places) => {
            let (addresses, trusted) = (resolved(places).await?, trusted(endpoint)?);
            let builder = identified(endpoint)?;
            let builder = if places.len() > 1 {
                let one = |address| Ok((address, over_tls(to(identified(endpoint)?, &[address]), &trusted)?));
                let places = addresses.into_iter().map(one).collect::<Result<_, ClientError>>()?;
                builder.dns_resolver(Arc::new(Ready { places, url: format!("{}/readyz", base()) }))
            } else {
                to(builder, &addresses)
            };
            Ok((over_tls(builder, &trusted)?, base()))
        }
    }
}

/// Without a port, so that each address has its own.
fn base() -> String {
    format!("https://{SERVER_NAME}")
}

/// Tries these addresses in turn for each connection.
fn to(builder: ClientBuilder, addresses: &[SocketAddr]) -> ClientBuilder {
    builder.resolve_to_addrs(SERVER_NAME, addresses)
}

fn over_tls(builder: ClientBuilder, trusted: &Trusted) -> Result<reqwest::Client, ClientError> {
    let builder = builder.https_only(true);
    built(match trusted {
        Trusted::Pin(config) => builder.tls_backend_preconfigured(config.as_ref().clone()),
        Trusted::Roots(roots, None) => builder.tls_certs_only(roots.clone()),
        Trusted::Roots(roots, Some(identity)) => builder.tls_certs_only(roots.clone()).identity(identity.clone()),
    })
}

/// A builder with the caller's token, if it is one.
fn identified(endpoint: &Endpoint) -> Result<ClientBuilder, ClientError> {
    let Some(Identity::Token(token)) = &endpoint.identity else { return Ok(builder()) };
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|e| {
        ClientError::local("the token is not valid", e, "a token is one line of letters, digits and a few signs")
    })?;
    value.set_sensitive(true);
    Ok(builder().default_headers([(AUTHORIZATION, value)].into_iter().collect()))
}

/// The same for the socket on the coordinator's own host.
pub(crate) fn local_client(socket: &Path) -> Result<(reqwest::Client, String), ClientError> {
    over_socket(builder(), socket)
}

fn builder() -> ClientBuilder {
    reqwest::Client::builder()
        .no_proxy()
        .connect_timeout(CONNECT_LIMIT)
        .read_timeout(SILENCE_LIMIT)
        .http2_keep_alive_interval(ASK_EVERY)
        .http2_keep_alive_timeout(THERE_LIMIT)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("landfall/", env!("CARGO_PKG_VERSION")))
}

/// TLS is never used here, but the builder wants roots; none are given.
fn over_socket(builder: ClientBuilder, socket: &Path) -> Result<(reqwest::Client, String), ClientError> {
    Ok((built(builder.tls_certs_only([]).unix_socket(socket.to_owned()))?, "http://landfall".to_owned()))
}

fn built(builder: ClientBuilder) -> Result<reqwest::Client, ClientError> {
    builder.build().map_err(|error| {
        ClientError::local("cannot set up the connection", chain(&error).join(": "), "check --ca, --cert and --key")
    })
}

/// What a client trusts, the coordinator only, and the certificate that it shows where there is one. The files are read once.
enum Trusted {
    Pin(Box<rustls::ClientConfig>),
    Roots(Vec<Certificate>, Option<reqwest::Identity>),
}

fn trusted(endpoint: &Endpoint) -> Result<Trusted, ClientError> {
    let pem = match &endpoint.identity {
        Some(Identity::Certificate { cert, key }) => {
            let mut both = read(cert)?;
            both.push(b'\n');
            both.extend(read(key)?);
            Some((both, cert, key))
        }
        Some(Identity::Token(_)) => None,
        None => return Err(wanting("--cert with --key, or --token-file")),
    };
    let unfit = |cert: &Path, key: &Path, error: &dyn std::error::Error| {
        let what = format!("{} and {} are not a certificate and its key", cert.display(), key.display());
        ClientError::local(what, error, "both must be PEM: --cert is the certificate, --key its private key")
    };
    let ca = match &endpoint.trust {
        None => return Err(wanting("--ca or --ca-pin")),
        Some(Trust::Pin(pin)) => {
            let identity = match &pem {
                Some((pem, cert, key)) => Some(identity(pem).map_err(|error| unfit(cert, key, &error))?),
                None => None,
            };
            let pins = [Pin::from(*pin)];
            let config = client_config(&pins, Validity::Now, identity, &[b"h2", b"http/1.1"]);
            let config = config.map_err(|error| match &pem {
                Some((_, cert, key)) => unfit(cert, key, &error),
                None => ClientError::local("cannot set up the connection", error, "check --ca-pin"),
            })?;
            return Ok(Trusted::Pin(Box::new(config)));
        }
        Some(Trust::Ca(ca)) => ca,
    };
    let roots = Certificate::from_pem_bundle(&read(ca)?).map_err(|e| {
        ClientError::local(format!("{} is not a certificate", ca.display()), e, "use the coordinator's ca.pem for --ca")
    })?;
    if roots.is_empty() {
        let hint = "use the coordinator's ca.pem for --ca";
        return Err(ClientError::local(
            format!("{} is not a certificate", ca.display()),
            "it contains no PEM block",
            hint,
        ));
    }
    let identity = match pem {
        Some((pem, cert, key)) => Some(reqwest::Identity::from_pem(&pem).map_err(|error| unfit(cert, key, &error))?),
        None => None,
    };
    Ok(Trusted::Roots(roots, identity))
}

/// The certificates and the private key of a PEM file.
fn identity(pem: &[u8]) -> Result<landfall_pin::Identity, pem::Error> {
    let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>()?;
    Ok((chain, PrivateKeyDer::from_pem_slice(pem)?))
}

fn wanting(what: &str) -> ClientError {
    ClientError::Usage(format!(
        "an https server needs {what}; the first set is in admin/ of the coordinator's data directory (ca.pem, \
            admin.pem, admin.key); landfall context set stores them"
    ))
}

fn read(path: &Path) -> Result<Vec<u8>, ClientError> {
    std::fs::read(path).map_err(|e| ClientError::local(format!("cannot read {}", path.display()), e, ""))
}

/// The addresses of all, in their order; one that has none stops no other.
async fn resolved(places: &[Place]) -> Result<Vec<SocketAddr>, ClientError> {
    let (mut found, mut failed) = (Vec::new(), None);
    for addresses in join_all(places.iter().map(|Place { host, port }| resolve(host, *port))).await {
        match addresses {
            Ok(addresses) => found.extend(addresses),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, ClientError> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let failed = |cause: String| ClientError::Unreachable {
        what: format!("cannot resolve the name {host}"),
        causes: vec![cause],
        hint: "check the name in --server, or use the address".into(),
    };
    let resolver = TokioResolver::builder_tokio().and_then(|b| b.build()).map_err(|e| failed(e.to_string()))?;
    match tokio::time::timeout(RESOLVE_LIMIT, resolver.lookup_ip(host)).await {
        Ok(Ok(found)) => Ok(found.iter().map(|ip| SocketAddr::new(ip, port)).collect()),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed(format!("no answer within {} s", RESOLVE_LIMIT.as_secs()))),
    }
}

/// The messages of an error and its sources, each once.
pub(crate) fn chain(error: &dyn std::error::Error) -> Vec<String> {
    let mut out: Vec<String> = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !out.iter().any(|said| said.contains(&text)) {
            out.push(text);
        }
        next = cause.source();
    }
    out
}
