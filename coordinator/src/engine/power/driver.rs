//! One machine's BMC: reads it, and makes the steps that the planner asks for.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_api::{
    BmcSpec, BmcStatus, BootWay, FirmwareMode, Machine, PowerAction, PowerState, Problem, RefusedLogin,
    Shared as Document, Workflow,
};
use landfall_bmc::{Account, Bmc, BmcError, BootDevice, BootMode, BootOverride, PowerChange, connect};
use landfall_machine::power::{self, Contact, Look, Outcome, Step, Wanted, wanted};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::record::{contact, status};
use super::request::{Asked, failed, is_as_asked};
use super::{Noted, Shared, lock};

/// Between looks where nothing is under way.
const IDLE: Duration = Duration::from_secs(60);
/// Between looks while the power is to change.
const SWITCHING: Duration = Duration::from_secs(2);
/// Between looks while the machine boots.
const BOOTING: Duration = Duration::from_secs(5);
/// After the first failed look; doubled up to [`IDLE`].
const AGAIN: Duration = Duration::from_secs(5);
/// A person waits so long for a change of power to be read.
const SWITCHED: Duration = Duration::from_secs(20);
/// Between readings meanwhile.
const POLL: Duration = Duration::from_secs(1);
/// For the end of a session when the coordinator stops.
const CLOSE: Duration = Duration::from_secs(2);
/// Steps of one look: more than any way has.
const MAX_STEPS: usize = 16;

/// A session at a BMC, and the version of the account it is with.
struct Connection {
    bmc: Box<dyn Bmc>,
    version: u64,
}

/// One machine's BMC.
pub(in crate::engine) struct Driver {
    shared: Arc<Shared>,
    machine: String,
    spec: Arc<BmcSpec>,
    noted: Arc<Mutex<Noted>>,
    connection: Option<Connection>,
    /// When the BMC was last read.
    read: Option<Instant>,
    /// Looks that failed one after the other.
    failures: u32,
}

/// The documents that a look goes by.
struct Documents {
    machine: Document<Machine>,
    workflow: Option<Document<Workflow>>,
    connected: bool,
}

impl Documents {
    fn bmc(&self) -> BmcStatus {
        self.machine.status.as_ref().and_then(|status| status.bmc.clone()).unwrap_or_default()
    }

    fn wanted(&self) -> Wanted {
        wanted(&self.machine, self.workflow.as_deref(), self.connected, self.bmc().power)
    }
}

impl Driver {
    pub(super) const fn new(
        shared: Arc<Shared>, machine: String, spec: Arc<BmcSpec>, noted: Arc<Mutex<Noted>>,
    ) -> Self {
        Self { shared, machine, spec, noted, connection: None, read: None, failures: 0 }
    }

    /// Looks again and again, until `stop`.
    pub(super) async fn run(mut self, wake: Arc<Notify>, mut asked: mpsc::Receiver<Asked>, stop: CancellationToken) {
        let looks = async {
            loop {
                let again = match self.look().await {
                    Ok(again) => again,
                    Err(problem) => {
                        tracing::error!(machine = self.machine, %problem, "the machine's power was not looked at; it is retried");
                        IDLE
                    }
                };
                tokio::select! {
                    () = wake.notified() => {}
                    () = sleep(again) => {}
                    Some(asked) = asked.recv() => {
                        let answer = self.perform(asked.action).await;
                        asked.answer(answer);
                    }
                }
            }
        };
        stop.run_until_cancelled(looks).await;
        if timeout(CLOSE, self.close()).await.is_err() {
            tracing::debug!(machine = self.machine, "the BMC's session stays open until the BMC ends it");
        }
        self.shared.starts.give_back(&self.machine);
        self.forget().await;
    }

