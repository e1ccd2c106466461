//! How a coordinator gets its store, and begins anew with it.

use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::{env, fs::DirBuilder, fs::File, path::Path, time::Duration};

use anyhow::{Context as _, Result};
use landfall_coordinator::backup::{self, Incarnation};
use landfall_coordinator::config::Config;
use landfall_coordinator::notify;
use landfall_store::{Alone, PostgresError, PostgresOptions, Store};
use nix::fcntl::Flock;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;
use uuid::Uuid;

/// The file in the data directory that says that the database is older than it was, until what it asks for is held. It has the
/// incarnation that this coordinator knew, and then the one that it begins, a line each.
const WENT_BACK: &str = "store-went-back";
/// Between two looks whether the database can be had: a coordinator of an older version, or `migrate-store`, has it alone, or one of the
/// same URL is there.
const LOOK: Duration = Duration::from_secs(1);

/// Signals that a coordinator heeds.
pub(crate) struct Signals {
    pub(crate) terminate: Signal,
    pub(crate) interrupt: Signal,
    pub(crate) hangup: Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?,
            hangup: signal(SignalKind::hangup()).context("cannot wait for SIGHUP")?,
        })
    }
}

/// A store that is open.
pub(crate) struct Opened {
    pub(crate) store: Store,
    /// The database that others have open too.
    pub(crate) shared: Option<PostgresOptions>,
    /// Which of its states the store continues.
    pub(crate) incarnation: String,
    /// What keeps other coordinators from the data directory where it is not the store that does.
    pub(crate) _held: Option<Flock<File>>,
}

/// Opens the store. `None`: a signal ended the wait for it.
pub(crate) async fn open(config: &Config, signals: &mut Signals) -> Result<Option<Opened>> {
    let Some(options) = config.postgres()? else {
        return Ok(Some(Opened {
            store: Store::open(&config.data_dir)?,
            shared: None,
            incarnation: String::new(),
            _held: None,
        }));
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&config.data_dir)
        .with_context(|| format!("cannot make {}", config.data_dir.display()))?;
    let held = landfall_store::hold(&config.data_dir)?;
    tokio::select! {
        _ = signals.terminate.recv() => Ok(None),
        _ = signals.interrupt.recv() => Ok(None),
        _ = signals.hangup.recv() => Err(begin_again()),
        opened = beside_others(&options, &config.data_dir) => {
            let (store, incarnation) = opened?;
            Ok(Some(Opened { store, shared: Some(options), incarnation, _held: Some(held) }))
        }
    }
}

async fn beside_others(options: &PostgresOptions, data_dir: &Path) -> Result<(Store, String)> {
    let (went_back, mut is_known) = (data_dir.join(WENT_BACK), false);
    let options = if went_back.exists() { options.clone().in_use() } else { options.clone() };
    loop {
        match Store::open_postgres(options.clone()).await {
            Err(PostgresError::InUse { by }) => {
                if !is_known {
                    tracing::warn!(by, "this coordinator waits until that one has left the database");
                    is_known = true;
                }
                notify::alive();
                sleep(LOOK).await;
            }
            Ok(store) if went_back.exists() => hold_what_is_old(&store, &went_back).await?,
            opened_or_failed => {
                let store = opened_or_failed?;
                let incarnation = backup::incarnation(&store).await?;
                return Ok((store, incarnation.id));
            }
        }
    }
}

/// Holds what the older database asks for, unless another coordinator has done so.
async fn hold_what_is_old(store: &Store, went_back: &Path) -> Result<()> {
    let known = std::fs::read_to_string(went_back).with_context(|| format!("cannot read {}", went_back.display()))?;
    let mut lines = known.lines();
    let (known, begun) = (lines.next().unwrap_or_default(), lines.next());
    let is_due = {
        let turn = store.documents().hold(Alone::Identity).await?;
        let found = backup::incarnation(store).await?;
        let is_own = begun.is_some_and(|begun| begun == found.id);
        if !is_own && found.replaces != known {
            let new = Incarnation { id: Uuid::new_v4().to_string(), replaces: known.to_owned() };
            write_down(went_back, &format!("{known}\n{}\n", new.id))?;
            turn.during(backup::begin_incarnation(store, &new)).await?;
            true
        } else {
            is_own
        }
    };
    if is_due {
        tracing::error!(
            "the database went back to an older state: what was requested before waits for landfall confirm; tokens that were deleted \
             and certificates that were revoked since are valid again: delete and revoke them"
        );
        backup::hold_what_is_old(store).await?;
    }
    std::fs::remove_file(went_back).with_context(|| format!("cannot remove {}", went_back.display()))
}

fn write_down(path: &Path, text: &str) -> Result<()> {
    let written = || {
        let mut file = File::create(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        File::open(path.parent().unwrap_or(path))?.sync_all()
    };
    written().with_context(|| format!("cannot write {}", path.display()))
}

/// Starts this program anew in this process: nothing in memory outlives it, and no connection. Answers why that failed.
pub(crate) fn begin_again() -> anyhow::Error {
    notify::reloading();
    let mut arguments = env::args_os();
    let name = arguments.next().unwrap_or_default();
    let error = Command::new("/proc/self/exe").arg0(name).args(arguments).exec();
    anyhow::Error::new(error).context("this program cannot be started again")
}

/// Writes down that the database is an older one than this process had, as `incarnation`: whichever process opens it next holds what it asks
/// for.
pub(crate) fn went_back(data_dir: &Path, incarnation: &str) -> Result<()> {
    let path = data_dir.join(WENT_BACK);
    // The one that is there has an earlier incarnation, or the one that was begun: what it asks for is not yet held.
    if path.exists() { Ok(()) } else { write_down(&path, &format!("{incarnation}\n")) }
}
