//! How a coordinator gets its store, and begins anew with it.

use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::{env, fs::DirBuilder, fs::File, path::Path, time::Duration};

use anyhow::{Context as _, Result};
use landfall_coordinator::config::Config;
use landfall_coordinator::{backup, notify};
use landfall_store::{PostgresError, PostgresOptions, Store};
use nix::fcntl::Flock;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

/// The file in the data directory that says that the database is older than it was, until what it asks for is held.
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
    /// What keeps other coordinators from the data directory where it is not the store that does.
    pub(crate) _held: Option<Flock<File>>,
}

/// Opens the store. `None`: a signal ended the wait for it.
pub(crate) async fn open(config: &Config, signals: &mut Signals) -> Result<Option<Opened>> {
    let Some(options) = config.postgres()? else {
        return Ok(Some(Opened { store: Store::open(&config.data_dir)?, shared: None, _held: None }));
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
        store = beside_others(&options, &config.data_dir) => Ok(Some(Opened { store: store?, shared: Some(options), _held: Some(held) })),
    }
}

async fn beside_others(options: &PostgresOptions, data_dir: &Path) -> Result<Store> {
    let (went_back, mut is_known) = (data_dir.join(WENT_BACK), false);
    let store = loop {
        match Store::open_postgres(options.clone()).await {
            Err(PostgresError::InUse { by }) => {
                if !is_known {
                    tracing::warn!(by, "this coordinator waits until that one has left the database");
                    is_known = true;
                }
                notify::alive();
                sleep(LOOK).await;
            }
            opened_or_failed => break opened_or_failed?,
        }
    };
    if went_back.exists() {
        tracing::error!(
            "the database went back to an older state: what was requested before waits for landfall confirm; delete tokens and revoke \
             certificates again that were deleted and revoked since"
        );
        backup::hold_what_is_old(&store).await?;
        std::fs::remove_file(&went_back).with_context(|| format!("cannot remove {}", went_back.display()))?;
    }
    Ok(store)
}

/// Starts this program anew in this process: nothing in memory outlives it, and no connection. Answers why that failed.
pub(crate) fn begin_again() -> anyhow::Error {
    notify::reloading();
    let mut arguments = env::args_os();
    let name = arguments.next().unwrap_or_default();
    let error = Command::new("/proc/self/exe").arg0(name).args(arguments).exec();
    anyhow::Error::new(error).context("this program cannot be started again")
}

/// The same where the database is an older one than this process had. Whichever process opens it next holds what it asks for.
pub(crate) fn begin_again_with_older_store(data_dir: &Path) -> anyhow::Error {
    let path = data_dir.join(WENT_BACK);
    let written = File::create(&path).and_then(|file| file.sync_all()).and_then(|()| File::open(data_dir)?.sync_all());
    if let Err(error) = written {
        tracing::error!(path = %path.display(), %error, "cannot write that the database went back; what it asks for may begin");
    }
    begin_again()
}