    /// The document may have no BMC any more.
    async fn forget(&self) {
        let gone = self.shared.fleet.store().machine(&self.machine).await;
        if gone
            .is_ok_and(|machine| machine.is_some_and(|machine| machine.spec.bmc.is_none() && machine.status.is_some()))
            && let Err(problem) = self.shared.fleet.mutate_machine(&self.machine, power::erase).await
        {
            tracing::warn!(machine = self.machine, %problem, "what was read of the removed BMC stays in the status");
        }
    }

    /// Does what a person asked for, and reads the power until it is so, or for a while.
    async fn perform(&mut self, action: PowerAction) -> Result<Option<PowerState>, Problem> {
        let changes: &[PowerChange] = match action {
            PowerAction::Status => &[],
            PowerAction::On => &[PowerChange::On],
            PowerAction::Off => &[PowerChange::Off],
            PowerAction::Shutdown => &[PowerChange::Shutdown],
            PowerAction::Cycle => &[PowerChange::Off, PowerChange::On],
        };
        let mut power = self.reads().await?;
        for change in changes {
            let Some(connection) = &mut self.connection else { break };
            if let Err(error) = connection.bmc.change_power(*change).await {
                return Err(failed(&self.machine, &error.to_string()));
            }
            tracing::info!(machine = self.machine, ?change, "a person had the machine's power changed");
            let until = Instant::now() + SWITCHED;
            power = self.reads().await?;
            while !is_as_asked(power, *change) && Instant::now() < until {
                sleep(POLL).await;
                power = self.reads().await?;
            }
        }
        Ok(power)
    }

    /// The power, read now.
    async fn reads(&mut self) -> Result<Option<PowerState>, Problem> {
        let Some(found) = self.documents().await? else { return Ok(None) };
        let read = self.power(&found).await?;
        let now = self.shared.fleet.now();
        self.read = Some(Instant::now());
        self.change(|machine| power::show(machine, &read, now)).await?;
        match read {
            Contact::Reads(power) => Ok(power),
            Contact::Silent(why)
            | Contact::Untrusted(why)
            | Contact::Refused(why)
            | Contact::Forbidden(why)
            | Contact::Invalid(why)
            | Contact::NoAccount(why) => {
                self.close().await;
                Err(failed(&self.machine, &why))
            }
        }
    }

