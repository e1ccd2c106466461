//! One machine's power: looks at it, and makes the steps that the planner asks for.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_api::{BmcSpec, BootWay, FirmwareMode, Machine, PowerAction, PowerRequest, PowerState, Problem};
use landfall_bmc::{BmcError, BootDevice, BootMode, BootOverride, PowerChange};
use landfall_machine::Input;
use landfall_machine::power::{self, Contact, Look, Outcome, Step, Wanted};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::documents::Documents;
use super::request::{Asked, failed, is_as_asked, may_change};
use super::starts::Place;
use super::{Noted, OFF_FOR, Shared, lock};

/// Between looks where nothing is under way.
const IDLE: Duration = Duration::from_secs(60);
/// Between looks while the power is to change.
const SWITCHING: Duration = Duration::from_secs(2);
/// Between looks while the machine boots.
const BOOTING: Duration = Duration::from_secs(5);
/// After the first failed look; doubled up to [`IDLE`].
const AGAIN: Duration = Duration::from_secs(5);
/// A person waits so long for a change of power to be read: some BMCs lag by 30 s.
const SWITCHED: Duration = Duration::from_secs(35);
/// Between readings meanwhile.
const POLL: Duration = Duration::from_secs(1);
/// For what is under way when the task is to end: a login that is cut leaves its session open.
const CLOSE: Duration = Duration::from_secs(2);
/// Steps of one look: more than any way has.
const MAX_STEPS: usize = 16;

