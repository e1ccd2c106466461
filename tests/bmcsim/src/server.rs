//! The port, with TLS or without.

use std::sync::Arc;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::version::TLS12;
use rustls::{ALL_VERSIONS, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::quirks::Quirks;

/// A certificate that nothing but itself vouches for.
pub(crate) struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    only_tls12: bool,
}

impl Identity {
    /// With a clock of its own the certificate is of the first year that most clocks know.
    pub(crate) fn generate(quirks: &Quirks) -> Self {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut of = rcgen::CertificateParams::new(["bmc.invalid".to_owned()]).expect("a name");
        if quirks.clock.is_some() {
            (of.not_before, of.not_after) = (rcgen::date_time_ymd(1970, 1, 1), rcgen::date_time_ymd(1971, 1, 1));
        }
        let certificate = of.self_signed(&key).expect("a certificate").der().clone();
        Self {
            certificate,
            key: PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
            only_tls12: quirks.only_tls12,
        }
    }

    pub(crate) fn fingerprint(&self) -> [u8; 32] {
        Sha256::digest(&self.certificate).into()
    }
}

/// Serves until the task is aborted. While `is_down`, connections are cut.
pub(crate) fn spawn(
    listener: TcpListener, router: Router, identity: Option<Identity>, is_down: impl Fn() -> bool + Send + 'static,
) -> JoinHandle<()> {
    let acceptor = identity.map(|identity| {
        let versions = [&TLS12];
        let versions = if identity.only_tls12 { &versions[..] } else { ALL_VERSIONS };
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(versions)
            .expect("versions of TLS")
            .with_no_client_auth()
            .with_single_cert(vec![identity.certificate], identity.key)
            .expect("a certificate and its key");
        TlsAcceptor::from(Arc::new(config))
    });
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if is_down() {
                continue;
            }
            let (acceptor, service) = (acceptor.clone(), TowerToHyperService::new(router.clone()));
            tokio::spawn(async move {
                let builder = Builder::new(TokioExecutor::new());
                // A client that does not trust the certificate, or has waited long enough, goes away.
                match acceptor {
                    None => drop(builder.serve_connection(TokioIo::new(stream), service).await),
                    Some(acceptor) => {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            drop(builder.serve_connection(TokioIo::new(stream), service).await);
                        }
                    }
                }
            });
        }
    })
}
