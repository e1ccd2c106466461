//! The engine: the only writer of status. It applies the pure state machine to stored documents, one machine at a
//! time, and carries out what it asks for.
//!
//! Everything that changes a machine or its run happens under that machine's lock, in one order: the event is made
//! durable, the state machine steps, the new status is stored by compare-and-swap, and only then effects go out. A
//! crash between any two of these is mended at the start by replaying the log from where the status stands.

mod admission;
mod alarm;
mod approve;
mod assign;
mod authority;
mod boot;
mod certificates;
mod clock_set;
mod control;
mod discover;
mod documents;
mod drive;
mod enroll;
mod events;
mod horizon;
mod identity;
mod index;
mod life;
mod live;
mod logs;
mod measure;
mod orphans;
mod provision;
mod queue;
mod redact;
mod replay;
mod retention;
mod rules;
mod secrets;
mod sessions;
mod shorten;
mod source;
mod tail;
mod telemetry;
#[cfg(test)]
mod tests;
mod ticker;
mod tokens;
mod types;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use landfall_api::Problem;
use landfall_machine::{Horizon, Limits, Now, Steady, derive, has_begun, is_open};
use landfall_proto::OLDEST_PROTOCOL;
use tokio::time::Instant;

pub use authority::{CertificateAuthority, IssuedCertificate};
pub use sessions::Opened;
pub use source::{HttpSources, SourceChecker};
pub use types::*;

use crate::config::{Config, DiscoveryConfig};
pub(crate) use horizon::forget_last_beat;
use index::Index;
use landfall_edge::metrics::metrics;
use landfall_store::Store;
use live::Machines;
use logs::Logs;
use orphans::TakenBack;
use secrets::Vault;
use tail::Tails;
use telemetry::Waiting;
use tokens::Tokens;

/// Where the engine reads the time; a test's own clock stands in for it.
pub type Clock = Arc<dyn Timepiece>;

/// Two clocks: the wall's, and one that is never set.
pub trait Timepiece: Send + Sync {
    /// By the wall's clock.
    fn wall(&self) -> Timestamp;

    /// By a clock that is never set and never goes back.
    fn steady(&self) -> Instant {
        Instant::now()
    }
}

impl<F: Fn() -> Timestamp + Send + Sync> Timepiece for F {
    fn wall(&self) -> Timestamp {
        self()
    }
}

/// What of the configuration the engine goes by.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long an agent may act unheard.
    pub lease: Duration,
    /// Between heartbeats.
    pub heartbeat: Duration,
    /// From the boot script to the enrolment.
    pub boot_token_ttl: Duration,
    /// How long a machine's certificate is good for.
    pub certificate_ttl: Duration,
    /// From the reboot to the phone-home, where the template names none.
    pub phone_home_deadline: Duration,
    /// From the request of a workflow to its machine's agent.
    pub netboot_deadline: Duration,
    /// Where installed systems phone home.
    pub phone_home_url: String,
    /// How many installs run at once; at least 1.
    pub parallel_installs: usize,
    /// Which machines may be discovered.
    pub discovery: DiscoveryConfig,
}

impl Settings {
    /// As configured.
    pub fn from_config(config: &Config) -> Self {
        Self {
            lease: config.limits.lease.get(),
            heartbeat: config.limits.heartbeat.get(),
            boot_token_ttl: config.limits.boot_token_ttl.get(),
            certificate_ttl: config.limits.certificate_ttl.get(),
            phone_home_deadline: config.limits.phone_home_deadline.get(),
            netboot_deadline: config.limits.netboot_deadline.get(),
            phone_home_url: format!("{}/phone-home", config.tls_url()),
            parallel_installs: config.limits.parallel_installs as usize,
            discovery: config.discovery.clone(),
        }
    }
}

/// The engine. Cloning it shares it.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    /// A reload replaces them while they are read.
    settings: ArcSwap<Settings>,
    clock: Clock,
    authority: Arc<dyn CertificateAuthority>,
    sources: Arc<dyn SourceChecker>,
    index: Mutex<Index>,
    machines: Machines,
    logs: Logs,
    alarms: alarm::Alarms,
    /// Counts revocations of certificates.
    revoked: tokio::sync::watch::Sender<u64>,
    /// One machine's identity is written at a time: two documents never get one address, and two asks of one computer make
    /// one document. Taken before a machine's own lock, never under it.
    identity: tokio::sync::Mutex<()>,
    tails: Tails,
    waiting: Waiting,
    taken_back: TakenBack,
    /// When this process started.
    begun: Instant,
    /// When the last tick ended, in milliseconds after [`Self::begun`].
    ticked: AtomicU64,
    horizon: Horizon,
    /// When it was last noted that this coordinator is there.
    beat: Mutex<Option<Timestamp>>,
    vault: Vault,
    tokens: Tokens,
}

