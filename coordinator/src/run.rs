//! One run of the process: construction, signals, reload, drain.

use std::{panic::AssertUnwindSafe, path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use futures::FutureExt as _;
use jiff::Timestamp;
use landfall_boot::BootReload;
use landfall_coordinator::config::{Config, ManifestsConfig};
use landfall_coordinator::engine::{Engine, HttpSources, Settings};
use landfall_coordinator::finding::Level;
use landfall_coordinator::operator::LocalListener;
use landfall_coordinator::pki::{self, Pki};
use landfall_coordinator::reload::{Plan, merged};
use landfall_coordinator::state::Coordinator;
use landfall_coordinator::{boot, doctor, migrate, notify, operator, session, tls, tools_layer};
use landfall_edge::metrics::metrics;
use landfall_store::Ended;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::lead::{self, Duties};
use crate::logging::Logs;
use crate::opening::{self, Opened, Signals};

/// After the signal, requests under way have so long to end.
const DRAIN: Duration = Duration::from_secs(3);

/// Serves until SIGTERM or SIGINT, or until a service fails. If the store is not what it was, it starts anew.
pub(crate) async fn run(path: &Path, config: Config, logs: Logs) -> Result<()> {
    let mut signals = Signals::new()?;
    let Some(opened) = opening::open(&config, &mut signals).await? else { return Ok(()) };
    let (store, incarnation, data_dir) = (opened.store.clone(), opened.incarnation.clone(), config.data_dir.clone());
    let outcome = serve(path, config, logs, signals, opened).await;
    // Whatever ended it: the next start could not find that out.
    if let Some(Ended::WentBack) = store.documents().ended().now_or_never() {
        opening::went_back(&data_dir, &incarnation)?;
        if outcome.is_err() {
            return Err(opening::begin_again());
        }
    }
    outcome
}

async fn serve(path: &Path, config: Config, logs: Logs, mut signals: Signals, opened: Opened) -> Result<()> {
    let Opened { store, shared, .. } = opened;
    let modes = doctor::data_dir_modes(&config);
    if modes.level != Level::Ok {
        tracing::warn!(hint = modes.hint, "{}", modes.message);
    }
    if config.store.url.is_some() {
        pki::share(&config.data_dir, store.secrets()).await?;
    } else {
        migrate::finish(&config.data_dir, &store).await?;
    }
    let pki = Pki::open(&config.data_dir, config.advertise, config.limits.certificate_ttl.get())?;
    let pki = Arc::new(pki);
    let sources = Arc::new(HttpSources::new()?);
    #[allow(clippy::disallowed_methods, reason = "here the engine is given its clock")]
    let clock = Arc::new(Timestamp::now);
    let (tools, layers) = tools_layer::read(&config)?;
    let settings = Settings::from_config(&config, tools);
    let engine = Engine::start(store.clone(), settings, clock, pki.clone(), sources).await?;
    let ops = Arc::default();
    let coordinator =
        Arc::new(Coordinator { config: config.clone(), store, engine: engine.clone(), pki: pki.clone(), ops });

    let boot = boot::start(coordinator.clone(), layers).await?;
    let tls_config = tls::server_config(&pki)?;
    let bind = |listen| format!("cannot listen on {listen}; check whether another program uses the port");
    let listener =
        tls::TlsListener::bind(config.tls.listen, tls_config).await.with_context(|| bind(config.tls.listen))?;
    let counted = match config.metrics.listen {
        Some(listen) => Some(TcpListener::bind(listen).await.with_context(|| bind(listen))?),
        None => None,
    };
    let local = LocalListener::bind(&config.api_socket()).await?;
    let (manifests, manifests_seen) = watch::channel(config.manifests.clone());
    // Of a coordinator that has its store alone: a port that cannot be had is said before it is ready.
    let (dhcp, beside, led) = match boot.dhcp() {
        dhcp if shared.is_none() => (Some(dhcp.start(false).await?), None, None),
        dhcp if dhcp.may_be_several() => (None, Some(dhcp), None),
        dhcp => (None, None, Some(dhcp)),
    };
    let duties = Duties { coordinator: coordinator.clone(), dhcp: led, manifests: manifests_seen };
    let mut live = Live { config: config.clone(), engine: engine.clone(), boot: boot.reload(), manifests, logs };

    let (stop, failed, tasks) = (CancellationToken::new(), CancellationToken::new(), TaskTracker::new());
    let api = operator::router(coordinator.clone());
    let app = session::router(engine.clone()).merge(boot.tokens()).merge(api.clone());
    coordinator.ops.health.boot_services(true);
    tracing::info!(
        tls = %config.tls.listen, http = %config.http.listen, socket = %config.api_socket().display(),
        advertise = %config.advertise, ca = %pki.ca_pin(), "ready"
    );
    let graceful = stop.clone();
    let serve_tls = async move { listener.serve(app, graceful).await };
    // The first service that ends stops all others: half a coordinator is useless.
    tasks.spawn(ending("the TLS port", failed.clone(), async { Ok(serve_tls.await?) }));
    let (token, drain, ops) = (stop.clone(), stop.clone(), coordinator.ops.clone());
    tasks.spawn(ending("the boot services", failed.clone(), async move {
        let outcome = boot.run(token).await;
        ops.health.boot_services(false);
        Ok(outcome?)
    }));
    tasks.spawn(ending("the API's socket", failed.clone(), async move { Ok(local.serve(api, drain).await?) }));
    if let Some(listener) = counted {
        let (router, token) = (operator::metrics_router(coordinator.clone()), stop.clone());
        let serve = async move { Ok(landfall_boot::http::serve::serve(listener, router, token).await?) };
        tasks.spawn(ending("the metrics' port", failed.clone(), serve));
    }
    if let Some(every) = notify::watchdog() {
        tasks.spawn(keep_alive(every, engine.clone(), stop.clone()));
    }
    if let Some(dhcp) = dhcp {
        let token = stop.clone();
        tasks.spawn(ending("DHCP", failed.clone(), async move { Ok(dhcp.run(token).await?) }));
    }
    if let Some(dhcp) = beside {
        tasks.spawn(ending("ProxyDHCP", failed.clone(), lead::serve_beside(dhcp, stop.clone())));
    }
    match shared {
        Some(options) => {
            let (token, others) = (stop.clone(), engine.clone());
            let follows = async move {
                others.others().follow(token).await;
                Ok(())
            };
            tasks.spawn(ending("what follows other coordinators", failed.clone(), follows));
            let leads = lead::whenever(duties, options, stop.clone());
            tasks.spawn(ending("what one coordinator does alone", failed.clone(), leads));
        }
        None => {
            metrics().active.set(1);
            let performed = duties.perform(false, stop.clone());
            tasks.spawn(ending("BMCs, pools or the directory of manifests", failed.clone(), performed));
        }
    }
    let (token, sessions) = (stop.clone(), engine.clone());
    let doubts = async move {
        sessions.sessions().let_go_in_doubt(token).await;
        Ok(())
    };
    tasks.spawn(ending("the agents' sessions", failed.clone(), doubts));
    let token = stop.clone();
    let ticks = async move {
        engine.upkeep().run_ticker(token).await;
        Ok(())
    };
    tasks.spawn(ending("the ticker", failed.clone(), ticks));
    tasks.close();
    notify::ready();

    let outcome = loop {
        tokio::select! {
            biased;
            _ = signals.terminate.recv() => break Ok(()),
            _ = signals.interrupt.recv() => break Ok(()),
            _ = signals.hangup.recv() => live.reload(path),
            ended = coordinator.store.documents().ended() => match ended {
                // At once: what it says to agents no longer holds.
                Ended::WentBack => anyhow::bail!("the database went back"),
                Ended::Failed => break Err(anyhow::anyhow!("what writes the store has ended")),
            },
            () = failed.cancelled() => break Err(anyhow::anyhow!("a service ended; the log has the reason")),
        }
    };
    tracing::info!("draining");
    notify::stopping();
    stop.cancel();
    let drained = async {
        // No session ends by itself, and its agent connects to another coordinator at once.
        coordinator.engine.sessions().let_go().await;
        tasks.wait().await;
    };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        tracing::info!("requests were still under way");
    }
    outcome
}

