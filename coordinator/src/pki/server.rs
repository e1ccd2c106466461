//! The server's own certificate. Its key lives in memory only: a new one each start costs a millisecond, and there is
//! nothing to steal, corrupt or forget to renew.

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rcgen::KeyPair;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::{PkiError, ca::Ca, issue};

/// How long a server certificate lasts. Renewed when half of it is over, so machines may be late by the other half.
const LIFE: Duration = Duration::from_secs(90 * 24 * 3600);

/// Hands rustls the present server certificate, and renews it while the process runs.
#[derive(Debug)]
pub struct ServerCertificates {
    ca: Arc<Ca>,
    advertise: IpAddr,
    present: RwLock<Present>,
}

#[derive(Debug)]
struct Present {
    key: Arc<CertifiedKey>,
    renew_at: SystemTime,
}

impl ServerCertificates {
    pub(super) fn new(ca: Arc<Ca>, advertise: IpAddr) -> Result<Self, PkiError> {
        let present = RwLock::new(issue(&ca, advertise, SystemTime::now())?);
        Ok(Self { ca, advertise, present })
    }
    /// The CA's certificate, which clients' certificates are checked against.
    pub fn ca(&self) -> &CertificateDer<'static> {
        self.ca.certificate()
    }
    fn at(&self, now: SystemTime) -> Arc<CertifiedKey> {
        {
            let present = self.present.read().unwrap_or_else(PoisonError::into_inner);
            if now < present.renew_at {
                return present.key.clone();
            }
        }
        let mut present = self.present.write().unwrap_or_else(PoisonError::into_inner);
        if now >= present.renew_at {
            match issue(&self.ca, self.advertise, now) {
                Ok(renewed) => *present = renewed,
                // Half of its life is left: worth a word, not an outage.
                Err(error) => tracing::error!(%error, "cannot renew the server's certificate"),
            }
        }
        present.key.clone()
    }
}

impl ResolvesServerCert for ServerCertificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.at(SystemTime::now()))
    }
}

fn issue(ca: &Ca, advertise: IpAddr, now: SystemTime) -> Result<Present, PkiError> {
    let key = KeyPair::generate()?;
    let issued = ca.issue(&key, issue::Template::server(advertise)?, now, LIFE)?;
    let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let signing = rustls::crypto::ring::sign::any_ecdsa_type(&private)?;
    // The CA's own certificate goes along: agents know only the digest of its key.
    let chain = vec![issued.der, ca.certificate().clone()];
    Ok(Present { key: Arc::new(CertifiedKey::new(chain, signing)), renew_at: now + LIFE / 2 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_certificate_is_renewed_while_the_process_runs() {
        let dir = tempfile::tempdir().unwrap();
        let ca = Arc::new(Ca::open(dir.path()).unwrap());
        let server = ServerCertificates::new(ca, IpAddr::from([127, 0, 0, 1])).unwrap();
        let now = SystemTime::now();
        let leaf = |at: SystemTime| server.at(at).cert[0].clone();
        let first = leaf(now);
        assert_eq!(first, leaf(now + LIFE / 3));
        let second = leaf(now + LIFE / 2 + Duration::from_secs(60));
        assert_ne!(first, second);
        assert_eq!(second, leaf(now + LIFE / 2 + Duration::from_secs(120)));
    }
}
