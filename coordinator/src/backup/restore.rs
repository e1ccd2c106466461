//! `landfall-coordinator restore`: a backup becomes a data directory, all at once; or a database that was put back is marked as such.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use anyhow::Context as _;
use jiff::Timestamp;
use landfall_api::{Document, Kind, Machine};
use landfall_machine::{Horizon, mark_behind};

use super::{BackupError, Manifest, io_error, read};
use crate::engine::{BEAT, forget_last_beat};
use crate::{config::Config, pki::Pki};
use landfall_store::{ChangeSet, INCARNATION, REPLACED, RESTORING, Seen, Store, StoreError};
use uuid::Uuid;

/// A data directory that was restored.
#[derive(Debug)]
pub struct Restored {
    /// What was in the backup.
    pub manifest: Manifest,
    /// Where the data that was there before is now.
    pub kept_aside: Option<PathBuf>,
    /// What was taken from the restored data, and what may have come back with it.
    pub access: AccessAfter,
}

/// Who has access after a restore. Revocations made after the backup are not in it, so they have to be made again.
#[derive(Debug, Default)]
pub struct AccessAfter {
    /// The tokens in the backup, by name. All of them are withdrawn: any may have been deleted since.
    pub withdrawn_tokens: Vec<String>,
    /// The operators who are revoked in the backup, by name; they stay revoked. Those revoked since are let in again.
    pub revoked_operators: Vec<String>,
    /// The machines in the backup, by name. Those deleted or revoked since are let in again.
    pub machines: Vec<String>,
}

impl AccessAfter {
    /// What a person has to do, a sentence a line. `taken`: when the backup was made, where that is known.
    pub fn to_do(&self, taken: Option<Timestamp>) -> Vec<String> {
        let taken = taken.map_or_else(|| "it was made".to_owned(), |taken| taken.to_string());
        let mut lines = Vec::new();
        if !self.withdrawn_tokens.is_empty() {
            lines.push(format!(
                "every bearer token of the backup is withdrawn ({}): make those still needed with landfall token create",
                shown(&self.withdrawn_tokens)
            ));
        }
        lines.push(format!("the backup knows no revocation made after {taken}; make those again:"));
        lines.push(format!(
            "  operators: landfall revoke operator/NAME for each revoked since ({} in the backup stay revoked)",
            if self.revoked_operators.is_empty() { "none".to_owned() } else { shown(&self.revoked_operators) }
        ));
        if !self.machines.is_empty() {
            lines.push(format!(
                "  machines: landfall revoke NAME or landfall delete machine/NAME for each revoked or deleted since, among {}",
                shown(&self.machines)
            ));
        }
        lines
    }
}

/// The first of many names.
fn shown(names: &[String]) -> String {
    /// More would not be read.
    const MOST: usize = 50;
    let more = names.len().saturating_sub(MOST);
    let first = names.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more == 0 { first } else { format!("{first} and {more} more") }
}

/// Restores `from` into the data directory of `config`, which must be missing or empty, or with `replace` is renamed and
/// kept. The backup is verified whole, unpacked beside the data directory, and opened as a coordinator would, before
/// anything is renamed.
///
/// # Errors
/// [`BackupError`]; then the data directory is as it was.
pub fn restore(config: &Config, from: &Path, replace: bool) -> Result<Restored, BackupError> {
    let data_dir = &config.data_dir;
    let occupied = occupied(data_dir)?;
    if occupied && !replace {
        return Err(BackupError::NotEmpty(data_dir.clone()));
    }
    // No process may have it open, now or until it has its new name.
    let _held = if occupied { Some(landfall_store::hold(data_dir)?) } else { None };
    read::verify(from)?;

    let staging = beside(data_dir, &format!("{RESTORING}{}", std::process::id()));
    let unready = |error| {
        // The first failure says more than this one's could.
        let _left = fs::remove_dir_all(&staging);
        error
    };
    DirBuilder::new().mode(0o700).recursive(true).create(&staging).map_err(io_error("make", &staging))?;
    let ready = read::extract(from, &staging)
        .and_then(|manifest| opens(config, from, &staging).map(|access| (manifest, access)));
    let (manifest, access) = ready.map_err(unready)?;

    // Two renames: if the power fails between them there is no data, and no coordinator starts until a person restores
    // again; see the store's `open`.
    let kept_aside = put_aside(data_dir, occupied).map_err(unready)?;
    if let Err(error) = fs::rename(&staging, data_dir) {
        if let Some(old) = &kept_aside {
            // Back as it was; if even that fails, the first failure names the place.
            let _stays = fs::rename(old, data_dir);
        }
        return Err(unready(io_error("put the restored data in place of", data_dir)(error)));
    }
    let parent = data_dir.parent().unwrap_or(Path::new("/"));
    File::open(parent).and_then(|directory| directory.sync_all()).map_err(io_error("flush", parent))?;
    Ok(Restored { manifest, kept_aside, access })
}