impl Engine {
    /// An engine over a store; replays what a crash left between the log and the statuses.
    ///
    /// # Errors
    /// [`Problem`] if the store cannot be read.
    pub async fn start(
        store: Store,
        settings: Settings,
        clock: Clock,
        authority: Arc<dyn CertificateAuthority>,
        sources: Arc<dyn SourceChecker>,
    ) -> Result<Self, Problem> {
        let mut index = Index::new(settings.parallel_installs.max(1));
        let machines = store.machines().await?;
        for machine in &machines {
            index.put_machine(machine);
        }
        let (started, begun) = (clock.wall(), clock.steady());
        let (workflows, waiting) = (store.workflows().await?, Waiting::default());
        for workflow in &workflows {
            index.put_workflow(workflow);
            waiting.follow(workflow, started);
        }
        let lease = settings.lease;
        // A store without a machine has missed nothing of any.
        let as_of = Self::last_beat(&store, started).await?.or(machines.is_empty().then_some(started));
        let horizon = Horizon { as_of, started, lease };
        let vault = Vault::new(store.clone(), clock.clone());
        let tokens = Tokens::new(store.clone(), clock.clone());
        let engine = Self {
            inner: Arc::new(Inner {
                store,
                settings: ArcSwap::from_pointee(settings),
                clock,
                authority,
                sources,
                index: Mutex::new(index),
                machines: Machines::default(),
                logs: Logs::default(),
                alarms: alarm::Alarms::default(),
                revoked: tokio::sync::watch::Sender::new(0),
                identity: tokio::sync::Mutex::default(),
                tails: Tails::default(),
                waiting,
                taken_back: TakenBack::default(),
                begun,
                ticked: AtomicU64::new(0),
                horizon,
                beat: Mutex::default(),
                vault,
                tokens,
            }),
        };
        engine.drop_orphans(&workflows).await?;
        engine.end_starts(&machines).await?;
        engine.tell_of_the_start(&workflows).await?;
        // Only now: after a crash in between the same state must be found again.
        engine.beat().await?;
        for workflow in workflows {
            if is_open(&workflow) && has_begun(&workflow) {
                engine.catch_up(&workflow).await?;
            }
        }
        Ok(engine)
    }

    fn now(&self) -> Timestamp {
        self.inner.clock.wall()
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        // Every change of the index is a single insertion or removal, so a poisoned lock is still good.
        self.inner.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This moment, by both clocks.
    fn moment(&self) -> Now {
        let passed = self.inner.clock.steady().saturating_duration_since(self.inner.begun);
        Now { wall: self.now(), steady: Steady::after_start(passed) }
    }

    /// The time since the last tick ended, or since the start before the first.
    pub fn since_last_tick(&self) -> Duration {
        let last = Steady::after_start(Duration::from_millis(self.inner.ticked.load(Ordering::Relaxed)));
        self.moment().steady.since(last)
    }

    /// A tick has ended, well or not.
    fn ticked(&self) {
        let moment = self.moment();
        let passed = u64::try_from(moment.steady.since(Steady::START).as_millis()).unwrap_or(u64::MAX);
        self.inner.ticked.store(passed, Ordering::Relaxed);
        metrics().ticked.set(moment.wall.as_second());
    }

    /// What a step goes by.
    fn limits(&self) -> Limits {
        let settings = self.inner.settings.load();
        Limits {
            lease: settings.lease,
            heartbeat: settings.heartbeat,
            phone_home_deadline: settings.phone_home_deadline,
            netboot_deadline: settings.netboot_deadline,
            oldest_protocol: OLDEST_PROTOCOL,
            horizon: self.inner.horizon,
        }
    }

    /// The time, by the engine's clock.
    pub fn time(&self) -> Timestamp {
        self.now()
    }

    /// Makes an entry of the audit log.
    pub async fn audit(&self, note: landfall_store::audit::Note) {
        self.inner.store.audit().note(self.now(), note).await;
    }

    /// The settings it goes by.
    pub fn settings(&self) -> Arc<Settings> {
        self.inner.settings.load_full()
    }

    /// Goes by others from now on. What was already promised (a lease, a deadline) stands.
    pub fn reload(&self, settings: Settings) {
        // Where there is more room now, the next tick lets the next begin.
        self.index().admission.allow(settings.parallel_installs);
        self.inner.settings.store(Arc::new(settings));
    }
}
