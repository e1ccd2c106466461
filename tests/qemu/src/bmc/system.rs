//! One machine and its power switch, as a BMC has them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, broadcast, mpsc, watch};
use tokio::task::JoinSet;

use crate::machine::{set_cd, set_netboot};
use crate::{LabError, Log, Machine};

/// A BMC answers before it acts; so a client that takes the answer for the deed is found out.
const LAG: Duration = Duration::from_secs(2);
/// How long QEMU may take to end once its guest has: it writes out its disks.
const END_LIMIT: Duration = Duration::from_secs(60);

/// What a client asks of the power switch, by Redfish's names.
#[derive(Debug, Clone, Copy)]
enum Reset {
    On,
    ForceOff,
    GracefulShutdown,
    ForceRestart,
    GracefulRestart,
}

/// What comes before the disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    Network,
    /// The virtual CD, if a medium is in it.
    Cd,
}

/// For how many starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Starts {
    Once,
    Continuous,
}

/// What the BMC reads back.
#[derive(Debug, Clone, Default)]
struct State {
    on: bool,
    first: Option<(First, Starts)>,
    /// The medium in the virtual CD drive.
    medium: Option<PathBuf>,
}

/// How QEMU ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The guest, or the reset button, wants another start.
    Reset,
    Off,
}

#[derive(Debug)]
pub(super) struct System {
    uuid: String,
    name: String,
    log: Log,
    machine: Arc<Mutex<Machine>>,
    state: watch::Sender<State>,
    resets: mpsc::UnboundedSender<Reset>,
}

impl System {
    /// A machine that is off, and a task that works its switch.
    pub(super) fn new(machine: Machine, log: &Log, tasks: &mut JoinSet<()>) -> Self {
        let (resets, wanted) = mpsc::unbounded_channel();
        let (uuid, name) = (machine.spec().uuid.clone(), machine.name().to_owned());
        let (machine, state) = (Arc::new(Mutex::new(machine)), watch::Sender::new(State::default()));
        let switch = Switch {
            machine: Arc::clone(&machine),
            state: state.clone(),
            events: None,
            restarts: false,
            log: log.clone(),
            name: name.clone(),
        };
        tasks.spawn(switch.work(wanted));
        Self { uuid, name, log: log.clone(), machine, state, resets }
    }

    pub(super) fn uuid(&self) -> &str {
        &self.uuid
    }

    pub(super) async fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().await
    }

    pub(super) fn is_on(&self) -> bool {
        self.state.borrow().on
    }

    /// What the BMC reads back.
    pub(super) fn read(&self) -> Value {
        let State { on, first, .. } = self.state.borrow().clone();
        let boot = match first {
            Some((First::Network, _)) => "Pxe",
            Some((First::Cd, _)) => "Cd",
            None => "Hdd",
        };
        json!({ "power": if on { "On" } else { "Off" }, "boot": boot })
    }

    pub(super) async fn wait_power(&self, on: bool, limit: Duration) -> Result<(), LabError> {
        let mut state = self.state.subscribe();
        let reached = tokio::time::timeout(limit, state.wait_for(|state| state.on == on)).await;
        // The sender is this system's own, so the wait itself does not fail.
        reached.map(drop).map_err(|_| LabError::Timeout {
            what: format!("{} to be {}", self.name, if on { "on" } else { "off" }),
            limit,
            tail: self.log.tail(12),
        })
    }

    /// Passes a wish for the power switch on; why not, otherwise.
    pub(super) fn reset(&self, kind: &str) -> Result<(), String> {
        let reset = match kind {
            "On" | "ForceOn" => Reset::On,
            "ForceOff" => Reset::ForceOff,
            "GracefulShutdown" => Reset::GracefulShutdown,
            "ForceRestart" => Reset::ForceRestart,
            "GracefulRestart" => Reset::GracefulRestart,
            other => return Err(format!("this machine knows no ResetType {other}")),
        };
        self.resets.send(reset).map_err(|_| format!("the switch of {} is gone", self.name))
    }

    /// What the next start, or each, begins with.
    pub(super) fn override_boot(&self, target: &str, enabled: &str) -> Result<(), String> {
        let first = first(target, enabled)?;
        self.state.send_modify(|state| state.first = first);
        Ok(())
    }

    /// Puts a medium into the virtual CD drive, or takes it out. A machine sees it where the next start is from it.
    pub(super) fn insert(&self, medium: Option<&str>) {
        self.state.send_modify(|state| state.medium = medium.map(PathBuf::from));
    }
}

/// What an override, in Redfish's words, puts first, and for how many starts. Without one the machine starts from its disks.
fn first(target: &str, enabled: &str) -> Result<Option<(First, Starts)>, String> {
    let unknown = || format!("this machine cannot boot from {target}, {enabled}");
    let first = match target {
        _ if enabled == "Disabled" => return Ok(None),
        "None" | "Hdd" => return Ok(None),
        "Pxe" => First::Network,
        "Cd" => First::Cd,
        _ => return Err(unknown()),
    };
    match enabled {
        "Once" => Ok(Some((first, Starts::Once))),
        "Continuous" => Ok(Some((first, Starts::Continuous))),
        _ => Err(unknown()),
    }
}

/// What is left of an override.
fn after_a_start(first: Option<(First, Starts)>) -> Option<(First, Starts)> {
    first.filter(|(_, starts)| *starts == Starts::Continuous)
}