    async fn close(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            connection.bmc.close().await;
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
            && !self.has_new_account().await?
        {
            match found.wanted() {
                Wanted::Nothing => return Ok(left),
                Wanted::Netboot(_) if !self.has_place() => return Ok(SWITCHING),
                Wanted::Netboot(_) => {}
            }
        }
        match self.read(&found).await? {
            Ok(()) => self.failures = 0,
            Err(again) => return Ok(again),
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
        let fleet = &self.shared.fleet;
        let Some(machine) = fleet.store().machine(&self.machine).await? else { return Ok(None) };
        let workflow = fleet.current_workflow(&machine).await?;
        let connected = match machine.metadata.uid {
            Some(uid) => fleet.machines().lock(uid).await.is_connected(),
            None => false,
        };
        Ok(Some(Documents { machine, workflow, connected }))
    }

    /// How long until the BMC is to be read again; absent: now.
    fn until_read(&self) -> Option<Duration> {
        IDLE.checked_sub(self.read?.elapsed()).filter(|left| !left.is_zero())
    }

    /// Whether the account that was missing or refused may be another now.
    async fn has_new_account(&self) -> Result<bool, Problem> {
        let waits = lock(&self.noted).secret.clone();
        Ok(match waits {
            Some((secret, version)) => self.shared.vault.version_of(&secret).await? != version,
            None => false,
        })
    }

    /// Whether the machine may be started beside those that are at work or on their way.
    fn has_place(&self) -> bool {
        let places = self.shared.fleet.index().admission.places();
        self.shared.starts.take(&self.machine, places)
    }

    /// Logs in if need be and reads the power; what came of it is in the machine's document then. Where it failed: how long until
    /// the next look.
    async fn read(&mut self, found: &Documents) -> Result<Result<(), Duration>, Problem> {
        let read = self.power(found).await?;
        self.read = Some(Instant::now());
        let now = self.shared.fleet.now();
        self.change(|machine| power::show(machine, &read, now)).await?;
        let failed = match read {
            Contact::Reads(_) => return Ok(Ok(())),
            // A person has to say more.
            Contact::Refused(why) | Contact::NoAccount(why) => {
                tracing::warn!(machine = self.machine, why, "there is no account for the machine's BMC");
                Err(IDLE)
            }
            Contact::Silent(why) | Contact::Untrusted(why) | Contact::Forbidden(why) | Contact::Invalid(why) => {
                tracing::warn!(machine = self.machine, why, "the machine's BMC cannot be used");
                Err(self.backoff())
            }
        };
        self.close().await;
        Ok(failed)
    }

    /// How long until the next look after one more that failed.
    fn backoff(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        IDLE.min(AGAIN.saturating_mul(2u32.saturating_pow(self.failures - 1)))
    }

    async fn power(&mut self, found: &Documents) -> Result<Contact, Problem> {
        let secret = &self.spec.credentials;
        // Noted before it is read: a version that comes between the two is looked at again.
        lock(&self.noted).secret = Some((secret.clone(), self.shared.vault.version_of(secret).await?));
        let (account, version) = match self.shared.vault.bmc_account(&self.spec).await {
            Ok(account) => account,
            Err(problem) => return Ok(Contact::NoAccount(problem.to_string())),
        };
        if self.connection.as_ref().is_some_and(|connection| connection.version != version) {
            self.close().await;
        }
        if self.connection.is_none() {
            match self.log_in(found, account, version).await? {
                Ok(connection) => self.connection = Some(connection),
                Err(failed) => return Ok(failed),
            }
            self.take_inventory().await?;
        }
        let Some(connection) = &mut self.connection else { return Ok(Contact::Silent("its session has ended".into())) };
        let read = connection.bmc.power().await;
        match read {
            Ok(power) => {
                lock(&self.noted).secret = None;
                Ok(Contact::Reads(power))
            }
            Err(error) => {
                self.note_refused(&error, version).await?;
                Ok(contact(&error))
            }
        }
    }

    /// One login; none with an account that was refused.
    async fn log_in(
        &self, found: &Documents, account: Account, version: u64,
    ) -> Result<Result<Connection, Contact>, Problem> {
        let spec = &self.spec;
        let mut login = self.shared.logins.at(&spec.address.base()).await;
        let stored = found.bmc().refused.filter(|refused| refused.address.base() == spec.address.base());
        if login.is_refused(&spec.credentials, version, stored.as_ref()) {
            let why = "the BMC has refused this account; it is tried again once the Secret or the address changes";
            return Ok(Err(Contact::Refused(why.to_owned())));
        }
        match connect(spec, account).await {
            Ok(bmc) => Ok(Ok(Connection { bmc, version })),
            Err(error) => {
                if matches!(error, BmcError::Refused { .. }) {
                    login.refused(&spec.credentials, version);
                    self.note_refused(&error, version).await?;
                }
                Ok(Err(contact(&error)))
            }
        }
    }

    /// What the BMC says of the computer, once a session.
    async fn take_inventory(&mut self) -> Result<(), Problem> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        match connection.bmc.inventory().await {
            Ok(system) => self.change(|machine| status(machine).system = Some(system.clone())).await,
            // The power is read next, and says what is wrong.
            Err(_) => Ok(()),
        }
    }

    /// Stored before any other login: a restart must not try the account again.
    async fn note_refused(&self, error: &BmcError, version: u64) -> Result<(), Problem> {
        if !matches!(error, BmcError::Refused { .. }) {
            return Ok(());
        }
        let refused = RefusedLogin {
            address: self.spec.address.clone(),
            secret: self.spec.credentials.clone(),
            version,
            at: self.shared.fleet.now(),
        };
        self.change(|machine| status(machine).refused = Some(refused.clone())).await
    }

