//! One certificate authority for all coordinators of a store: the first one leaves its own there, sealed by the key of the secrets,
//! and every other one takes it over. Machines pin it, so whichever coordinator they reach must have it.

use std::path::Path;

use jiff::Timestamp;
use landfall_store::SecretStore;
use serde::{Deserialize, Serialize};

use super::ca::Ca;
use super::{PkiError, files};

/// Its name among the secrets.
const NAME: &str = "pki/ca";

/// As in the store: the two files of `<data_dir>/pki`.
#[derive(PartialEq, Serialize, Deserialize)]
struct Kept {
    certificate: String,
    key: String,
}

async fn kept(secrets: &dyn SecretStore) -> Result<Option<Kept>, PkiError> {
    let bytes = secrets.get(NAME, Timestamp::MIN).await?;
    bytes.map(|bytes| serde_json::from_slice(&bytes).map_err(PkiError::Shared)).transpose()
}

/// Makes `<data_dir>/pki` of the CA in the store, where there is none.
///
/// # Errors
/// [`PkiError`]: of the store or the files.
pub async fn take_over(data_dir: &Path, secrets: &dyn SecretStore) -> Result<(), PkiError> {
    let directory = data_dir.join("pki");
    if files::populated(&directory)? {
        return Ok(());
    }
    let Some(kept) = kept(secrets).await? else { return Ok(()) };
    tracing::info!(directory = %directory.display(), "the certificate authority was taken over from the store");
    files::create_directory(&directory, &[("ca.pem", &kept.certificate), ("ca.key", &kept.key)])
}

/// Brings `<data_dir>/pki` and the store to the same CA. Before the CA is used: by then other coordinators must find it.
///
/// # Errors
/// [`PkiError`]: of the store, of the files, or each has another CA.
pub async fn share(data_dir: &Path, secrets: &dyn SecretStore) -> Result<(), PkiError> {
    let directory = data_dir.join("pki");
    let (certificate, key) = (directory.join("ca.pem"), directory.join("ca.key"));
    take_over(data_dir, secrets).await?;
    // Made if there is none, and whole if there is one.
    Ca::open(data_dir)?;
    let own = Kept { certificate: files::read(&certificate)?, key: files::read_secret(&key)? };
    match kept(secrets).await? {
        Some(kept) if kept != own => Err(PkiError::Another { path: certificate }),
        Some(_) => Ok(()),
        None => {
            let bytes = serde_json::to_vec(&own).map_err(PkiError::Shared)?;
            Ok(secrets.put(NAME, &bytes, Timestamp::MAX).await?)
        }
    }
}

#[cfg(test)]
mod tests {
    use landfall_store::MemoryStore;

    use super::*;

    #[tokio::test]
    async fn the_first_ca_becomes_that_of_all_hosts() {
        let store = MemoryStore::default();
        let [first, second, third] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        for host in [&first, &second, &first] {
            share(host.path(), &store).await.unwrap();
        }
        let pins = [&first, &second].map(|host| Ca::open(host.path()).unwrap().pin());
        assert_eq!(pins[0], pins[1]);
        files::read_secret(&second.path().join("pki/ca.key")).unwrap();
        // One that had a CA of its own keeps it, and does not serve.
        let own = Ca::open(third.path()).unwrap().pin();
        let refused = share(third.path(), &store).await.unwrap_err();
        assert!(matches!(refused, PkiError::Another { .. }), "{refused}");
        assert_eq!(Ca::open(third.path()).unwrap().pin(), own);
        // A lost half is not made good by what the store has: a person looks.
        std::fs::remove_file(second.path().join("pki/ca.key")).unwrap();
        assert!(matches!(share(second.path(), &store).await, Err(PkiError::Missing { .. })));
    }
}