/// One machine's power.
pub(in crate::engine) struct Driver {
    shared: Arc<Shared>,
    machine: String,
    noted: Arc<Mutex<Noted>>,
    connection: Connection,
    place: Place,
    /// When the BMC was last read.
    read: Option<Instant>,
    /// Looks that failed one after the other.
    failures: u32,
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, machine: String, spec: Arc<BmcSpec>, noted: Arc<Mutex<Noted>>) -> Self {
        let connection = Connection::new(shared.clone(), machine.clone(), spec, noted.clone());
        let place = shared.starts.place();
        Self { shared, machine, noted, connection, place, read: None, failures: 0 }
    }

    /// Looks again and again, until `stop`.
    pub(super) async fn run(mut self, wake: Arc<Notify>, mut asked: mpsc::Receiver<Asked>, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let looked = {
                let mut look = pin!(self.look());
                tokio::select! {
                    looked = &mut look => looked,
                    () = stop.cancelled() => match timeout(CLOSE, look).await {
                        Ok(looked) => looked,
                        Err(_) => break,
                    },
                }
            };
            let again = looked.unwrap_or_else(|problem| {
                let machine = &self.machine;
                tracing::error!(machine, %problem, "the machine's power was not looked at; it is retried");
                IDLE
            });
            tokio::select! {
                () = stop.cancelled() => {}
                () = wake.notified() => {}
                () = sleep(again) => {}
                Some(asked) = asked.recv() => if !asked.is_stale() {
                    let answer = self.perform(asked.request).await;
                    asked.answer(answer);
                },
            }
        }
        if timeout(CLOSE, self.connection.close()).await.is_err() {
            tracing::debug!(machine = self.machine, "the BMC's session stays open until the BMC ends it");
        }
        self.forget().await;
    }

    /// The document may have no BMC any more.
    async fn forget(&self) {
        let gone = self.shared.fleet.store().machine(&self.machine).await;
        let without = gone.is_ok_and(|found| found.is_some_and(|m| m.spec.bmc.is_none() && m.status.is_some()));
        if without && let Err(problem) = self.connection.change(power::erase).await {
            tracing::warn!(machine = self.machine, %problem, "what was read of the removed BMC stays in the status");
        }
    }

    /// Does what a person asked for, and reads the power until it is so, or for a while.
    async fn perform(&mut self, request: PowerRequest) -> Result<Option<PowerState>, Problem> {
        let changes: &[PowerChange] = match request.action {
            PowerAction::Status => &[],
            PowerAction::On => &[PowerChange::On],
            PowerAction::Off => &[PowerChange::Off],
            PowerAction::Shutdown => &[PowerChange::Shutdown],
            PowerAction::Cycle => &[PowerChange::Off, PowerChange::On],
        };
        let mut power = self.reads().await?;
        for (n, change) in changes.iter().enumerate() {
            // Also where the request has waited, and a workflow has begun meanwhile.
            let Some(found) = self.documents().await? else { break };
            may_change(&found, request)?;
            let Some(bmc) = self.connection.bmc() else { break };
            if let Err(error) = bmc.change_power(*change).await {
                self.connection.failed(&error).await?;
                return Err(failed(&self.machine, &error.to_string()));
            }
            tracing::info!(machine = self.machine, ?change, "a person had the machine's power changed");
            let until = Instant::now() + SWITCHED;
            power = self.reads().await?;
            while !is_as_asked(power, *change) && Instant::now() < until {
                sleep(POLL).await;
                power = self.reads().await?;
            }
            if !is_as_asked(power, *change) && n + 1 < changes.len() {
                let why = format!("the power does not read off {} s after it was switched off", SWITCHED.as_secs());
                return Err(failed(&self.machine, &why));
            }
        }
        Ok(power)
    }

    /// The power, read now.
    async fn reads(&mut self) -> Result<Option<PowerState>, Problem> {
        let Some(found) = self.documents().await? else { return Ok(None) };
        self.read = Some(Instant::now());
        match self.connection.read(&found).await? {
            Contact::Reads(power) => Ok(power),
            Contact::Silent(why)
            | Contact::Untrusted(why)
            | Contact::Refused(why)
            | Contact::Forbidden(why)
            | Contact::Invalid(why)
            | Contact::NoAccount(why) => Err(failed(&self.machine, &why)),
        }
    }

    /// Reads the BMC if it is time, and makes every step that can be made now. How long until the next look.
    ///
    /// # Errors
    /// [`Problem`] of the store.
    pub(in crate::engine) async fn look(&mut self) -> Result<Duration, Problem> {
        let Some(found) = self.documents().await? else { return Ok(IDLE) };
        lock(&self.noted).workflow = found.workflow.as_ref().map(|workflow| workflow.metadata.name.clone());
        let is_open = found.bmc().attempts.last().is_some_and(|attempt| attempt.ended.is_none());
        if !is_open
            && let Some(left) = self.until_read()
            && !self.connection.has_new_account().await?
        {
            match found.wanted() {
                Wanted::Nothing => return Ok(left),
                Wanted::Netboot(_) if !self.place.is_free(self.places()) => return Ok(SWITCHING),
                Wanted::Netboot(_) => {}
            }
        }
        self.read = Some(Instant::now());
        if let Some(again) = self.cannot_read(&found).await? {
            return Ok(again);
        }
        // A BMC that was silent may have restarted, and forgotten the boot device. Where the power is on, that was switched with it.
        if std::mem::take(&mut self.failures) > 0 && self.connection.is_off() {
            self.connection.change(|machine| power::doubt(power::status_of(machine))).await?;
        }
        for _ in 0..MAX_STEPS {
            let Some(found) = self.documents().await? else { return Ok(IDLE) };
            if let Some(again) = self.step(&found).await? {
                return Ok(again);
            }
        }
        Ok(SWITCHING)
    }

    async fn documents(&self) -> Result<Option<Documents>, Problem> {
        Documents::read(&self.shared.fleet, &self.machine).await
    }

    /// How long until the BMC is to be read again; absent: now.
    fn until_read(&self) -> Option<Duration> {
        IDLE.checked_sub(self.read?.elapsed()).filter(|left| !left.is_zero())
    }

    /// How many machines may be started beside those that are at work.
    fn places(&self) -> usize {
        self.shared.fleet.index().admission.places()
    }

    /// Reads the power. Where that fails: how long until the next look.
    async fn cannot_read(&mut self, found: &Documents) -> Result<Option<Duration>, Problem> {
        let again = match self.connection.read(found).await? {
            Contact::Reads(_) => return Ok(None),
            // A person has to say more.
            Contact::Refused(why) | Contact::NoAccount(why) => {
                tracing::warn!(machine = self.machine, why, "there is no account for the machine's BMC");
                IDLE
            }
            Contact::Silent(why) | Contact::Untrusted(why) | Contact::Forbidden(why) | Contact::Invalid(why) => {
                tracing::warn!(machine = self.machine, why, "the machine's BMC cannot be used");
                self.backoff()
            }
        };
        // Another machine may start meanwhile; and an attempt ends without its BMC too.
        self.place.give_back();
        if let Some(found) = self.documents().await?
            && let Step::End(outcome) = self.next(&found)
        {
            self.end(outcome).await?;
        }
        Ok(Some(again))
    }

    /// How long until the next look after one more that failed.
    fn backoff(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        IDLE.min(AGAIN.saturating_mul(2u32.saturating_pow(self.failures - 1)))
    }

    fn next(&self, found: &Documents) -> Step {
        let status = found.bmc();
        let look = Look {
            wanted: found.wanted(),
            connected: found.connected,
            leased: found.may_act,
            last_heard: found.machine.status.as_ref().and_then(|status| status.last_heard),
            power: status.power,
            netboot: self.shared.fleet.limits().netboot_deadline,
            now: self.shared.fleet.now(),
        };
        power::next(&status, &look)
    }

    /// Makes the next step. How long until the next look; absent: there may be another step at once.
    async fn step(&mut self, found: &Documents) -> Result<Option<Duration>, Problem> {
        match self.next(found) {
            Step::Rest => {
                self.place.give_back();
                Ok(Some(if self.connection.is_off() && found.may_act { OFF_FOR } else { IDLE }))
            }
            Step::GiveUp => {
                self.place.give_back();
                // Its workflow says at once that it is missing, and what was tried.
                self.shared.steps.hand_in(&self.machine, Input::Tick).await?;
                Ok(Some(IDLE))
            }
            Step::Wait => {
                let open = found.bmc().attempts.last().cloned().filter(|attempt| attempt.ended.is_none());
                let Some(open) = open else { return Ok(Some(BOOTING)) };
                // One that was under way when the coordinator started, or its BMC failed, has its place.
                self.place.take(usize::MAX);
                Ok(Some(if open.on_at.is_some() { BOOTING } else { SWITCHING }))
            }
            Step::Begin(workflow, way) => {
                if !self.place.take(self.places()) {
                    return Ok(Some(SWITCHING));
                }
                tracing::info!(machine = self.machine, %way, "the machine is to netboot");
                let now = self.shared.fleet.now();
                self.connection.change(|machine| power::begin(power::status_of(machine), workflow, way, now)).await?;
                Ok(None)
            }
            Step::End(outcome) => {
                self.end(outcome).await?;
                Ok(None)
            }
            step => self.make(&step, found).await,
        }
    }

    async fn end(&mut self, outcome: Outcome) -> Result<(), Problem> {
        if let Outcome::Failed(why) = &outcome {
            tracing::warn!(machine = self.machine, why, "the machine did not netboot this way");
        }
        let now = self.shared.fleet.now();
        self.connection.change(|machine| power::end(power::status_of(machine), outcome.clone(), now)).await
    }

    /// Has the BMC make a step.
    async fn make(&mut self, step: &Step, found: &Documents) -> Result<Option<Duration>, Problem> {
        let Some(bmc) = self.connection.bmc() else { return Ok(Some(AGAIN)) };
        tracing::info!(machine = self.machine, ?step, "the machine's BMC is asked");
        let none = BootOverride { device: BootDevice::None, once: false, mode: None };
        let made = match step {
            Step::Shutdown => bmc.change_power(PowerChange::Shutdown).await,
            Step::Off => bmc.change_power(PowerChange::Off).await,
            Step::On => bmc.change_power(PowerChange::On).await,
            Step::SetBoot(way) => match override_of(*way, mode_of(&found.machine)) {
                Some(boot) => bmc.set_boot(boot).await,
                None => Ok(()),
            },
            Step::ClearBoot => bmc.set_boot(none).await,
            _ => Ok(()),
        };
        let now = self.shared.fleet.now();
        match made {
            Ok(()) => {}
            // A system that cannot be asked is switched off later.
            Err(error) if *step == Step::Shutdown && (!error.is_passing() || error.is_of_the_state()) => {
                tracing::warn!(machine = self.machine, %error, "the machine's system cannot be asked to shut down");
            }
            Err(error) => {
                self.connection.failed(&error).await?;
                let limit = self.shared.fleet.limits().netboot_deadline;
                let has_time = found.bmc().attempts.last().is_some_and(|open| power::has_time(open, limit, now));
                let is_login = matches!(error, BmcError::Refused { .. } | BmcError::Untrusted { .. });
                if *step == Step::ClearBoot || is_login || (error.is_passing() && has_time) {
                    tracing::warn!(machine = self.machine, %error, "the BMC is asked again");
                    return Ok(Some(self.backoff()));
                }
                self.end(Outcome::Failed(error.to_string())).await?;
                return Ok(Some(SWITCHING));
            }
        }
        self.connection
            .change(|machine| match step {
                Step::ClearBoot => power::cleared(power::status_of(machine)),
                step => power::note(power::status_of(machine), step, now),
            })
            .await?;
        Ok(if matches!(step, Step::SetBoot(_) | Step::ClearBoot) { None } else { Some(SWITCHING) })
    }
}

/// The firmware's mode as the machine's agent last saw it.
fn mode_of(machine: &Machine) -> Option<BootMode> {
    let facts = machine.status.as_ref()?.facts.as_ref()?;
    match facts.firmware.mode {
        FirmwareMode::Uefi => Some(BootMode::Uefi),
        FirmwareMode::Bios => Some(BootMode::Legacy),
    }
}

/// The boot device of a way; absent: none is to be set.
fn override_of(way: BootWay, mode: Option<BootMode>) -> Option<BootOverride> {
    let (device, once, mode) = match way {
        BootWay::PxeOnce => (BootDevice::Pxe, true, mode),
        BootWay::PxeContinuous => (BootDevice::Pxe, false, mode),
        // Of a machine that was never seen the mode is not known: UEFI is what it most likely is not set to.
        BootWay::PxeOtherMode => {
            (BootDevice::Pxe, true, Some(if mode == Some(BootMode::Uefi) { BootMode::Legacy } else { BootMode::Uefi }))
        }
        BootWay::UefiHttpOnce => (BootDevice::UefiHttp, true, Some(BootMode::Uefi)),
        BootWay::OwnOrder => return None,
    };
    Some(BootOverride { device, once, mode })
}
