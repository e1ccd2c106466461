//! Sessions: epochs, leases and fencing. One writer a machine.

use std::time::Duration;

use jiff::Timestamp;
use landfall_api::{DiskId, ErrorCode, Machine, Problem, SessionHolder, Workflow, WorkflowPhase};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::{
    Engine, Hello, Refusal, ToAgent, derive,
    enroll::check_identity,
    live::{Live, LiveSession, TO_AGENT},
};
use crate::workflow::Event;

/// An agent not heard for so many heartbeats is silent.
pub(super) const SILENT_AFTER: u32 = 3;
/// The status notes an agent's peak memory when it has grown by this much, bytes.
const RSS_STEP: u64 = 1 << 20;
/// An agent that outlived its session has so long to send what was not acknowledged, before it is told what to do.
const SETTLE: Duration = Duration::from_secs(3);

/// A session that was accepted.
#[derive(Debug)]
pub struct Opened {
    /// The machine's name.
    pub machine: String,
    /// Its epoch: higher than every older session's of this machine.
    pub epoch: u64,
    /// What the agent is to be told, in order. It ends when the engine has cut the session.
    pub to_agent: mpsc::Receiver<ToAgent>,
    /// Between heartbeats.
    pub heartbeat: Duration,
    /// The coordinator's time.
    pub time: Timestamp,
}

impl Engine {
    /// Accepts or refuses a session for the machine that the certificate names.
    ///
    /// # Errors
    /// [`Refusal`]: the machine is gone, the identity does not fit, or an older session of another computer may still
    /// be acting.
    pub async fn open_session(&self, machine_uid: Uuid, hello: Hello) -> Result<Opened, Refusal> {
        let mut live = self.inner.machines.lock(machine_uid).await;
        let machine = self.machine_by_uid(machine_uid).await?;
        let name = machine.metadata.name.clone();
        if let Err(problem) = check_identity(&machine, &hello.identity) {
            self.alarm(&name, "IdentityMismatch", problem.message.clone()).await?;
            return Err(Refusal { problem, retry_after: Some(Duration::from_secs(60)) });
        }
        let workflow = self.current_workflow(&machine).await?;
        self.remember_session(&mut live, &machine);
        if let Some(older) = &live.session
            && let Err(wait) = may_follow(older, &hello, workflow.as_ref(), self.now(), self.inner.settings.heartbeat)
        {
            let problem = Problem::new(
                ErrorCode::AmbiguousIdentity,
                format!(
                    "two computers claim machine \"{name}\": {} (boot {}) holds its session, {} (boot {}) asks for one",
                    older.address, older.boot_id, hello.address, hello.boot_id
                ),
            )
            .hint("give each computer a machine document and addresses of its own");
            self.alarm(&name, "TwoComputers", problem.message.clone()).await?;
            return Err(Refusal { problem, retry_after: Some(wait.max(Duration::from_secs(1))) });
        }
        let epoch = machine.status.as_ref().map_or(0, |s| s.epoch) + 1;
        if let Some(older) = &live.session {
            let reason = format!("a newer session of this machine (epoch {epoch}) was accepted");
            let fenced = ToAgent::Fenced { epoch: older.epoch, reason };
            live.send(fenced);
        }
        let held = self.note_hello(&name, epoch, &hello, workflow.as_ref()).await?;
        let (sender, to_agent) = mpsc::channel(TO_AGENT);
        let now = self.now();
        let same_process = hello.last_epoch != 0
            && live.session.as_ref().is_some_and(|s| s.boot_id == hello.boot_id)
            && workflow.as_ref().and_then(|w| w.status.as_ref()).is_some_and(|s| s.epoch <= hello.last_epoch);
        live.session = Some(LiveSession {
            epoch,
            boot_id: hello.boot_id.clone(),
            disks: hello.disks.clone(),
            address: hello.address.clone(),
            receipts: hello.receipts.clone(),
            to_agent: Some(sender),
            last_heard: now,
            leased: false,
            lease_until: now,
            silent: false,
            noted: now,
            peak_rss_bytes: 0,
            held,
            settling: false,
        });
        tracing::info!(machine = %name, epoch, address = %hello.address, agent = %hello.software, "session opened");
        self.stop_strangers(&mut live, &hello, workflow.as_ref());
        let running = hello.running.zip(workflow.as_ref()).is_some_and(|(r, w)| Some(r.workflow_uid) == w.metadata.uid);
        if !running
            && same_process
            && workflow.as_ref().and_then(|w| w.status.as_ref()).is_some_and(super::drive::is_running)
        {
            self.settle_later(&mut live, machine_uid, epoch);
        } else {
            self.connect(&mut live, workflow.as_ref(), running).await?;
        }
        Ok(Opened { machine: name, epoch, to_agent, heartbeat: self.inner.settings.heartbeat, time: now })
    }

