//! The session: one control stream at a time, opened again for ever with bounded waits.
//!
//! This file decides when to connect and when to stop; `stream` holds what happens on one connection, and `looks` what is reported
//! of the machine meanwhile.

mod looks;
mod stream;

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use landfall_api::message::{DiskReport, Identity, Vitals};
use landfall_api::{DiskId, DiskReceipt, MachineFacts, Problem};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Backoff, Connection, Credentials, Instruction, Surroundings, Target, shared::Shared};

/// Waits between connections.
const RETRY_FIRST: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(15);
/// A coordinator that is started again is back in seconds: for so long after a loss
const SOON: Duration = Duration::from_secs(60);
/// an agent waits no longer than this.
const RETRY_MAX_SOON: Duration = Duration::from_secs(3);
/// A connection that lived this long was a good one: the next wait is short again.
const GOOD_CONNECTION: Duration = Duration::from_secs(5);
/// The longest wait, even if a refusing coordinator requests more.
const REFUSED_MAX: Duration = Duration::from_secs(600);
/// Instructions not yet taken by the agent. It gets a few per workflow; more means that it does not read them.
const INSTRUCTIONS: usize = 64;

/// What a session needs to know.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// Where the coordinator is.
    pub target: Target,
    /// From [`crate::enroll`].
    pub credentials: Credentials,
    /// The agent's own version.
    pub software: String,
    /// The same as enrolled with.
    pub identity: Identity,
    /// `/proc/sys/kernel/random/boot_id`
    pub boot_id: String,
    /// [`crate::boot_time`] when the Enroll answer arrived.
    pub enrolled_at: Duration,
}

/// What the session needs from the machine. Nothing here may block a thread of the runtime.
pub trait Host: Send + Sync + 'static {
    /// Looks at the machine: for each hello, and again after [`Host::changed`]. Ends in bounded time, also where a disk
    /// hangs.
    fn look(&self) -> Looking<'_>;
    /// The same while the agent works on a list: without questions that a busy disk answers late.
    fn glance(&self) -> Looking<'_> {
        self.look()
    }
    /// Waits until the disks are others than `seen` says, or are all known where `seen` says that the buses are still being
    /// scanned. Pending for ever where the disks never change.
    fn changed<'a>(&'a self, _seen: &'a Seen) -> Changing<'a> {
        Box::pin(std::future::pending())
    }
    /// Waits until there are facts besides the disks that `facts` do not have: all of them, as they are then. Pending for ever where
    /// there never are.
    fn news<'a>(&'a self, _facts: &'a MachineFacts) -> News<'a> {
        Box::pin(std::future::pending())
    }
    /// For each heartbeat.
    fn vitals(&self) -> Vitals;
}

/// A look at the machine that is under way.
pub type Looking<'a> = Pin<Box<dyn Future<Output = Seen> + Send + 'a>>;
/// A wait for other disks.
pub type Changing<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A wait for other facts.
pub type News<'a> = Pin<Box<dyn Future<Output = MachineFacts> + Send + 'a>>;

/// What a look at the machine found.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Its disks. While the buses are being scanned: those found up to now, without receipts.
    pub disks: DiskReport,
    /// The buses are still being scanned.
    pub scanning: bool,
    /// Facts.
    pub facts: MachineFacts,
}

impl Seen {
    /// Disks that never change and what they carry, with facts that say nothing.
    pub fn disks(disks: Vec<DiskId>, receipts: Vec<DiskReceipt>) -> Self {
        let disks = DiskReport { generation: 1, disks, receipts, unreadable: Vec::new() };
        Self { disks, scanning: false, facts: MachineFacts::default() }
    }

    /// A look that ends at once with this.
    pub fn at_once<'a>(self) -> Looking<'a> {
        Box::pin(std::future::ready(self))
    }
}

