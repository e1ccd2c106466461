//! `landfall-coordinator`: flags, construction, signals, drain.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};
use jiff::Timestamp;
use landfall_coordinator::{
    boot,
    config::Config,
    engine::{Engine, HttpSources, Settings},
    operator,
    operator::LocalListener,
    pki::Pki,
    session,
    state::Coordinator,
    store::Store,
    tls,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// After the signal, requests under way have so long to end. Agents' sessions never end by themselves; they come back.
const DRAIN: Duration = Duration::from_secs(3);

/// Brings bare metal ashore: documents, workflows, sessions and boot services in one process.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Arguments {
    /// The configuration file, TOML.
    #[arg(long, env = "LANDFALL_CONFIG", default_value = "/etc/landfall/coordinator.toml")]
    config: PathBuf,
    /// Checks the configuration and the files it names, and ends.
    #[arg(long)]
    check: bool,
    /// How log lines are written to standard error. RUST_LOG chooses which; default: info.
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let config = Config::load(&arguments.config)?;
    config.check_files()?;
    if arguments.check {
        println!("{} is fine", arguments.config.display());
        return Ok(());
    }
    start_logging(arguments.log_format);
    // `Err` means that it is installed already.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Runtime::new().context("cannot start the runtime")?.block_on(run(config))
}

fn start_logging(format: LogFormat) {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    match format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().init(),
    }
}

async fn run(config: Config) -> Result<()> {
    let store = Store::open(&config.data_dir)?;
    let pki = Arc::new(Pki::open(&config.data_dir, config.advertise.into(), config.limits.certificate_ttl.get())?);
    let sources = Arc::new(HttpSources::new()?);
    let clock = Arc::new(Timestamp::now);
    let engine = Engine::start(store.clone(), Settings::from_config(&config), clock, pki.clone(), sources).await?;
    let coordinator = Arc::new(Coordinator { config: config.clone(), store, engine: engine.clone(), pki: pki.clone() });

    let boot = boot::engine::start(coordinator.clone()).await?;
    let tls_config = tls::server_config(&pki)?;
    let listener = tls::TlsListener::bind(config.tls.listen, tls_config)
        .await
        .with_context(|| format!("cannot listen on {}; is another program using the port?", config.tls.listen))?;
    let local = LocalListener::bind(&config.api_socket()).await?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;

    let (stop, failed, tasks) = (CancellationToken::new(), CancellationToken::new(), TaskTracker::new());
    let api = operator::router(coordinator.clone());
    let app = tls::service(session::router(engine.clone()).merge(api.clone()));
    tracing::info!(
        tls = %config.tls.listen, http = %config.http.listen, socket = %config.api_socket().display(),
        advertise = %config.advertise, ca = %pki.ca_pin(), "ready"
    );
    let graceful = stop.clone().cancelled_owned();
    let serve_tls = async move { axum::serve(listener, app).with_graceful_shutdown(graceful).await };
    // Whichever service ends first ends all: half a coordinator helps nobody.
    tasks.spawn(ending("the TLS port", failed.clone(), async { Ok(serve_tls.await?) }));
    let (token, drain) = (stop.clone(), stop.clone());
    tasks.spawn(ending("the boot services", failed.clone(), async move { Ok(boot.run(token).await?) }));
    tasks.spawn(ending("the API's socket", failed.clone(), async move { Ok(local.serve(api, drain).await?) }));
    let token = stop.clone();
    tasks.spawn(async move { engine.run_ticker(token).await });
    tasks.close();

    let outcome = tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        () = failed.cancelled() => Err(anyhow::anyhow!("a service ended; the log says why")),
    };
    tracing::info!("draining");
    stop.cancel();
    if tokio::time::timeout(DRAIN, tasks.wait()).await.is_err() {
        tracing::info!("sessions were still open; their agents come back to the next start");
    }
    outcome
}

async fn ending(name: &'static str, failed: CancellationToken, service: impl Future<Output = Result<()>>) {
    if let Err(error) = service.await {
        tracing::error!(error = format!("{error:#}"), "{name} failed");
    }
    failed.cancel();
}