    /// Lets the machine's run know that an agent is there, or tells the agent that there is none.
    pub(super) async fn connect(
        &self,
        live: &mut Live,
        workflow: Option<&Workflow>,
        still_running: bool,
    ) -> Result<(), Problem> {
        let Some(session) = &mut live.session else { return Ok(()) };
        session.settling = false;
        if session.held {
            live.send(ToAgent::Idle { boot_disk: false });
            return Ok(());
        }
        let (epoch, receipts) = (session.epoch, session.receipts.clone());
        match workflow {
            Some(workflow) => {
                let event = Event::AgentConnected { epoch, receipts, still_running };
                self.advance(live, &workflow.metadata.name, event).await?;
            }
            None => live.send(ToAgent::Idle { boot_disk: true }),
        }
        Ok(())
    }

    /// The same process came back and says that nothing runs: what it has not had acknowledged comes first, and shows
    /// whether it still works on its list. A second start must not be ordered before that is known.
    fn settle_later(&self, live: &mut Live, machine_uid: Uuid, epoch: u64) {
        if let Some(session) = &mut live.session {
            session.settling = true;
        }
        let engine = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(SETTLE).await;
            if let Err(problem) = engine.settle(machine_uid, epoch).await {
                tracing::error!(%problem, "a session did not settle; the agent hears of its run when it connects again");
            }
        });
    }

    /// The time to settle is over.
    pub(super) async fn settle(&self, machine_uid: Uuid, epoch: u64) -> Result<(), Problem> {
        let mut live = self.inner.machines.lock(machine_uid).await;
        if !live.session.as_ref().is_some_and(|s| s.epoch == epoch && s.settling) {
            return Ok(());
        }
        let machine = self.machine_by_uid(machine_uid).await?;
        let workflow = self.current_workflow(&machine).await?;
        // A failed attempt whose next one has not begun: the agent waits before it tries again, and still has its list.
        let retrying = workflow.as_ref().and_then(|w| w.status.as_ref()).is_some_and(|s| {
            let current = s.actions.iter().find(|a| a.state != landfall_api::ActionState::Succeeded);
            current.is_some_and(|a| a.attempt > 0 && a.ended_at.is_some())
        });
        self.connect(&mut live, workflow.as_ref(), retrying).await
    }

    /// An agent was heard. Renews its lease, if it holds one.
    ///
    /// # Errors
    /// [`Problem`] with code `Fenced` if a newer session took its place.
    pub async fn heartbeat(&self, machine_uid: Uuid, epoch: u64, peak_rss_bytes: u64) -> Result<(), Problem> {
        let mut live = self.inner.machines.lock(machine_uid).await;
        let now = self.now();
        let (lease, every) = (self.inner.settings.lease, self.inner.settings.heartbeat);
        let session = current(&mut live, epoch)?;
        session.last_heard = now;
        if session.leased {
            session.lease_until = now.checked_add(lease).unwrap_or(Timestamp::MAX);
        }
        let grown = peak_rss_bytes >= session.peak_rss_bytes + RSS_STEP;
        let renew = session.leased;
        // Heartbeats are many and the status is for people: it notes one in six, every return from silence, and memory.
        let note = session.silent || grown || now.duration_since(session.noted).unsigned_abs() >= every * 6;
        if note {
            session.silent = false;
            session.noted = now;
            session.peak_rss_bytes = session.peak_rss_bytes.max(peak_rss_bytes);
        }
        if renew {
            live.send(ToAgent::LeaseRenewal { epoch, lease });
        }
        if note {
            let name = self.machine_by_uid(machine_uid).await?.metadata.name;
            self.mutate_machine(&name, |machine| {
                let at = (now, machine.metadata.generation);
                let status = machine.status.get_or_insert_with(derive::new_machine_status);
                status.last_heard = Some(now);
                status.agent_peak_rss_bytes = status.agent_peak_rss_bytes.max(Some(peak_rss_bytes));
                derive::set(&mut status.conditions, "Connected", true, "Heard", "the agent is connected", at);
            })
            .await?;
        }
        Ok(())
    }

    /// The stream of a session ended. Its lease, if it has one, runs on.
    ///
    /// # Errors
    /// [`Problem`] if the store cannot be written.
    pub async fn close_session(&self, machine_uid: Uuid, epoch: u64, why: &str) -> Result<(), Problem> {
        let mut live = self.inner.machines.lock(machine_uid).await;
        let Ok(session) = current(&mut live, epoch) else { return Ok(()) };
        session.to_agent = None;
        session.silent = true;
        let Some(name) = self.index().machine_name(machine_uid) else { return Ok(()) };
        let (now, heard) = (self.now(), session.last_heard);
        self.mutate_machine(&name, |machine| {
            let at = (now, machine.metadata.generation);
            let status = machine.status.get_or_insert_with(derive::new_machine_status);
            status.last_heard = Some(heard);
            derive::set(&mut status.conditions, "Connected", false, "Disconnected", why, at);
        })
        .await
        .map(drop)
    }

    /// A fenced agent has stopped everything destructive; nothing of its lease is left.
    pub async fn fence_acknowledged(&self, machine_uid: Uuid, epoch: u64) {
        let mut live = self.inner.machines.lock(machine_uid).await;
        if let Some(session) = live.session.as_mut().filter(|s| s.epoch == epoch) {
            session.leased = false;
            session.lease_until = self.now();
        }
    }

    /// The agent may act from now on. Known to the store before the agent hears of it: a coordinator that starts again
    /// must not give the machine to somebody else meanwhile.
    pub(super) async fn take_lease(&self, live: &mut Live, machine: &str) -> Result<(), Problem> {
        let until = self.after(self.inner.settings.lease);
        let Some(session) = &mut live.session else { return Ok(()) };
        session.lease_until = until;
        if !std::mem::replace(&mut session.leased, true) {
            self.store_leased(machine, true).await?;
        }
        Ok(())
    }

    /// The run is over for the agent.
    pub(super) async fn release_lease(&self, live: &mut Live, machine: &str) -> Result<(), Problem> {
        let now = self.now();
        if let Some(session) = &mut live.session {
            session.leased = false;
            session.lease_until = now;
        }
        self.store_leased(machine, false).await
    }

    async fn store_leased(&self, machine: &str, leased: bool) -> Result<(), Problem> {
        self.mutate_machine(machine, |machine| {
            if let Some(holder) = machine.status.as_mut().and_then(|s| s.session.as_mut()) {
                holder.leased = leased;
            }
        })
        .await
        .map(drop)
    }

    pub(super) async fn machine_by_uid(&self, uid: Uuid) -> Result<Machine, Problem> {
        let gone = || {
            Problem::new(ErrorCode::NotFound, format!("no machine document has the uid {uid}"))
                .hint("apply the machine again, then restart it so that it enrols anew")
        };
        let name = self.index().machine_name(uid).ok_or_else(gone)?;
        self.inner.store.machine(&name).await?.ok_or_else(gone)
    }

    /// After a restart only the status knows of the session; when it was last heard, and so when its lease ends, is not
    /// known, so the worst is taken: heard just before the start.
    fn remember_session(&self, live: &mut Live, machine: &Machine) {
        let Some(status) = machine.status.as_ref().filter(|_| live.session.is_none()) else { return };
        let Some(holder) = &status.session else { return };
        let started = self.inner.started;
        let wait = if holder.leased { self.inner.settings.lease } else { self.inner.settings.heartbeat * SILENT_AFTER };
        live.session = Some(LiveSession {
            epoch: status.epoch,
            boot_id: holder.boot_id.clone(),
            disks: holder.disks.clone(),
            address: holder.address.clone(),
            receipts: status.receipts.clone(),
            to_agent: None,
            last_heard: status.last_heard.unwrap_or(started),
            leased: holder.leased,
            lease_until: started.checked_add(wait).unwrap_or(Timestamp::MAX),
            silent: true,
            noted: started,
            peak_rss_bytes: 0,
            held: false,
            settling: false,
        });
    }

    /// Stores the new epoch and what the hello says; whether the machine is held for a receipt nobody here wrote.
    async fn note_hello(
        &self,
        name: &str,
        epoch: u64,
        hello: &Hello,
        workflow: Option<&Workflow>,
    ) -> Result<bool, Problem> {
        let known = self.inner.store.workflows().await?;
        let forced = workflow.is_some_and(|w| {
            w.spec.authority.as_ref().is_some_and(|a| a.force)
                && w.status.as_ref().is_some_and(|s| !s.phase.is_terminal())
        });
        let now = self.now();
        let machine = self
            .mutate_machine(name, |machine| {
                let (at, uid) = ((now, machine.metadata.generation), machine.metadata.uid);
                let status = machine.status.get_or_insert_with(derive::new_machine_status);
                let stranger = hello.receipts.iter().find(|found| {
                    let receipt = &found.receipt;
                    let ours = known.iter().any(|w| {
                        w.metadata.uid == Some(receipt.workflow_uid) && uid == Some(receipt.machine_uid)
                    });
                    !ours && !status.receipts.iter().any(|r| r.receipt == *receipt && r.disk.same_disk(&found.disk))
                });
                let conditions = &mut status.conditions;
                match stranger {
                    Some(found) if !forced => {
                        let receipt = &found.receipt;
                        let message = format!(
                            "disk {} carries a receipt of run \"{}\" ({}, {:?}) that this store does not know; find out \
                             whether the store was restored from an old copy, then provision with --force",
                            found.disk.name, receipt.workflow_name, receipt.workflow_uid, receipt.state
                        );
                        derive::set(conditions, "ReceiptConflict", true, "UnknownReceipt", message, at);
                    }
                    _ => derive::set(conditions, "ReceiptConflict", false, "Known", "every receipt found is known", at),
                }
                derive::set(conditions, "Connected", true, "Hello", "the agent is connected", at);
                derive::set(conditions, "IdentityAmbiguous", false, "OneComputer", "one computer holds the session", at);
                if stranger.is_none() || forced {
                    status.receipts.clone_from(&hello.receipts);
                }
                status.epoch = epoch;
                status.last_heard = Some(now);
                status.agent = Some(format!("{} {}", hello.address, hello.software));
                if status.session.as_ref().is_none_or(|holder| holder.boot_id != hello.boot_id) {
                    status.agent_peak_rss_bytes = None;
                }
                status.enrolled_boottime_ms = Some(hello.enrolled_boottime_ms).filter(|ms| *ms > 0);
                status.session = Some(SessionHolder {
                    boot_id: hello.boot_id.clone(),
                    disks: hello.disks.clone(),
                    address: hello.address.clone(),
                    leased: status.session.as_ref().is_some_and(|s| s.leased),
                });
                derive::machine(machine, workflow, now);
            })
            .await?;
        Ok(machine.status.is_some_and(|s| derive::holds(&s.conditions, "ReceiptConflict")))
    }

    /// An agent that still works on a run which is over, or not this machine's newest, is told to stop it.
    fn stop_strangers(&self, live: &mut Live, hello: &Hello, workflow: Option<&Workflow>) {
        let Some(running) = hello.running else { return };
        let wanted = workflow.is_some_and(|w| {
            w.metadata.uid == Some(running.workflow_uid)
                && w.status.as_ref().is_some_and(|s| matches!(s.phase, WorkflowPhase::Running))
        });
        if !wanted {
            let reason = "this run is over or unknown here".to_owned();
            live.send(ToAgent::Cancel { workflow_uid: running.workflow_uid, reason });
        }
    }
}

