//! One machine's power: looks at it, and makes the steps that the planner asks for.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_api::{BootMedium, Problem};
use landfall_machine::Input;
use landfall_machine::power::{self, Contact, Look, Outcome, Step, Wanted};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::control::Control;
use super::documents::Documents;
use super::request::Asked;
use super::starts::Place;
use super::{Noted, OFF_FOR, Shared, lock};

/// Between looks where nothing is under way.
const IDLE: Duration = Duration::from_secs(60);
/// Between looks while the power is to change.
pub(super) const SWITCHING: Duration = Duration::from_secs(2);
/// Between looks while the machine boots.
const BOOTING: Duration = Duration::from_secs(5);
/// After the first failed look; doubled up to [`IDLE`].
pub(super) const AGAIN: Duration = Duration::from_secs(5);
/// For what is under way when the task is to end: a login that is cut leaves its session open.
const CLOSE: Duration = Duration::from_secs(2);
/// Steps of one look: more than any way has.
const MAX_STEPS: usize = 16;

/// One machine's power.
pub(in crate::engine) struct Driver {
    pub(super) shared: Arc<Shared>,
    pub(super) machine: String,
    noted: Arc<Mutex<Noted>>,
    pub(super) connection: Connection,
    place: Place,
    /// When the BMC was last read.
    pub(super) read: Option<Instant>,
    /// Looks that failed one after the other.
    failures: u32,
    /// Since when the BMC is asked to switch the machine on.
    pub(super) on_since: Option<Instant>,
    /// The medium that this BMC holds, as its status has it.
    pub(super) medium: Option<BootMedium>,
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, machine: String, control: Control, noted: Arc<Mutex<Noted>>) -> Self {
        let connection = Connection::new(shared.clone(), machine.clone(), control, noted.clone());
        let place = shared.starts.place();
        Self { shared, machine, noted, connection, place, read: None, failures: 0, on_since: None, medium: None }
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
                    let answer = self.perform(asked.request, &stop).await;
                    asked.answer(answer);
                },
            }
        }
        self.shared.known.forget(&self.machine);
        self.leave().await;
        if timeout(CLOSE, self.connection.close()).await.is_err() {
            tracing::debug!(machine = self.machine, "the BMC's session stays open until the BMC ends it");
        }
        self.forget().await;
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

    pub(super) async fn documents(&mut self) -> Result<Option<Documents>, Problem> {
        let found = Documents::read(&self.shared.fleet, &self.machine).await?;
        if let Some(status) = found.as_ref().map(Documents::bmc)
            && status.address.as_ref() == self.connection.address()
        {
            self.shared.known.note(&self.machine, &status);
            self.medium = status.medium;
        }
        Ok(found)
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

    /// The same where nothing is to be started: another machine may be meanwhile.
    pub(super) fn again_without_place(&mut self) -> Duration {
        self.place.give_back();
        // It is due then, though the power was read a moment ago.
        self.read = None;
        self.backoff()
    }

    /// How long until the next look after one more that failed.
    pub(super) fn backoff(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        IDLE.min(AGAIN.saturating_mul(2u32.saturating_pow(self.failures - 1)))
    }

    pub(super) fn next(&self, found: &Documents) -> Step {
        let status = found.bmc();
        let spec = &found.machine.spec;
        let mut ways = found.machine.ways();
        if !spec.states_ways() {
            self.shared.known.order(&status, &mut ways);
        }
        let look = Look {
            wanted: found.wanted(),
            connected: found.connected,
            leased: found.may_act,
            last_heard: found.machine.status.as_ref().and_then(|status| status.last_heard),
            reads_power: spec.reads_power(),
            power: found.power(),
            ways: &ways,
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
                if open.on_at.is_some() && found.wanted() != Wanted::Nothing && !found.machine.spec.reads_power() {
                    self.wake_again().await;
                }
                Ok(Some(if open.on_at.is_some() { BOOTING } else { SWITCHING }))
            }
            Step::Begin(workflow, way) => {
                if !self.place.take(self.places()) {
                    return Ok(Some(SWITCHING));
                }
                tracing::info!(machine = self.machine, %way, "the machine is to netboot");
                let now = self.shared.fleet.now();
                self.on_since = None;
                self.connection.change(|machine| power::begin(power::status_of(machine), workflow, way, now)).await?;
                // Before the power of a machine that runs is cut for nothing.
                if let Err(why) = self.medium_for(found, way) {
                    self.end(Outcome::Failed(why)).await?;
                }
                Ok(None)
            }
            Step::End(Outcome::Failed(why)) => {
                let signs = self.signs(found).await?;
                // It may have come while the BMC was asked.
                if let Some(found) = self.documents().await?
                    && self.next(&found) == Step::End(Outcome::Failed(why.clone()))
                {
                    self.end(Outcome::Failed(why + &signs)).await?;
                }
                Ok(None)
            }
            Step::End(outcome) => {
                self.end(outcome).await?;
                Ok(None)
            }
            step => self.make(&step, found).await,
        }
    }

    pub(super) async fn end(&mut self, outcome: Outcome) -> Result<(), Problem> {
        if let Outcome::Failed(why) = &outcome {
            tracing::warn!(machine = self.machine, why, "the machine did not netboot this way");
        }
        let now = self.shared.fleet.now();
        self.connection.change(|machine| power::end(power::status_of(machine), outcome.clone(), now)).await
    }
}
