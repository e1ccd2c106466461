//! The coordinator's site: one coordinator after another over one store that outlives them all.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use axum::{Extension, Router};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;
use landfall_api::Problem;
use landfall_coordinator::config::Config;
use landfall_coordinator::engine::{Clock, Engine, Settings, SourceChecker};
use landfall_coordinator::pki::Pki;
use landfall_coordinator::tls::Peer;
use landfall_coordinator::{pki, session};
use landfall_sim::chance::Chance;
use landfall_store::Store;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::flag::Flag;
use super::net::{ADDRESS, Incoming, Line, Net};
use super::store::{Fuse, behind};
use super::truth::Truth;

/// What the site needs besides its store.
pub(crate) struct Site {
    pub(crate) store: Store,
    pub(crate) net: Net,
    pub(crate) truth: Truth,
    pub(crate) chance: Chance,
    pub(crate) calm: Flag<bool>,
    /// The coordinator that is up now.
    pub(crate) engine: Flag<Option<Engine>>,
}

/// One authority for every simulated site: creating one takes longer than a whole simulation, and nothing depends on
/// its key.
pub(crate) fn authority() -> Arc<Pki> {
    static AUTHORITY: OnceLock<Arc<Pki>> = OnceLock::new();
    let make = || {
        let directory = tempfile::tempdir().unwrap();
        Arc::new(Pki::open(directory.path(), ADDRESS.ip(), Duration::from_secs(7 * 24 * 3600)).unwrap())
    };
    AUTHORITY.get_or_init(make).clone()
}

/// Every image is there.
struct AllThere;

#[async_trait]
impl SourceChecker for AllThere {
    async fn check(&self, _: &landfall_api::Download) -> Result<(), Problem> {
        Ok(())
    }
}

fn settings() -> Settings {
    let config: Config = toml::from_str(
        "data_dir = \"/nowhere\"\nadvertise = \"10.77.0.1\"\n[boot]\nkernel = \"/k\"\ninitramfs = \"/i\"\n\
         [limits]\nlease = \"60s\"\nheartbeat = \"5s\"\n",
    )
    .unwrap();
    Settings::from_config(&config, Default::default())
}

impl Site {
    /// Lives and crashes until the runtime ends.
    pub(crate) async fn run(mut self) {
        let begun = (Timestamp::now(), Instant::now());
        let clock: Clock = Arc::new(move || begun.0 + begun.1.elapsed());
        loop {
            let calm = self.calm.get();
            // A third of the lives are long, and many end within the first operations.
            let left = match self.chance.below(3) {
                _ if calm => None,
                0 => Some(1 + self.chance.below(60)),
                1 => Some(1 + self.chance.below(400)),
                _ => None,
            };
            let fuse = Fuse::new(self.chance.split(), left);
            let (store, view) = behind(self.store.clone(), fuse.clone(), self.truth.clone());
            let quiet = self.calm.clone();
            let disarm = async {
                quiet.until(|calm| *calm).await;
                fuse.disarm();
                std::future::pending::<()>().await
            };
            let by_chance =
                sleep(Duration::from_secs(if calm { u64::MAX >> 8 } else { 120 + self.chance.below(1200) }));
            let how = tokio::select! {
                biased;
                () = self.live(store, clock.clone()) => "ended",
                () = fuse.blown() => "crashed at the store",
                () = disarm => "",
                () = async { by_chance.await; if self.calm.get() { std::future::pending::<()>().await } } => "crashed",
            };
            // Its remaining tasks must reach neither store nor network.
            let _still = fuse;
            let line = if self.chance.percent(50) { Line::Cut } else { Line::Silent };
            self.net.unplug_server(line);
            self.engine.set(None);
            self.truth.saw(format!("coordinator {how}"));
            self.truth.with(|known| known.crashes += 1);
            view.lose_unwritten().await;
            sleep(Duration::from_millis(500 + self.chance.below(40_000))).await;
        }
    }

    async fn live(&self, store: Store, clock: Clock) {
        let started = Engine::start(store, settings(), clock, authority(), Arc::new(AllThere)).await;
        let engine = match started {
            Ok(engine) => engine,
            Err(problem) => return self.truth.violated(format!("the coordinator does not start: {problem}")),
        };
        self.truth.saw("coordinator is up");
        let incoming = self.net.listen();
        self.engine.set(Some(engine.clone()));
        let mut tasks = JoinSet::new();
        let router = session::router(engine.clone());
        tasks.spawn(accept(router, incoming));
        tasks.spawn(async move { engine.upkeep().run_ticker(CancellationToken::new()).await });
        drop(tasks.join_next().await);
    }
}

async fn accept(router: Router, mut incoming: mpsc::Receiver<Incoming>) {
    let mut connections = JoinSet::new();
    while let Some(Incoming { stream, certificate }) = incoming.recv().await {
        while connections.try_join_next().is_some() {}
        let peer = certificate.map_or(Peer::Anonymous, |leaf| pki::peer_of(&leaf.into()).unwrap());
        let service = TowerToHyperService::new(router.clone().layer(Extension(peer)).layer(Extension(ADDRESS)));
        connections.spawn(async move {
            let mut server = auto::Builder::new(TokioExecutor::new());
            server.http2().timer(TokioTimer::new());
            // However it ends, both sides see it in their own way.
            drop(server.serve_connection(TokioIo::new(stream), service).await);
        });
    }
}
