//! The first operator's certificate: created at the first start in `<data_dir>/admin/`, for users who can read it.

use std::path::Path;
use std::time::{Duration, SystemTime};

use landfall_api::Role;
use rcgen::KeyPair;
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use x509_parser::parse_x509_certificate;

use super::{PkiError, ca::Ca, files, issue, role};

/// The name it acts under.
const NAME: &str = "admin";
/// How long it lasts; renewed at a start when less than half is left.
const LIFE: Duration = Duration::from_secs(365 * 24 * 3600);

/// Makes `<data_dir>/admin` if it is not there, and renews the certificate in it for the same key when it ages. A person
/// who took the key away to keep it elsewhere keeps it: then nothing is renewed.
pub(super) fn ensure(data_dir: &Path, ca: &Ca) -> Result<(), PkiError> {
    let directory = data_dir.join("admin");
    let now = SystemTime::now();
    if !files::populated(&directory)? {
        let key = KeyPair::generate()?;
        let certificate = issue_for(ca, &key, now)?;
        let files = [("admin.pem", certificate.as_str()), ("admin.key", &key.serialize_pem()), ("ca.pem", ca.pem())];
        return files::create_directory(&directory, &files);
    }
    let (certificate, key) = (directory.join("admin.pem"), directory.join("admin.key"));
    if !key.exists() || !certificate.exists() {
        return Ok(());
    }
    let damaged = |path: &Path, what: String| PkiError::Damaged { path: path.to_owned(), what };
    let pem = files::read(&certificate)?;
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| damaged(&certificate, e.to_string()))?;
    let (_, parsed) = parse_x509_certificate(&der).map_err(|e| damaged(&certificate, e.to_string()))?;
    let ends = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0);
    let left = (SystemTime::UNIX_EPOCH + Duration::from_secs(ends)).duration_since(now).unwrap_or_default();
    if left < LIFE / 2 {
        let pair = KeyPair::from_pem(&files::read_secret(&key)?).map_err(|e| damaged(&key, e.to_string()))?;
        files::replace(&certificate, &issue_for(ca, &pair, now)?)?;
        tracing::info!(path = %certificate.display(), "renewed the first operator's certificate");
    }
    Ok(())
}

fn issue_for(ca: &Ca, key: &KeyPair, now: SystemTime) -> Result<String, PkiError> {
    Ok(ca.issue(key, issue::Template::client(NAME, role::operator_uri(NAME, Role::Admin)?), now, LIFE)?.pem)
}