    async fn change(&self, change: impl Fn(&mut Machine) + Send) -> Result<(), Problem> {
        self.shared.fleet.mutate_machine(&self.machine, change).await.map(drop)
    }

    /// Makes the next step. How long until the next look; absent: there may be another step at once.
    async fn step(&mut self, found: &Documents) -> Result<Option<Duration>, Problem> {
        let (bmc, now) = (found.bmc(), self.shared.fleet.now());
        let look = Look {
            wanted: found.wanted(),
            connected: found.connected,
            last_heard: found.machine.status.as_ref().and_then(|status| status.last_heard),
            power: bmc.power,
            netboot: self.shared.fleet.limits().netboot_deadline,
            now,
        };
        let step = power::next(&bmc, &look);
        let booting = bmc.attempts.last().is_some_and(|attempt| attempt.on_at.is_some());
        match step {
            Step::Rest | Step::GiveUp => {
                self.shared.starts.give_back(&self.machine);
                Ok(Some(IDLE))
            }
            Step::Wait => {
                // One that was under way when the coordinator started has its place.
                self.shared.starts.take(&self.machine, usize::MAX);
                Ok(Some(if booting { BOOTING } else { SWITCHING }))
            }
            Step::Begin(workflow, way) => {
                if !self.has_place() {
                    return Ok(Some(SWITCHING));
                }
                tracing::info!(machine = self.machine, %way, "the machine is to netboot");
                self.change(|machine| power::begin(status(machine), workflow, way, now)).await?;
                Ok(None)
            }
            Step::End(outcome) => {
                self.end(outcome).await?;
                Ok(None)
            }
            step => self.make(&step, found).await,
        }
    }

    async fn end(&self, outcome: Outcome) -> Result<(), Problem> {
        if let Outcome::Failed(why) = &outcome {
            tracing::warn!(machine = self.machine, why, "the machine did not netboot this way");
        }
        let now = self.shared.fleet.now();
        self.change(|machine| power::end(status(machine), outcome.clone(), now)).await
    }

    /// Has the BMC make a step.
    async fn make(&mut self, step: &Step, found: &Documents) -> Result<Option<Duration>, Problem> {
        let Some(connection) = &mut self.connection else { return Ok(Some(AGAIN)) };
        tracing::info!(machine = self.machine, ?step, "the machine's BMC is asked");
        let none = BootOverride { device: BootDevice::None, once: false, mode: None };
        let made = match step {
            Step::Shutdown => connection.bmc.change_power(PowerChange::Shutdown).await,
            Step::Off => connection.bmc.change_power(PowerChange::Off).await,
            Step::On => connection.bmc.change_power(PowerChange::On).await,
            Step::SetBoot(way) => match override_of(*way, mode_of(&found.machine)) {
                Some(boot) => connection.bmc.set_boot(boot).await,
                None => Ok(()),
            },
            Step::ClearBoot => connection.bmc.set_boot(none).await,
            _ => Ok(()),
        };
        let version = connection.version;
        let now = self.shared.fleet.now();
        match made {
            Ok(()) => {}
            Err(error @ (BmcError::Unreachable { .. } | BmcError::Untrusted { .. } | BmcError::Refused { .. })) => {
                self.note_refused(&error, version).await?;
                let failed = contact(&error);
                self.change(|machine| power::show(machine, &failed, now)).await?;
                self.close().await;
                return Ok(Some(self.backoff()));
            }
            // A system that cannot be asked is switched off later.
            Err(error) if *step == Step::Shutdown => {
                tracing::warn!(machine = self.machine, %error, "the machine's system cannot be asked to shut down");
            }
            Err(error) if *step == Step::ClearBoot => {
                tracing::warn!(machine = self.machine, %error, "the machine's boot device stays set");
            }
            Err(error) => {
                self.end(Outcome::Failed(error.to_string())).await?;
                return Ok(None);
            }
        }
        self.change(|machine| match step {
            Step::ClearBoot => power::cleared(status(machine)),
            step => power::note(status(machine), step, now),
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
