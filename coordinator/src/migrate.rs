//! `landfall-coordinator migrate-store`: the store, and what a coordinator keeps in it over PostgreSQL and beside it over SQLite.

use std::path::Path;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use landfall_boot::dhcp::lease_file::LeaseFile;
use landfall_store::{Migrated, Store, to_postgres, to_sqlite};

use crate::boot::LEASES;
use crate::config::Config;
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
    beside(&config.data_dir).await.context("the store is copied; what belongs beside it is not")?;
    Ok(copied)
}

async fn beside(data_dir: &Path) -> Result<()> {
    let store = Store::open(data_dir)?;
    pki::share(data_dir, store.secrets()).await?;
    if let Some(bytes) = store.secrets().consume(LEASES, Timestamp::MIN).await? {
        LeaseFile::new(data_dir).put(bytes).await.context("cannot write the leases")?;
    }
    Ok(())
}