/// What works a machine's switch.
struct Switch {
    machine: Arc<Mutex<Machine>>,
    state: watch::Sender<State>,
    /// QEMU's, while the machine is on.
    events: Option<broadcast::Receiver<Value>>,
    /// Once the guest has turned itself off, the machine is to start again.
    restarts: bool,
    log: Log,
    name: String,
}

impl Switch {
    async fn work(mut self, mut wanted: mpsc::UnboundedReceiver<Reset>) {
        loop {
            let (what, done) = tokio::select! {
                reset = wanted.recv() => {
                    let Some(reset) = reset else { return };
                    tokio::time::sleep(LAG).await;
                    (format!("{reset:?}"), self.carry_out(reset).await)
                }
                end = end(&mut self.events) => (format!("the guest's {end:?}"), self.ended(end).await),
            };
            let result = done.map_or_else(|error| format!("failed: {error}"), |()| "done".into());
            self.log.append(format!("lab: {}: {what}: {result}\n", self.name).as_bytes());
        }
    }

    async fn carry_out(&mut self, reset: Reset) -> Result<(), LabError> {
        let machine = Arc::clone(&self.machine);
        let mut machine = machine.lock().await;
        let is_on = self.state.borrow().on;
        match (reset, is_on) {
            (Reset::On | Reset::ForceRestart | Reset::GracefulRestart, false) => self.start(&mut machine).await,
            (Reset::ForceOff, true) => {
                (self.events, self.restarts) = (None, false);
                machine.power_cut().await;
                self.state.send_modify(|state| state.on = false);
                Ok(())
            }
            (Reset::GracefulShutdown | Reset::GracefulRestart, true) => {
                self.restarts = matches!(reset, Reset::GracefulRestart);
                machine.qmp().ok_or_else(|| gone(&self.name))?.power_button().await
            }
            (Reset::ForceRestart, true) => machine.qmp().ok_or_else(|| gone(&self.name))?.reset().await,
            (Reset::On, true) | (Reset::ForceOff | Reset::GracefulShutdown, false) => Ok(()),
        }
    }

    /// Starts it in the order that the next start is to have. QEMU's own order holds for all resets of one process, and that of a
    /// BIOS machine cannot change; so each reset ends QEMU, and the next order is that of a new one.
    async fn start(&mut self, machine: &mut Machine) -> Result<(), LabError> {
        (self.events, self.restarts) = (None, false);
        let State { first, medium, .. } = self.state.borrow().clone();
        let first = first.map(|(first, _)| first);
        set_netboot(machine, first == Some(First::Network));
        set_cd(machine, medium.filter(|_| first == Some(First::Cd)));
        let started = async {
            machine.power_on().await?;
            self.events = machine.qmp().map(|qmp| qmp.events());
            machine.off_at_reboot().await
        };
        let started = started.await;
        self.state.send_modify(|state| {
            state.on = started.is_ok();
            state.first = after_a_start(state.first);
        });
        started
    }

    /// QEMU has ended by itself, or is about to.
    async fn ended(&mut self, end: End) -> Result<(), LabError> {
        let machine = Arc::clone(&self.machine);
        let mut machine = machine.lock().await;
        let again = end == End::Reset || self.restarts;
        self.events = None;
        let result = match machine.wait_off(END_LIMIT).await {
            // It reads On all the while.
            Ok(()) if again => return self.start(&mut machine).await,
            result => result,
        };
        machine.power_cut().await;
        self.state.send_modify(|state| state.on = false);
        result
    }
}

/// Waits until QEMU ends; forever while there is none.
async fn end(events: &mut Option<broadcast::Receiver<Value>>) -> End {
    let Some(events) = events else { return std::future::pending().await };
    loop {
        match events.recv().await {
            Ok(event) if event["event"] == "SHUTDOWN" => {
                let is_reset = event["data"]["reason"].as_str().is_some_and(|reason| reason.ends_with("-reset"));
                return if is_reset { End::Reset } else { End::Off };
            }
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return End::Off,
        }
    }
}

fn gone(name: &str) -> LabError {
    LabError::Qmp { command: "power".into(), message: format!("QEMU of {name} is gone") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_override_once_is_gone_after_one_start() {
        let left = |enabled| first("Pxe", enabled).map(after_a_start);
        assert_eq!((left("Once"), left("Continuous")), (Ok(None), Ok(Some((First::Network, Starts::Continuous)))));
        assert_eq!((left("Disabled"), first("Hdd", "Once")), (Ok(None), Ok(None)));
        assert_eq!(first("Cd", "Once"), Ok(Some((First::Cd, Starts::Once))));
        assert!(first("BiosSetup", "Once").is_err() && first("Pxe", "Twice").is_err());
    }

    #[tokio::test]
    async fn only_a_reset_is_followed_by_a_start() {
        let shutdown = |reason: &str| json!({ "event": "SHUTDOWN", "data": { "reason": reason } });
        for (reason, wanted) in
            [("guest-reset", End::Reset), ("host-qmp-system-reset", End::Reset), ("guest-shutdown", End::Off)]
        {
            let sender = broadcast::Sender::new(8);
            let mut events = Some(sender.subscribe());
            sender.send(json!({ "event": "POWERDOWN" })).unwrap();
            sender.send(shutdown(reason)).unwrap();
            assert_eq!(end(&mut events).await, wanted, "{reason}");
            drop(sender);
            assert_eq!(end(&mut events).await, End::Off, "QEMU that dies is off");
        }
    }
}
