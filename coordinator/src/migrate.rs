//! `landfall-coordinator migrate-store`: the store, and what a coordinator keeps in it over PostgreSQL and beside it over SQLite.

use std::path::Path;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use landfall_boot::dhcp::lease_file::LeaseFile;
use landfall_store::{Migrated, Store, to_postgres, to_sqlite};

use crate::config::Config;
use crate::dhcp_leases::LEASES;
use crate::pki;

/// From SQLite into PostgreSQL.
///
/// # Errors
/// What the copy is refused for, or failed at.
pub async fn into_postgres(config: &Config) -> Result<Migrated> {
    let (options, leases) = (config.store_to_migrate()?, LeaseFile::own(&config.data_dir));
    if config.data_dir.join(landfall_store::DATABASE).exists() {
        let store = Store::open(&config.data_dir)?;
        store.secrets().consume(LEASES, Timestamp::MIN).await?;
        if leases.exists() {
            let bytes = std::fs::read(&leases).with_context(|| format!("cannot read {}", leases.display()))?;
            store.secrets().put(LEASES, &bytes, Timestamp::MAX).await?;
        }
    }
    let copied = to_postgres(&config.data_dir, options).await?;
    if leases.exists() {
        let aside = leases.with_extension("json.migrated");
        std::fs::rename(&leases, &aside).with_context(|| format!("cannot rename {}", leases.display()))?;
    }
    Ok(copied)
}

/// From PostgreSQL into SQLite. A host that was never the active one gets the certificate authority, which is in the store.
///
/// # Errors
/// What the copy is refused for, or failed at.
pub async fn into_sqlite(config: &Config) -> Result<Migrated> {
    let copied = to_sqlite(&config.data_dir, config.store_to_migrate()?).await?;
    let store = Store::open(&config.data_dir)?;
    pki::share(&config.data_dir, store.secrets()).await?;
    finish(&config.data_dir, &store)
        .await
        .context("the store is copied; the first start copies what belongs beside it")?;
    Ok(copied)
}

/// What belongs beside a SQLite store is taken out of it, where it came from PostgreSQL: also by the first start after a copy that was cut
/// short.
///
/// # Errors
/// Of the store and of the files.
pub async fn finish(data_dir: &Path, store: &Store) -> Result<()> {
    pki::take_over(data_dir, store.secrets()).await?;
    if let Some(bytes) = store.secrets().get(LEASES, Timestamp::MIN).await? {
        LeaseFile::new(data_dir).put(bytes).await.context("cannot write the leases")?;
        store.secrets().consume(LEASES, Timestamp::MIN).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_belongs_beside_a_store_is_taken_out_once() {
        let store = Store::memory();
        let [first, second] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        pki::share(first.path(), store.secrets()).await.unwrap();
        store.secrets().put(LEASES, b"leases", Timestamp::MAX).await.unwrap();
        finish(second.path(), &store).await.unwrap();
        let ca = |host: &tempfile::TempDir| std::fs::read(host.path().join("pki/ca.key")).unwrap();
        assert_eq!(ca(&first), ca(&second));
        let leases = LeaseFile::own(second.path());
        assert_eq!(std::fs::read(&leases).unwrap(), b"leases");
        std::fs::write(&leases, "newer").unwrap();
        finish(second.path(), &store).await.unwrap();
        assert_eq!(std::fs::read(&leases).unwrap(), b"newer");
        // A store that was always SQLite has none of it.
        let third = tempfile::tempdir().unwrap();
        finish(third.path(), &Store::memory()).await.unwrap();
        assert_eq!(std::fs::read_dir(third.path()).unwrap().count(), 0);
    }
}