/// Marks the PostgreSQL database of `config`, which its own tools have put back, as an old state, as [`restore`] leaves one.
///
/// # Errors
/// The database cannot be opened, has no tables, or a coordinator has it.
pub async fn mark_database(config: &Config) -> anyhow::Result<AccessAfter> {
    let options =
        config.postgres()?.context("the configuration has no [store] url; restore a backup of SQLite with --from")?;
    let store = Store::open_unused_postgres(options.in_use(), BEAT).await?;
    begin_next_incarnation(&store).await?;
    hold_what_is_old(&store).await?;
    Ok(withdraw(&store).await?)
}

/// What a store is between two times that it went back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incarnation {
    /// Unique; `-` for the first.
    pub id: String,
    /// The one that coordinators knew when it went back, which may be newer than what it went back to; `none` for the first.
    pub replaces: String,
}

/// The one that the store has.
///
/// # Errors
/// [`StoreError`] of the back end.
pub async fn incarnation(store: &Store) -> Result<Incarnation, StoreError> {
    let found = store.secrets().get(INCARNATION, Timestamp::MIN).await?;
    let found = found.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_else(|| "- none".to_owned());
    let (id, replaces) = found.split_once(' ').unwrap_or((&found, "none"));
    Ok(Incarnation { id: id.to_owned(), replaces: replaces.to_owned() })
}

/// From now on the store has a new one: coordinators that know another begin anew when they connect again, and no one who watched what is
/// lost goes on with what takes its place. What it asks for is held from then on, also where this process dies before it has marked that.
///
/// # Errors
/// [`StoreError`] of the back end.
pub async fn begin_incarnation(store: &Store, new: &Incarnation) -> Result<(), StoreError> {
    forget_last_beat(store).await?;
    let text = format!("{} {}", new.id, new.replaces);
    store.secrets().begin_incarnation(text.as_bytes()).await
}

async fn begin_next_incarnation(store: &Store) -> Result<(), StoreError> {
    let replaces = incarnation(store).await?.id;
    begin_incarnation(store, &Incarnation { id: Uuid::new_v4().to_string(), replaces }).await
}