/// What stays the same over all connections.
pub(crate) struct Runner {
    config: SessionConfig,
    host: Arc<dyn Host>,
    world: Surroundings,
    pub(crate) shared: Arc<Shared>,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner").field("config", &self.config).finish_non_exhaustive()
    }
}

/// How one connection, or the try at it, ended.
enum Outcome {
    /// Try again.
    Lost(Problem),
    /// The coordinator said no; try again only if it said when.
    Refused(Problem, Option<Duration>),
    /// A newer session owns the machine.
    Fenced,
    /// The agent wants no more.
    Closed,
    /// There is a new certificate; the connection is opened again with it.
    Renewed(Credentials),
}

/// The way to the agent.
struct Instructions(mpsc::Sender<Instruction>);

/// The receiver of instructions has gone.
enum Deaf {
    Gone,
    Full,
}

impl Instructions {
    fn give(&self, instruction: Instruction) -> Result<(), Deaf> {
        self.0.try_send(instruction).map_err(|error| match error {
            TrySendError::Closed(_) => Deaf::Gone,
            TrySendError::Full(_) => Deaf::Full,
        })
    }
}

impl Runner {
    pub(crate) fn new(config: SessionConfig, host: Arc<dyn Host>, world: Surroundings) -> Self {
        let shared = Arc::new(Shared::new(world.clock.clone()));
        Self { config, host, world, shared }
    }

    pub(crate) fn spawn(
        self: Arc<Self>, credentials: Credentials, closing: CancellationToken, runtime: &Handle,
    ) -> mpsc::Receiver<Instruction> {
        let (out, instructions) = mpsc::channel(INSTRUCTIONS);
        runtime.spawn(async move {
            self.run(credentials, &closing, &Instructions(out)).await;
            self.shared.connection.send_replace(Connection::Ended);
        });
        instructions
    }

    async fn run(&self, mut credentials: Credentials, closing: &CancellationToken, agent: &Instructions) {
        let (mut backoff, mut soon) = (Backoff::new(RETRY_FIRST, RETRY_MAX), Backoff::new(RETRY_FIRST, RETRY_MAX_SOON));
        // The end of the last good connection.
        let mut lost = Instant::now();
        loop {
            self.shared.connection.send_replace(Connection::Connecting);
            let begun = Instant::now();
            let outcome = self.connection(&credentials, closing, agent).await;
            // However its connection ended: the machine is a newer session's, which another hello would fence in turn.
            if self.shared.lock().fenced {
                return;
            }
            // Not one that took as long to fail.
            let was_welcomed = matches!(*self.shared.connection.borrow(), Connection::Connected { .. });
            if was_welcomed && begun.elapsed() >= GOOD_CONNECTION {
                backoff.reset();
                soon.reset();
                lost = Instant::now();
            }
            let waits = if lost.elapsed() < SOON { &mut soon } else { &mut backoff };
            let mut wait = || waits.step_by((self.world.chance)());
            let (problem, retry_in) = match outcome {
                Outcome::Lost(problem) => (problem, wait()),
                Outcome::Refused(problem, retry_after) => {
                    tracing::warn!(%problem, "the coordinator refuses the session");
                    let given = agent.give(Instruction::Refused { problem: problem.clone(), retry_after });
                    let Some(after) = retry_after else { return };
                    if matches!(given, Err(Deaf::Gone)) {
                        return;
                    }
                    (problem, after.min(REFUSED_MAX) + wait())
                }
                Outcome::Renewed(renewed) => {
                    tracing::info!("the certificate was renewed");
                    credentials = renewed;
                    continue;
                }
                Outcome::Fenced | Outcome::Closed => return,
            };
            tracing::warn!(%problem, ?retry_in, "no session with the coordinator");
            self.shared.connection.send_replace(Connection::Disconnected { problem, retry_in });
            tokio::select! {
                biased;
                () = closing.cancelled() => return,
                () = agent.0.closed() => return,
                () = tokio::time::sleep(retry_in) => {}
            }
        }
    }
}
