//! The coordinators' site: one coordinator after another over one store that outlives them all; one that has lost the store may still be
//! there beside the next. Or several over one database, each with its own troubles ([`super::trouble`]).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use axum::{Extension, Router};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;
use landfall_api::{ErrorCode, Problem};
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

use super::database::{Database, Link, Seat};
use super::flag::Flag;
use super::lead::Candidate;
use super::net::{ADDRESS, Incoming, Line, Net};
use super::store::{Fuse, View, behind};
use super::trouble::{Troubled, WallClock};
use super::truth::Truth;
use super::up::Up;

/// What the site needs.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) database: Database,
    pub(crate) net: Net,
    pub(crate) truth: Truth,
    pub(crate) chance: Chance,
    pub(crate) calm: Flag<bool>,
    /// The coordinators that are up now.
    pub(crate) up: Up,
    /// Its place among several, and its URL.
    pub(crate) own: Option<(u64, Arc<str>)>,
    pub(crate) parallel_installs: usize,
    /// When its world began.
    pub(crate) begun: (Timestamp, Instant),
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

fn settings(own: Option<Arc<str>>, parallel_installs: usize) -> Settings {
    let config: Config = toml::from_str(
        "data_dir = \"/nowhere\"\nadvertise = \"10.77.0.1\"\n[boot]\nkernel = \"/k\"\ninitramfs = \"/i\"\n\
         [limits]\nlease = \"60s\"\nheartbeat = \"5s\"\n",
    )
    .unwrap();
    Settings { own, parallel_installs, ..Settings::from_config(&config, Default::default()) }
}

/// One life of a coordinator.
struct Life {
    /// Its number, by which the network knows it.
    number: u64,
    /// Everything it does; ends with it.
    tasks: JoinSet<()>,
    /// What befalls it meanwhile.
    troubles: JoinSet<()>,
    fuse: Arc<Fuse>,
    view: Arc<View>,
    link: Link,
    /// Its session with the database, where it is one of several.
    seat: Option<Seat>,
    /// True while it is cut off from all computers.
    apart: Flag<bool>,
}

impl Site {
    /// The same site with a coordinator at another place.
    pub(crate) fn beside_others(&self, place: u64, chance: Chance) -> Self {
        let own = Some((place, format!("https://10.77.0.{place}:7443").into()));
        Self { own, chance, ..self.clone() }
    }

    /// Lives and crashes until the runtime ends; sometimes it is cut off from its store, and the next one takes its place while it goes on.
    pub(crate) async fn run(mut self) {
        let wall = WallClock::new(self.begun);
        let mut cut_off = JoinSet::new();
        for number in self.own.as_ref().map_or(0, |(place, _)| place * 1_000_000) + 1.. {
            let calm = self.calm.get();
            // A third of the lives are long, and many end within the first operations.
            let left = match self.chance.below(3) {
                _ if calm => None,
                0 => Some(1 + self.chance.below(60)),
                1 => Some(1 + self.chance.below(400)),
                _ => None,
            };
            let fuse = Fuse::new(self.chance.split(), left);
            let (link, apart) = (Link::new(), Flag::new(false));
            let seat = self.own.as_ref().map(|(_, url)| {
                let (url, link, over) = (url.clone(), link.clone(), fuse.blown.clone());
                Seat { life: number, url, link, over }
            });
            while let Some(seat) = &seat
                && !self.database.come(seat)
            {
                sleep(Duration::from_secs(1)).await;
            }
            let url = seat.as_ref().map(|seat| seat.url.clone());
            let (store, view) = behind(&self.database, url, fuse.clone(), link.clone(), self.truth.clone());
            let mut life =
                Life { number, tasks: JoinSet::new(), troubles: JoinSet::new(), fuse, view, link, seat, apart };
            life.begin(&mut self, store, &wall);
            let until = if calm { u64::MAX >> 8 } else { 120 + self.chance.below(1200) };
            match self.end_of(&mut life, until).await {
                "crashed" if self.own.is_none() && self.chance.percent(40) && self.up.of(number).is_some() => {
                    let next = self.cut_off(&mut life);
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
                    life.troubles.shutdown().await;
                    self.up.remove(number);
                    self.truth.saw(format!("coordinator {number} {how}"));
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
    fn cut_off(&mut self, life: &mut Life) -> Instant {
        let confirmed = Instant::now() - Duration::from_millis(self.chance.below(500));
        life.link.cut(confirmed);
        self.truth.saw("coordinator is cut off from its store");
        self.truth.with(|known| known.takeovers += 1);
        if let Some(engine) = self.up.of(life.number) {
            life.tasks.spawn(async move { engine.sessions().let_go_in_doubt(CancellationToken::new()).await });
        }
        self.up.remove(life.number);
        confirmed + Duration::from_secs(5) + Duration::from_millis(self.chance.below(3000))
    }

    /// What is left of a life reaches neither store nor network.
    fn over(&self, life: &Life, line: Line) {
        life.fuse.blow();
        life.apart.set(false);
        self.net.unplug_server(life.number, line);
        match line {
            Line::Silent => self.database.silent(life.number),
            _ => self.database.gone(life.number),
        }
    }

    async fn live(self, life: Begun, store: Store, clock: Clock) {
        let settings = settings(life.seat.as_ref().map(|seat| seat.url.clone()), self.parallel_installs);
        let started = Engine::start(store, settings, clock, authority(), Arc::new(AllThere)).await;
        let engine = match started {
            Ok(engine) => engine,
            // The database cannot be reached: it is started again.
            Err(problem) if life.seat.is_some() && problem.code == ErrorCode::StoreUnavailable => return,
            Err(problem) => return self.truth.violated(format!("the coordinator does not start: {problem}")),
        };
        self.truth.saw(format!("coordinator {} is up", life.number));
        let incoming = self.net.listen(life.number, life.apart);
        self.up.add(life.number, engine.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(session::router(engine.clone()), incoming));
        if let Some(seat) = life.seat {
            let (others, doubts) = (engine.clone(), engine.clone());
            tasks.spawn(async move { others.others().follow(CancellationToken::new()).await });
            tasks.spawn(async move { doubts.sessions().let_go_in_doubt(CancellationToken::new()).await });
            let candidate = Candidate { seat, database: self.database.clone(), truth: self.truth.clone() };
            tasks.spawn(candidate.run(engine.clone()));
        }
        tasks.spawn(async move { engine.upkeep().run_ticker(CancellationToken::new()).await });
        drop(tasks.join_next().await);
    }
}

/// What a life begins with.
struct Begun {
    number: u64,
    seat: Option<Seat>,
    apart: Flag<bool>,
}

impl Life {
    fn begin(&mut self, site: &mut Site, store: Store, wall: &WallClock) {
        let (number, seat, apart) = (self.number, self.seat.clone(), self.apart.clone());
        if let Some(seat) = seat.clone() {
            let (view, truth) = (self.view.clone(), site.truth.clone());
            self.tasks.spawn(async move { view.follow().await });
            let troubled = Troubled { seat, database: site.database.clone(), apart: apart.clone(), truth };
            let (wall, calm, chance) = (wall.clone(), site.calm.clone(), site.chance.split());
            self.troubles.spawn(troubled.run(wall, calm, chance));
        }
        self.tasks.spawn(site.clone().live(Begun { number, seat, apart }, store, Arc::new(wall.clone())));
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
