//! Sessions of agents: each message is one input of its machine.

mod doubt;
mod events;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use landfall_api::message::{DiskReport, Hello, ToAgent, Vitals};
use landfall_api::{DiskReceipt, ErrorCode, Problem, Reason};
use landfall_machine::{Epoch, Input, Refusal, Session, newest_session};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::alarms::Alarms;
use super::bmc_accounts::BmcAccounts;
use super::fleet::{Fleet, Live};
use super::identities::Identities;
use super::steps::Steps;
use super::telemetry::Telemetry;
use super::tokens::Tokens;

/// A session that was accepted.
#[derive(Debug)]
pub struct Opened {
    /// The machine's name.
    pub machine: String,
    /// Its epoch: higher than every older session's of this machine.
    pub epoch: u64,
    /// The instructions for the agent, in order. It ends when the engine has closed the session.
    pub to_agent: mpsc::Receiver<ToAgent>,
    /// Between heartbeats.
    pub heartbeat: Duration,
    /// The coordinator's time.
    pub time: Timestamp,
}

/// What agents and installed systems say: each message is one input of its machine.
pub struct Sessions {
    fleet: Arc<Fleet>,
    steps: Steps,
    alarms: Arc<Alarms>,
    identities: Arc<Identities>,
    telemetry: Arc<Telemetry>,
    tokens: Arc<Tokens>,
    accounts: Arc<BmcAccounts>,
}

impl Sessions {
    pub(in crate::engine) const fn new(
        fleet: Arc<Fleet>, steps: Steps, alarms: Arc<Alarms>, identities: Arc<Identities>, telemetry: Arc<Telemetry>,
        tokens: Arc<Tokens>, accounts: Arc<BmcAccounts>,
    ) -> Self {
        Self { fleet, steps, alarms, identities, telemetry, tokens, accounts }
    }

    /// Accepts or refuses a session for the machine that the certificate names.
    ///
    /// # Errors
    /// [`Refusal`]: the machine is gone, the identity does not fit, or an older session of another computer may still
    /// be acting.
    pub async fn open_session(&self, machine_uid: Uuid, hello: Hello, address: String) -> Result<Opened, Refusal> {
        if self.fleet.has_lost_store() {
            // At once: the agent goes on to another coordinator.
            self.fleet.is_sure()?;
        }
        let mut live = self.fleet.machines().lock(machine_uid).await;
        let machine = self.fleet.machine_by_uid(machine_uid).await?;
        let name = machine.metadata.name.clone();
        if let Err(problem) = self.identities.check_identity(&machine, &hello.identity) {
            self.alarms.alarm(&name, Reason::IdentityMismatch, problem.message.clone()).await?;
            return Err(Refusal { problem, retry_after: Some(Duration::from_secs(60)) });
        }
        let known = self.known(&hello.receipts);
        let named = hello.running.map(|running| running.workflow_uid).or(hello.holds);
        let at_work = named.and_then(|uid| self.fleet.index().workflow_name(uid));
        let software = hello.software.clone();
        let hello = Box::new(hello);
        let input = |_: &_, _| Input::Hello { hello: hello.clone(), address: address.clone(), known: known.clone() };
        let driven = self.steps.drive_of(&mut live, &name, at_work.as_deref(), input).await?;
        let Some((epoch, to_agent)) = driven.opened else {
            return Err(
                Problem::new(ErrorCode::LimitReached, "the machine's documents have no room for a session").into()
            );
        };
        tracing::info!(machine = %name, epoch, %address, agent = %software, "session opened");
        let (heartbeat, time) = (self.fleet.settings().heartbeat, self.fleet.now());
        Ok(Opened { machine: name, epoch, to_agent, heartbeat, time })
    }

    /// An agent knows every disk now, or other disks are there.
    ///
    /// # Errors
    /// [`Problem`] with code `Fenced` if a newer session took its place, or if the store cannot be written.
    pub async fn disks(&self, machine_uid: Uuid, epoch: u64, report: DiskReport) -> Result<(), Problem> {
        let mut live = self.fleet.machines().lock(machine_uid).await;
        let name = self.fleet.machine_name(machine_uid)?;
        let known = self.known(&report.receipts);
        let input = Input::Disks { epoch: Epoch::new(epoch), report: Box::new(report), known };
        self.steps.drive(&mut live, &name, input).await.map(drop).map_err(|refused| refused.problem)
    }

    /// For each receipt: whether the store has the workflow that it names.
    fn known(&self, receipts: &[DiskReceipt]) -> Vec<bool> {
        let index = self.fleet.index();
        receipts.iter().map(|r| index.workflow_name(r.receipt.workflow_uid).is_some()).collect()
    }