/// Whether anything is there that could be lost.
fn occupied(data_dir: &Path) -> Result<bool, BackupError> {
    match fs::read_dir(data_dir) {
        Ok(mut entries) => Ok(entries.any(|entry| entry.map_or(true, |entry| entry.file_name() != "lost+found"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(io_error("read", data_dir)(error)),
    }
}

fn beside(data_dir: &Path, suffix: &str) -> PathBuf {
    let mut name = data_dir.as_os_str().to_owned();
    name.push(format!(".{suffix}"));
    name.into()
}

/// What a coordinator would do with it at its start: migrations, the key of the secrets, every document, the CA.
fn opens(config: &Config, from: &Path, staging: &Path) -> Result<AccessAfter, BackupError> {
    let unusable = |error: &dyn std::error::Error| {
        let mut why = error.to_string();
        let mut next = error.source();
        while let Some(cause) = next {
            why = format!("{why}: {cause}");
            next = cause.source();
        }
        BackupError::Unusable { path: from.to_owned(), why }
    };
    if !staging.join("pki/ca.key").is_file() {
        // Opening it would create another CA, which no machine knows.
        let why = "it contains no certificate authority".to_owned();
        return Err(BackupError::Unusable { path: from.to_owned(), why });
    }
    let store = Store::open(staging).map_err(|error| unusable(&error))?;
    let access = mark(&store).map_err(|error| unusable(&error))?;
    drop(store);
    Pki::open(staging, config.advertise, config.limits.certificate_ttl.get()).map_err(|error| unusable(&error))?;
    Ok(access)
}

/// What a database that went back holds of requests waits for a person: at once, and whichever coordinator has its machine.
///
/// # Errors
/// [`StoreError`] of the back end.
pub async fn hold_what_is_old(store: &Store) -> Result<(), StoreError> {
    forget_last_beat(store).await?;
    for machine in store.machines().await? {
        loop {
            match hold(store, &machine.metadata.name).await {
                Ok(()) | Err(StoreError::NotFound { .. }) => break,
                // Another coordinator has changed one of the two.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

async fn hold(store: &Store, machine: &str) -> Result<(), StoreError> {
    let Some(found) = store.machine(machine).await? else { return Ok(()) };
    let Some(newest) = found.status.as_ref().and_then(|status| status.workflow.as_deref()) else { return Ok(()) };
    let Some(workflow) = store.workflow(newest).await? else { return Ok(()) };
    let (mut machine, now) = (Machine::clone(&found), Timestamp::now());
    let horizon = Horizon { as_of: None, started: now, lease: Duration::ZERO };
    if mark_behind(&mut machine, &workflow, &horizon, now) {
        let (kind, name) = (Kind::Workflow, newest.to_owned());
        let seen = vec![Seen { kind, name, version: workflow.metadata.resource_version }];
        let changed = vec![Document::Machine(machine.into())];
        store.documents().write(ChangeSet { changed, seen, ..ChangeSet::default() }).await?;
    }
    Ok(())
}

/// No token of it opens anything any more.
async fn withdraw(store: &Store) -> io::Result<AccessAfter> {
    let mut access = AccessAfter::default();
    for token in store.access().tokens().await.map_err(io::Error::other)? {
        store.access().delete_token(&token.name).await.map_err(io::Error::other)?;
        access.withdrawn_tokens.push(token.name);
    }
    access.revoked_operators = store.access().revoked_operators().await.map_err(io::Error::other)?;
    let (machines, _) = store.documents().list(Kind::Machine).await.map_err(io::Error::other)?;
    access.machines = machines.iter().map(|machine| machine.metadata().name.clone()).collect();
    Ok(access)
}

/// Marks it as an old state, on a thread of its own: the caller may be inside a runtime.
fn mark(store: &Store) -> io::Result<AccessAfter> {
    let mark = async {
        begin_next_incarnation(store).await.map_err(io::Error::other)?;
        withdraw(store).await
    };
    let wait = || tokio::runtime::Builder::new_current_thread().build()?.block_on(mark);
    let ended = std::thread::scope(|scope| scope.spawn(wait).join());
    ended.unwrap_or_else(|_| Err(io::Error::other("the thread that was to do it panicked")))
}

fn put_aside(data_dir: &Path, occupied: bool) -> Result<Option<PathBuf>, BackupError> {
    let busy = "free some space for the restored data (if it is a mount point, use a directory below it as data_dir) \
        in";
    if !occupied {
        return match fs::remove_dir(data_dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error(busy, data_dir)(error)),
            _ => Ok(None),
        };
    }
    let old = beside(data_dir, &format!("{REPLACED}{}", Timestamp::now().strftime("%Y%m%dT%H%M%S%fZ")));
    fs::rename(data_dir, &old).map_err(io_error(busy, data_dir))?;
    Ok(Some(old))
}