/// Runs a service whose end, by a panic too, ends the process: the service manager starts it again.
async fn ending(name: &'static str, failed: CancellationToken, service: impl Future<Output = Result<()>>) {
    // What it leaves half done is not looked at again.
    match AssertUnwindSafe(service).catch_unwind().await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(error = format!("{error:#}"), "{name} failed"),
        Err(_panic) => tracing::error!("{name} panicked; the lines before this one say where"),
    }
    failed.cancel();
}

/// Tells the service manager that the process works, for as long as its ticker does.
async fn keep_alive(every: Duration, engine: Engine, stop: CancellationToken) {
    let mut beat = tokio::time::interval(every);
    while stop.run_until_cancelled(beat.tick()).await.is_some() {
        if engine.upkeep().since_last_tick() < every {
            notify::alive();
        }
    }
}

/// What a reload reaches.
struct Live {
    /// What runs.
    config: Config,
    engine: Engine,
    boot: BootReload,
    manifests: watch::Sender<ManifestsConfig>,
    logs: Logs,
}

impl Live {
    /// Reads the configuration again. A file that is not right changes nothing.
    fn reload(&mut self, path: &Path) {
        notify::reloading();
        match Config::load(path).and_then(|config| config.check_files().map(|()| config)) {
            Ok(new) => self.change(&new),
            Err(error) => tracing::error!(%error, "the configuration is not valid; the previous one stays in force"),
        }
        notify::ready();
    }

    fn change(&mut self, new: &Config) {
        let plan = Plan::between(&self.config, new);
        let config = merged(&self.config, new);
        let stays = "the configuration is not valid; the previous one stays in force";
        // The other tasks have other threads while the file is read.
        let (tools, layers) = match tokio::task::block_in_place(|| tools_layer::read(&config)) {
            Ok(read) => read,
            Err(error) => return tracing::error!(%error, "{stays}"),
        };
        if let Err(error) = self.boot.reload(&config.boot, layers, config.dhcp.discovery) {
            return tracing::error!(%error, "{stays}");
        }
        self.engine.reload(Settings::from_config(&config, tools));
        if plan.now.iter().any(|key| key == "log.filter") && !self.logs.filter(&config.log.filter) {
            tracing::warn!("RUST_LOG is set and has priority over log.filter");
        }
        let manifests = config.manifests.clone();
        self.manifests.send_if_modified(|old| {
            let modified = *old != manifests;
            *old = manifests;
            modified
        });
        self.config = config;
        tracing::info!(changed = plan.now.join(", "), "the configuration was reloaded");
        if !plan.at_restart.is_empty() {
            tracing::warn!(keys = plan.at_restart.join(", "), "these changes need a restart");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_service_that_panics_ends_the_process() {
        let failed = CancellationToken::new();
        let panics = tokio::spawn(ending("the ticker", failed.clone(), async { panic!("on purpose") }));
        tokio::time::timeout(Duration::from_secs(60), failed.cancelled()).await.unwrap();
        panics.await.unwrap();
    }
}
