//! TLS to the server: rustls on *ring*, as everywhere in Landfall.
//!
//! `tokio-postgres-rustls` does the same with a second library of certificates, for channel binding alone. Here the server's
//! certificate is checked against a CA that the configuration names, so no one can stand in between.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};
use tokio_rustls::{TlsConnector, client};

use super::error::PostgresError;

/// What a client that trusts `ca` speaks, with its own certificate where it has one (its chain, and its key).
pub(super) fn config(ca: &Path, identity: Option<(&Path, &Path)>) -> Result<Arc<ClientConfig>, PostgresError> {
    let unusable = |path: &Path, why: String| PostgresError::File { path: path.to_owned(), why };
    let chain = |path: &Path| -> Result<Vec<CertificateDer<'static>>, PostgresError> {
        let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        match read.map_err(|error| unusable(path, error.to_string()))? {
            none if none.is_empty() => Err(unusable(path, "it contains no certificate in PEM".to_owned())),
            chain => Ok(chain),
        }
    };
    let mut roots = RootCertStore::empty();
    for certificate in chain(ca)? {
        roots.add(certificate).map_err(|error| unusable(ca, error.to_string()))?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(ca, error.to_string()))?
        .with_root_certificates(roots);
    let Some((certificate, key)) = identity else { return Ok(Arc::new(builder.with_no_client_auth())) };
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, error.to_string()))?;
    let config = builder.with_client_auth_cert(chain(certificate)?, private);
    config.map(Arc::new).map_err(|error| unusable(certificate, error.to_string()))
}

/// Makes a TLS session of a connection.
#[derive(Clone)]
pub(super) struct Rustls(pub(super) Arc<ClientConfig>);

impl MakeTlsConnect<Socket> for Rustls {
    type Stream = Session;
    type TlsConnect = Handshake;
    type Error = tokio_rustls::rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, Self::Error> {
        Ok(Handshake(self.0.clone().into(), ServerName::try_from(host.to_owned())?))
    }
}

/// A TLS session that is to begin.
pub(super) struct Handshake(TlsConnector, ServerName<'static>);

impl TlsConnect<Socket> for Handshake {
    type Stream = Session;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Session>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move { Ok(Session(self.0.connect(self.1, socket).await?)) })
    }
}

/// A TLS session.
pub(super) struct Session(client::TlsStream<Socket>);

impl TlsStream for Session {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Session {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Session {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
