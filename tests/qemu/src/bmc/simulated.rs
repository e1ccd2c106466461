//! The simulator of `tests/bmcsim`, with its quirks, on the lab's network.
//!
//! It runs in this program; only its port is in the network.

use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use landfall_bmcsim::{BmcSim, Hardware, Quirks, State, Switch};
use nix::sched::{CloneFlags, setns};

use crate::bmc::Systems;
use crate::{LabError, Log, Machine, Network};

/// A BMC that does otherwise than it should, and its machine, which is off at first.
pub struct Simulated {
    // Dropped in this order: no request is under way when the machine ends.
    bmc: BmcSim,
    systems: Arc<Systems>,
}

impl Simulated {
    /// How a request that changes the power ends, among those that it has seen.
    pub const RESET: &str = "/Actions/ComputerSystem.Reset";

    /// Starts it beside the coordinator, in front of this machine, over Redfish with TLS; what it asks of the machine goes to
    /// `<dir>/simulated.log`.
    ///
    /// # Errors
    /// [`LabError`] if there is no port for it.
    pub fn start(quirks: Quirks, machine: Machine, network: &Network, dir: &Path) -> Result<Self, LabError> {
        let log = Log::open(&dir.join("simulated.log"))?;
        let systems = Arc::new(Systems::start(vec![machine], dir, &log)?);
        let failed = LabError::file("cannot listen in", network.namespace().file());
        let listener = listen(network).and_then(tokio::net::TcpListener::from_std).map_err(failed)?;
        let wires = Wires { systems: Arc::downgrade(&systems), log };
        Ok(Self { bmc: BmcSim::start_before(Arc::new(wires), listener, quirks), systems })
    }

    /// What it does and what it has seen.
    pub fn bmc(&self) -> &BmcSim {
        &self.bmc
    }

    /// Waits until it has seen something. `limit` is the whole of it, on any host.
    ///
    /// # Errors
    /// [`LabError::Timeout`] with its last requests.
    pub async fn wait(&self, what: &str, limit: Duration, wanted: impl Fn(&State) -> bool) -> Result<(), LabError> {
        let reached = tokio::time::timeout(limit, self.bmc.reaches(wanted)).await;
        reached.map_err(|_| {
            let mut tail = self.bmc.seen().requests;
            tail.drain(..tail.len().saturating_sub(12));
            LabError::Timeout { what: format!("{what}, at the BMC"), limit, tail }
        })
    }

    /// The one machine.
    pub fn systems(&self) -> &Systems {
        &self.systems
    }
}

/// A port in the network. A thread is in a network alone, and what it opens stays there.
fn listen(network: &Network) -> std::io::Result<TcpListener> {
    let file = File::open(network.namespace().file())?;
    let opens = move || {
        setns(file, CloneFlags::CLONE_NEWNET)?;
        let listener = TcpListener::bind((Network::ADDRESS, 0))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    let thread = std::thread::Builder::new().name("inside".into()).spawn(opens)?;
    thread.join().unwrap_or_else(|_| Err(std::io::Error::other("the thread in the network panicked")))
}

/// From the BMC to the one machine, which may be gone while the last request is answered.
#[derive(Debug)]
struct Wires {
    systems: Weak<Systems>,
    log: Log,
}

impl Wires {
    fn work(&self, what: &str, on: impl FnOnce(&Systems) -> Result<(), String>) {
        let Some(systems) = self.systems.upgrade() else { return };
        let result = on(&systems).map_or_else(|error| format!("refused: {error}"), |()| "taken".into());
        self.log.append(format!("lab: {what}: {result}\n").as_bytes());
    }
}

impl Hardware for Wires {
    fn is_on(&self) -> bool {
        self.systems.upgrade().is_some_and(|systems| systems.is_on(0))
    }

    fn switch(&self, switch: Switch) {
        let kind = match switch {
            Switch::On => "On",
            Switch::Off => "ForceOff",
            Switch::Button => "GracefulShutdown",
        };
        self.work(kind, |systems| systems.reset(0, kind));
    }

    fn set_boot(&self, target: &str, enabled: &str) {
        self.work(&format!("{target}, {enabled}"), |systems| systems.override_boot(0, target, enabled));
    }
}
