//! The coordinators' site: one coordinator after another over one store that outlives them all; one that has lost the store may still be
//! there beside the next.

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
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::flag::Flag;
use super::net::{ADDRESS, Incoming, Line, Net};
use super::store::{Fuse, View, behind};
use super::truth::Truth;

/// What the site needs besides its store.
#[derive(Clone)]
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

/// One life of a coordinator.
struct Life {
    /// Its number, by which the network knows it.
    number: u64,
    /// Everything it does; ends with it.
    tasks: JoinSet<()>,
    fuse: Arc<Fuse>,
    view: Arc<View>,
}

impl Site {
    /// Lives and crashes until the runtime ends; sometimes it is cut off from its store, and the next one takes its place while it goes on.
    pub(crate) async fn run(mut self) {
        let begun = (Timestamp::now(), Instant::now());
        let clock: Clock = Arc::new(move || begun.0 + begun.1.elapsed());
        let mut cut_off = JoinSet::new();
        for number in 1u64.. {
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
            let mut life = Life { number, tasks: JoinSet::new(), fuse, view };
            life.tasks.spawn(self.clone().live(number, store, clock.clone()));
            let until = if calm { u64::MAX >> 8 } else { 120 + self.chance.below(1200) };
            match self.end_of(&mut life, until).await {
                "crashed" if self.chance.percent(40) && self.engine.get().is_some() => {
                    let next = self.cut_off(&mut life).await;
                    let (site, rest) = (self.clone(), Duration::from_secs(self.chance.below(120)));
                    cut_off.spawn(async move {
                        drop(timeout(rest, site.calm.until(|calm| *calm)).await);
                        site.over(&life, Line::Cut);
                    });
                    sleep_until(next).await;
                }
                how => {
                    let line = if self.chance.percent(50) { Line::Cut } else { Line::Silent };
                    self.over(&life, line);
                    life.tasks.shutdown().await;
                    self.engine.set(None);
                    self.truth.saw(format!("coordinator {how}"));
                    self.truth.with(|known| known.crashes += 1);
                    life.view.lose_unwritten().await;
                    sleep(Duration::from_millis(500 + self.chance.below(40_000))).await;
                }
            }
        }
    }

    /// Waits for a life's end, and says how it ended.
    async fn end_of(&self, life: &mut Life, until: u64) -> &'static str {
        let quiet = self.calm.clone();
        let fuse = life.fuse.clone();
        let disarm = async {
            quiet.until(|calm| *calm).await;
            fuse.disarm();
            std::future::pending::<()>().await
        };
        let by_chance = sleep(Duration::from_secs(until));
        tokio::select! {
            biased;
            _ = life.tasks.join_next() => "ended",
            () = life.fuse.blown() => "crashed at the store",
            () = disarm => "",
            () = async { by_chance.await; if self.calm.get() { std::future::pending::<()>().await } } => "crashed",
        }
    }

    /// The life loses its store, and does not know it yet. Answers when the next one may begin: as PostgreSQL's store has it, once
    /// this one has been silent for 5 s.
    async fn cut_off(&mut self, life: &mut Life) -> Instant {
        let confirmed = Instant::now() - Duration::from_millis(self.chance.below(500));
        life.view.cut_off(confirmed).await;
        self.truth.saw("coordinator is cut off from its store");
        self.truth.with(|known| known.takeovers += 1);
        if let Some(engine) = self.engine.get() {
            life.tasks.spawn(async move { engine.sessions().let_go_in_doubt(CancellationToken::new()).await });
        }
        self.engine.set(None);
        confirmed + Duration::from_secs(5) + Duration::from_millis(self.chance.below(3000))
    }

    /// What is left of a life reaches neither store nor network.
    fn over(&self, life: &Life, line: Line) {
        life.fuse.blow();
        self.net.unplug_server(life.number, line);
    }

    async fn live(self, number: u64, store: Store, clock: Clock) {
        let started = Engine::start(store, settings(), clock, authority(), Arc::new(AllThere)).await;
        let engine = match started {
            Ok(engine) => engine,
            Err(problem) => return self.truth.violated(format!("the coordinator does not start: {problem}")),
        };
        self.truth.saw("coordinator is up");
        let incoming = self.net.listen(number);
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
