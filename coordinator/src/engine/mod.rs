//! The engine: the only writer of status. It applies the pure state machine to stored documents, one machine at a
//! time, and carries out what it asks for.
//!
//! Everything that changes a machine or its workflow happens under that machine's lock, in one order: the event is made
//! durable, the state machine steps, the new status is stored by compare-and-swap, and only then effects go out. A
//! crash between any two of these is mended at the start by replaying the log from where the status stands.
//!
//! Its parts, from what the others use to what uses the others; each has its own state, and none uses one that comes later:
//! [`Fleet`] (documents, index, locks, time), the vault and the tokens, [`Telemetry`], alarms, identities, accounts of BMCs, assignments,
//! removals, the steps (one machine's step made real), [`Sessions`], [`Requests`], [`Inspections`], [`Documents`], [`Certificates`],
//! [`Enrolments`], [`Boot`], [`Power`], [`Pools`], [`Upkeep`] and [`Others`].

mod alarms;
mod assignments;
mod bmc_accounts;
mod boot;
mod certificates;
mod documents;
mod enrolments;
mod fleet;
mod identities;
mod inspections;
mod others;
mod pools;
mod power;
mod removals;
mod requests;
mod secrets;
mod sessions;
mod shorten;
mod source;
mod steps;
mod telemetry;
#[cfg(test)]
mod tests;
mod tokens;
mod upkeep;

use std::sync::Arc;

use jiff::Timestamp;
use landfall_api::{ErrorCode, Problem};
use landfall_machine::Horizon;
use landfall_store::{Store, Unconfirmed};

pub use boot::Boot;
pub use certificates::{CertificateAuthority, Certificates, IssuedCertificate};
pub use documents::Documents;
pub use enrolments::{Asker, Enrolled, Enrolment, Enrolments, by_token_only};
pub use fleet::{Beside, Clock, Fleet, Settings, Timepiece};
pub use inspections::Inspections;
pub use others::Others;
pub use pools::Pools;
pub use power::{OpenConsole, Power};
pub use requests::{Clearing, Requests};
pub use sessions::{Opened, Sessions};
pub use source::{HttpSources, SourceChecker};
pub use telemetry::Telemetry;
pub use upkeep::Upkeep;
pub(crate) use upkeep::{BEAT, forget_last_beat};

use alarms::Alarms;
use assignments::Assignments;
use bmc_accounts::BmcAccounts;
use fleet::Index;
use identities::Identities;
use removals::Removals;
use secrets::Vault;
use steps::Steps;
use tokens::Tokens;

/// The engine: its parts, started. Cloning it shares it.
#[derive(Clone)]
pub struct Engine {
    fleet: Arc<Fleet>,
    telemetry: Arc<Telemetry>,
    sessions: Arc<Sessions>,
    requests: Requests,
    inspections: Arc<Inspections>,
    documents: Arc<Documents>,
    certificates: Arc<Certificates>,
    enrolments: Enrolments,
    boot: Arc<Boot>,
    power: Arc<Power>,
    pools: Arc<Pools>,
    upkeep: Arc<Upkeep>,
    others: Arc<Others>,
}

