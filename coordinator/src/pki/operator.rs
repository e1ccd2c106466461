//! Operators' certificates, made on the data directory itself: a user who can read the CA's key may create operators,
//! with or without a running coordinator.

use std::path::Path;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use landfall_api::{Pin, Role};
use rcgen::KeyPair;

use super::{PkiError, ca::Ca, files, issue, role};

/// What an operator's certificate may last. The upper bound is what browsers and other programs still take.
const LIFE: std::ops::RangeInclusive<Duration> = Duration::from_secs(3600)..=Duration::from_secs(825 * 24 * 3600);

/// Makes a key and a certificate for an operator, and writes `<name>.pem`, `<name>.key` and `ca.pem` into `out`, which
/// must not be there yet or be empty. Answers when the certificate ends.
///
/// # Errors
/// [`PkiError`]: no CA in `data_dir`, a name that cannot stand in a certificate, a life out of bounds, or files.
pub fn issue_operator(
    data_dir: &Path, name: &str, operator: Role, life: Duration, out: &Path,
) -> Result<Timestamp, PkiError> {
    if !LIFE.contains(&life) {
        return Err(PkiError::Life);
    }
    let uri = role::operator_uri(name, operator)?;
    if files::populated(out)? {
        return Err(PkiError::Exists { path: out.to_owned() });
    }
    let ca = existing(data_dir)?;
    let key = KeyPair::generate()?;
    let issued = ca.issue(&key, issue::Template::client(name, uri), SystemTime::now(), life)?;
    let (certificate, private) = (format!("{name}.pem"), format!("{name}.key"));
    let secret = key.serialize_pem();
    files::create_directory(out, &[(&certificate, &issued.pem), (&private, &secret), ("ca.pem", ca.pem())])?;
    Timestamp::try_from(issued.not_after).map_err(|_| PkiError::Time)
}

/// The pin of the CA in this data directory.
///
/// # Errors
/// [`PkiError`]; there may be none yet.
pub fn ca_pin(data_dir: &Path) -> Result<Pin, PkiError> {
    Ok(existing(data_dir)?.pin())
}

/// Opening the CA would create a missing one, which no machine trusts.
fn existing(data_dir: &Path) -> Result<Ca, PkiError> {
    if !files::populated(&data_dir.join("pki"))? {
        return Err(PkiError::Missing { path: data_dir.join("pki").join("ca.key") });
    }
    Ca::open(data_dir)
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::{CertificateDer, pem::PemObject as _};

    use super::*;
    use crate::pki::{Pki, peer_of};
    use crate::tls::Peer;

    #[test]
    fn issuing_an_operators_certificate_never_creates_a_ca() {
        let dir = tempfile::tempdir().unwrap();
        let (data, out, life) = (dir.path().join("data"), dir.path().join("out"), Duration::from_secs(24 * 3600));
        let none = issue_operator(&data, "ann", Role::Viewer, life, &out).unwrap_err();
        assert!(matches!(none, PkiError::Missing { .. }) && !data.join("pki").exists(), "{none}");
        assert!(matches!(ca_pin(&data), Err(PkiError::Missing { .. })) && !data.join("pki").exists());
        let pki = Pki::open(&data, [127, 0, 0, 1].into(), life).unwrap();
        assert_eq!(ca_pin(&data).unwrap(), pki.ca_pin());
        drop(pki);
        issue_operator(&data, "ann", Role::Viewer, life, &out).unwrap();
        let pem = std::fs::read(out.join("ann.pem")).unwrap();
        let Ok(Peer::Operator(ann)) = peer_of(&CertificateDer::from_pem_slice(&pem).unwrap()) else { panic!() };
        assert_eq!((ann.name.as_str(), ann.role), ("ann", Role::Viewer));
        assert!(ann.made.duration_since(Timestamp::now()).abs().as_secs() < 600, "{}", ann.made);
        for (name, life, out) in [
            ("ann", life, "out"),
            ("a/admin", life, "slash"),
            ("", life, "empty"),
            ("ann", Duration::ZERO, "zero"),
            ("ann", Duration::from_secs(900 * 24 * 3600), "long"),
        ] {
            assert!(issue_operator(&data, name, Role::Viewer, life, &dir.path().join(out)).is_err(), "{out}");
        }
    }
}
