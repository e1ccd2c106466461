//! How a coordinator gets its store: at once, or after the one that has it.

use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::{env, fs::DirBuilder, fs::File, time::Duration};

use anyhow::{Context as _, Result};
use landfall_boot::http::serve::serve;
use landfall_boot::neighbours::Neighbours;
use landfall_boot::tftp::TftpService;
use landfall_coordinator::config::Config;
use landfall_coordinator::forward::{Forwarder, Port};
use landfall_coordinator::notify;
use landfall_coordinator::operator::{LocalListener, standby_router};
use landfall_edge::forwarded::Forwarders;
use landfall_store::{PostgresOptions, Store};
use nix::fcntl::Flock;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

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

/// A store that is this coordinator's.
pub(crate) struct Opened {
    pub(crate) store: Store,
    /// Another coordinator had it until now.
    pub(crate) took_over: bool,
    /// What keeps other coordinators from the data directory where it is not the store that does.
    pub(crate) _held: Option<Flock<File>>,
}

/// What a standby answers by.
type Served = JoinSet<std::io::Result<()>>;

/// Opens the store, as soon as no other coordinator has it. `None`: a signal ended the wait.
pub(crate) async fn open(config: &Config, signals: &mut Signals) -> Result<Option<Opened>> {
    let Some(options) = config.postgres()? else {
        return Ok(Some(Opened { store: Store::open(&config.data_dir)?, took_over: false, _held: None }));
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&config.data_dir)
        .with_context(|| format!("cannot make {}", config.data_dir.display()))?;
    let held = landfall_store::hold(&config.data_dir)?;
    let opened = in_turn(config, options, signals).await?;
    Ok(opened.map(|(store, took_over)| Opened { store, took_over, _held: Some(held) }))
}

async fn in_turn(config: &Config, options: PostgresOptions, signals: &mut Signals) -> Result<Option<(Store, bool)>> {
    let (active, seen) = watch::channel(String::new());
    let has_it = |by: &str| {
        // It may be named again, where this standby's connection with the database was lost: then nothing has changed for clients.
        active.send_if_modified(|named| {
            let is_other = named != by;
            by.clone_into(named);
            is_other
        });
    };
    let opening = Store::open_postgres(options, has_it);
    let (mut served, stop) = (JoinSet::new(), CancellationToken::new());
    let outcome = tokio::select! {
        store = opening => store.map(|store| Some((store, !seen.borrow().is_empty()))).map_err(Into::into),
        ended = wait(config, seen.clone(), signals, (&mut served, &stop)) => ended.map(|()| None),
    };
    // At once: the active one listens at the same places. Connections that are kept alive would go on being answered as by a standby.
    stop.cancel();
    served.shutdown().await;
    if matches!(outcome, Ok(Some(_))) {
        notify::active();
    }
    outcome
}

/// Answers as a standby, once it is one, until a signal.
async fn wait(
    config: &Config, mut seen: watch::Receiver<String>, signals: &mut Signals,
    (served, stop): (&mut Served, &CancellationToken),
) -> Result<()> {
    let mut beat = tokio::time::interval(notify::watchdog().unwrap_or(Duration::from_secs(3600)));
    let mut is_standby = false;
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => return Ok(()),
            _ = signals.interrupt.recv() => return Ok(()),
            _ = signals.hangup.recv() => return Err(begin_again()),
            _ = beat.tick() => notify::alive(),
            changed = seen.changed() => {
                // Its sender outlives this.
                changed?;
                let active = seen.borrow().clone();
                if active == config.tls_url() {
                    continue;
                }
                if !is_standby {
                    is_standby = true;
                    listen(config, &seen, served, stop).await?;
                }
                tracing::info!(active, "standby: another coordinator has the store");
                notify::standby(&active);
            }
        }
    }
}

async fn listen(
    config: &Config, seen: &watch::Receiver<String>, served: &mut Served, stop: &CancellationToken,
) -> Result<()> {
    let router = standby_router(seen.clone());
    let local = LocalListener::bind(&config.api_socket()).await?;
    served.spawn(local.serve(router.clone(), stop.clone()));
    if let Some(listen) = config.metrics.listen {
        let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
        served.spawn(serve(listener, router, Forwarders::default(), stop.clone()));
    }
    // What machines and people ask of this one, the active one answers.
    for (listen, port) in [(config.tls.listen, Port::Tls), (config.http.listen, Port::Same)] {
        let forwarder = Forwarder::bind(listen, port, (config.advertise, config.tls_url())).await;
        let forwarder = forwarder.with_context(|| format!("cannot listen on {listen}"))?;
        served.spawn(forwarder.serve(seen.clone()));
    }
    if config.tftp.enabled {
        let (directory, own) = (config.boot.bootloaders.clone(), config.advertise);
        let tftp = TftpService::start(config.tftp.listen, directory, own, Neighbours::default()).await?;
        let stop = stop.clone();
        served.spawn(async move { tftp.run(stop).await.map_err(std::io::Error::other) });
    }
    Ok(())
}

/// Starts this program anew in this process: nothing in memory outlives it, and no connection. Answers why that failed.
pub(crate) fn begin_again() -> anyhow::Error {
    notify::reloading();
    let mut arguments = env::args_os();
    let name = arguments.next().unwrap_or_default();
    let error = Command::new("/proc/self/exe").arg0(name).args(arguments).exec();
    anyhow::Error::new(error).context("this program cannot be started again")
}
