//! What the TLS port speaks.

use std::sync::Arc;

use rustls::{
    RootCertStore, ServerConfig,
    server::{NoServerSessionStorage, WebPkiClientVerifier},
};

use crate::pki::{Pki, PkiError};

/// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, a client certificate of our own CA or none.
///
/// No session is ever resumed: a resumed one would not look at the client certificate's dates again.
///
/// # Errors
/// [`PkiError::Tls`], which a good CA never causes.
pub fn server_config(pki: &Pki) -> Result<Arc<ServerConfig>, PkiError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(pki.ca_der().clone())?;
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(pki.server());
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