impl Engine {
    /// An engine over a store; replays what a crash left between the log and the statuses.
    ///
    /// # Errors
    /// [`Problem`] if the store cannot be read.
    pub async fn start(
        store: Store, settings: Settings, clock: Clock, authority: Arc<dyn CertificateAuthority>,
        sources: Arc<dyn SourceChecker>,
    ) -> Result<Self, Problem> {
        if settings.own.is_none() {
            store.audit().reveal(Timestamp::MAX).await?;
        }
        let (machines, workflows) = (store.machines().await?, store.workflows().await?);
        let mut index = Index::new(settings.parallel_installs.max(1));
        machines.iter().for_each(|machine| index.put_machine(machine));
        workflows.iter().for_each(|workflow| index.put_workflow(workflow));
        let started = clock.wall();
        // A store without a machine has missed nothing of any.
        let as_of = upkeep::last_beat(&store, started).await?.or(machines.is_empty().then_some(started));
        let horizon = Horizon { as_of, started, lease: settings.lease };
        let tokens = Arc::new(Tokens::new(store.clone(), clock.clone()));
        let fleet = Arc::new(Fleet::new(store.clone(), settings, clock.clone(), horizon, index));
        let vault = Arc::new(Vault::new(fleet.clone(), store, clock));
        let telemetry = Arc::new(Telemetry::new(fleet.clone(), vault.clone(), tokens.clone()));
        workflows.iter().for_each(|workflow| telemetry.follow(workflow));
        let alarms = Arc::new(Alarms::new(fleet.clone()));
        let identities = Arc::new(Identities::new(fleet.clone()));
        let removals = Arc::new(Removals::new(fleet.clone(), telemetry.clone()));
        let accounts = Arc::new(BmcAccounts::new(fleet.clone(), vault.clone()));
        let assignments = Arc::new(Assignments::new(
            fleet.clone(),
            vault.clone(),
            tokens.clone(),
            accounts.clone(),
            authority.clone(),
        ));
        let steps = Steps::new(fleet.clone(), alarms.clone(), assignments.clone(), telemetry.clone(), removals.clone());
        let requests =
            Requests::new(fleet.clone(), steps.clone(), removals.clone(), vault.clone(), sources.clone(), assignments);
        let certificates =
            Arc::new(Certificates::new(fleet.clone(), alarms.clone(), identities.clone(), authority.clone()));
        let enrolments = Enrolments::new(
            fleet.clone(),
            alarms.clone(),
            identities.clone(),
            certificates.clone(),
            requests.clone(),
            tokens.clone(),
            authority,
        );
        let inspections = Arc::new(Inspections::new(fleet.clone()));
        let power = Arc::new(Power::new(fleet.clone(), steps.clone(), vault.clone(), identities.clone()));
        let pools = Arc::new(Pools::new(fleet.clone(), requests.clone(), &machines));
        let upkeep = Arc::new(Upkeep::new(
            fleet.clone(),
            steps.clone(),
            telemetry.clone(),
            removals.clone(),
            requests.clone(),
            enrolments.clone(),
        ));
        let others = Arc::new(Others::new(fleet.clone(), steps.clone(), telemetry.clone(), upkeep.clone()));
        let engine = Self {
            sessions: Arc::new(Sessions::new(
                fleet.clone(),
                steps.clone(),
                alarms,
                identities.clone(),
                telemetry.clone(),
                tokens.clone(),
                accounts,
            )),
            documents: Arc::new(Documents::new(
                fleet.clone(),
                steps,
                identities,
                requests.clone(),
                removals,
                vault,
                sources,
            )),
            boot: Arc::new(Boot::new(fleet.clone(), tokens)),
            power,
            pools,
            upkeep,
            others,
            fleet,
            telemetry,
            requests,
            inspections,
            certificates,
            enrolments,
        };
        engine.upkeep.begin(&machines, workflows, |machine| engine.fleet.has(machine)).await?;
        Ok(engine)
    }

    /// Of several coordinators, this one does what one alone does from now on, as long as `unconfirmed` says so; and time passes here for
    /// the machines that none has. `takes_over`: another one did that until now.
    ///
    /// # Errors
    /// [`Problem`] of the store.
    pub async fn begin_to_lead(&self, unconfirmed: Unconfirmed, takes_over: bool) -> Result<(), Problem> {
        self.fleet.beside().set_lead(Some(unconfirmed));
        // What the one before has done at the end counts.
        self.fleet.hear_others().await?;
        let store = self.fleet.store();
        let (machines, workflows) = (store.machines().await?, store.workflows().await?);
        self.pools.claim_all(&machines);
        if takes_over && upkeep::last_beat(store, self.fleet.now()).await?.is_some() {
            // None was away, and the one before has marked what an older store holds.
            return Ok(());
        }
        self.upkeep
            .begin(&machines, workflows, |machine| self.fleet.has(machine) && !self.fleet.beside().has_session(machine))
            .await
    }

    /// It does that no more.
    pub fn cease_to_lead(&self) {
        self.fleet.beside().set_lead(None);
    }

    /// Goes by other settings from now on. What was already promised (a lease, a deadline) stands.
    pub fn reload(&self, settings: Settings) {
        self.fleet.reload(settings);
    }

    /// The documents' index, the settings, the time and the audit log.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Progress and logs.
    pub fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// What agents and installed systems say.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// What a person asks of a machine or a workflow.
    pub const fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Looks at machines that people asked for.
    pub fn inspections(&self) -> &Inspections {
        &self.inspections
    }

    /// Documents that people apply and delete.
    pub fn documents(&self) -> &Documents {
        &self.documents
    }

    /// Machines' certificates.
    pub fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// Which computer gets a certificate.
    pub const fn enrolments(&self) -> &Enrolments {
        &self.enrolments
    }

    /// What netbooting machines get.
    pub fn boot(&self) -> &Boot {
        &self.boot
    }

    /// Machines' power.
    pub fn power(&self) -> &Power {
        &self.power
    }

    /// Pools of machines.
    pub fn pools(&self) -> &Pools {
        &self.pools
    }

    /// What other coordinators store.
    pub fn others(&self) -> &Others {
        &self.others
    }

    /// What time changes.
    pub fn upkeep(&self) -> &Upkeep {
        &self.upkeep
    }
}

/// A fault of the coordinator itself.
fn internal(error: impl std::error::Error) -> Problem {
    Problem::new(ErrorCode::Internal, error.to_string()).caused_by(&error)
}