    /// An agent was heard. Renews its lease, if it holds one.
    ///
    /// # Errors
    /// [`Problem`] with code `Fenced` if a newer session took its place.
    pub async fn heartbeat(&self, machine_uid: Uuid, epoch: u64, vitals: Vitals) -> Result<(), Problem> {
        let mut live = self.fleet.machines().lock(machine_uid).await;
        if self.fleet.own().is_some() {
            // Another one may have taken the machine over, and nothing more is to be promised.
            live.give_way(&*self.fleet.machine_by_uid(machine_uid).await?);
        }
        let (now, limits, epoch) = (self.fleet.moment(), self.fleet.limits(), Epoch::new(epoch));
        let session = newest_session(live.session.as_mut(), epoch)?;
        let unnoted = session.clone();
        let (was_silent, beat) = (session.is_silent(), session.beats(&limits, vitals, now));
        if beat.noted {
            live.session = Some(unnoted);
            let name = self.fleet.machine_name(machine_uid)?;
            match self.steps.drive(&mut live, &name, Input::Heartbeat { epoch, vitals }).await {
                Ok(_) => return Ok(()),
                // The agent was heard and has its lease; that people cannot read of it is no reason to end its session.
                Err(refused) => {
                    tracing::warn!(machine = %name, problem = %refused.problem, "a heartbeat could not be stored; the \
                        next one will be");
                    // Another coordinator would go on to count it as silent.
                    if was_silent && self.fleet.own().is_some() {
                        return Ok(());
                    }
                    newest_session(live.session.as_mut(), epoch)?.beats_unnoted(&limits, vitals, now);
                }
            }
        }
        if beat.renewed && self.fleet.may_promise() {
            let counts_from = Some(vitals.uptime);
            live.send(ToAgent::LeaseRenewal { epoch: epoch.get(), lease: limits.lease, counts_from });
        }
        Ok(())
    }

    /// The stream of a session ended. Its lease, if it has one, runs on.
    ///
    /// # Errors
    /// [`Problem`] if the store cannot be written.
    pub async fn close_session(&self, machine_uid: Uuid, epoch: u64, why: &str) -> Result<(), Problem> {
        let mut live = self.fleet.machines().lock(machine_uid).await;
        let epoch = Epoch::new(epoch);
        if newest_session(live.session.as_mut(), epoch).is_err() {
            return Ok(());
        }
        let Some(name) = self.fleet.index().machine_name(machine_uid) else {
            live.cut();
            return Ok(());
        };
        let closed = self.steps.drive(&mut live, &name, Input::Closed { epoch, why: why.to_owned() }).await;
        if closed.is_err() {
            live.cut();
            self.fleet.index().admission.absent(&name);
            self.steps.wake_queue();
        }
        closed.map(drop).map_err(|refused| refused.problem)
    }

    /// A fenced agent has stopped everything destructive; nothing of its lease is left.
    ///
    /// # Errors
    /// [`Problem`] if the store cannot be written.
    pub async fn fence_acknowledged(&self, machine_uid: Uuid, epoch: u64) -> Result<(), Problem> {
        let mut live = self.fleet.machines().lock(machine_uid).await;
        let Some(name) = self.fleet.index().machine_name(machine_uid) else { return Ok(()) };
        let acknowledged = Input::FenceAcknowledged { epoch: Epoch::new(epoch) };
        self.steps.drive(&mut live, &name, acknowledged).await.map(drop).map_err(|refused| refused.problem)
    }

    /// Whose run this is: a machine says nothing about another's.
    ///
    /// # Errors
    /// [`Problem`] if the store cannot be read.
    pub async fn machine_of_run(&self, workflow: Uuid) -> Result<Option<Uuid>, Problem> {
        let Some(name) = self.fleet.index().workflow_name(workflow) else { return Ok(None) };
        let Some(run) = self.fleet.store().workflow(&name).await? else { return Ok(None) };
        Ok(self.fleet.store().machine(&run.spec.machine).await?.and_then(|m| m.metadata.uid))
    }

    /// Whether the agent of this session may still say something: the session is the machine's newest.
    async fn hears(&self, live: &mut Live, machine_uid: Uuid, epoch: Epoch) -> Result<(), Problem> {
        if self.fleet.own().is_some() {
            // Another coordinator may have taken the machine over: in the log an event would have the number of the next one there.
            live.give_way(&*self.fleet.machine_by_uid(machine_uid).await?);
        }
        let now = self.fleet.moment();
        newest_session(live.session.as_mut(), epoch).map(|session: &mut Session| session.hears(now))
    }
}