/// The newest session, if `epoch` is its.
pub(super) fn current(live: &mut Live, epoch: u64) -> Result<&mut LiveSession, Problem> {
    live.session.as_mut().filter(|session| session.epoch == epoch).ok_or_else(|| {
        Problem::new(ErrorCode::Fenced, format!("session {epoch} was fenced by a newer one of this machine"))
    })
}

/// Whether a newer session may act although an older one was there; else how long to wait before asking again.
///
/// Yes, if the older one's time is over, if it is the same agent reconnecting (same boot), or if it is provably the
/// same computer booted again: it has the same disks, by names that a disk carries with itself, or carries the very
/// receipt that the older session was writing. An older session heard just now is proof of the contrary: a computer
/// that is booting again is silent for longer than a few heartbeats.
fn may_follow(
    older: &LiveSession,
    hello: &Hello,
    workflow: Option<&Workflow>,
    now: Timestamp,
    heartbeat: Duration,
) -> Result<(), Duration> {
    if older.boot_id == hello.boot_id {
        return Ok(());
    }
    let connected = older.to_agent.is_some();
    let quiet = older.last_heard.checked_add(heartbeat * SILENT_AFTER).unwrap_or(Timestamp::MAX);
    let over = if connected { older.lease_until.max(quiet) } else { older.lease_until };
    let running = workflow.and_then(|w| w.metadata.uid);
    let carries = hello.receipts.iter().any(|r| Some(r.receipt.workflow_uid) == running);
    let end = match same_disks(&older.disks, &hello.disks) || carries {
        true if connected => quiet,
        true => return Ok(()),
        false => over,
    };
    if now >= end { Ok(()) } else { Err(Duration::try_from(end.duration_since(now)).unwrap_or_default()) }
}

/// Whether both lists name the same disks, every one by a wwn or serial: a place on the bus proves nothing.
fn same_disks(a: &[DiskId], b: &[DiskId]) -> bool {
    let named = |d: &DiskId| !d.wwn.is_empty() || !d.serial.is_empty();
    !a.is_empty()
        && a.len() == b.len()
        && a.iter().all(|x| named(x) && b.iter().any(|y| x.same_disk(y)))
        && b.iter().all(|y| a.iter().any(|x| x.same_disk(y)))
}
