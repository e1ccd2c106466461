//! Sessions: epochs, leases and fencing. One writer a machine.

use std::time::Duration;

use jiff::Timestamp;
use landfall_api::{
    DiskId, DiskReceipt, ErrorCode, Machine, MachineStatus, Problem, ReceiptState, SessionHolder, Workflow,
    WorkflowPhase, WorkflowStatus,
};
use landfall_machine::stopping::Stopping;
use landfall_proto::OLDEST_PROTOCOL;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::{
    Engine, Hello, Refusal, ToAgent, derive, horizon, life,
    live::{Live, LiveSession, TO_AGENT},
};
use landfall_machine::run::Event;

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
        if let Err(problem) = self.check_identity(&machine, &hello.identity) {
            self.alarm(&name, "IdentityMismatch", problem.message.clone()).await?;
            return Err(Refusal { problem, retry_after: Some(Duration::from_secs(60)) });
        }
        speaks(&hello)?;
        let workflow = self.current_workflow(&machine).await?;
        self.remember_session(&mut live, &machine);
        if machine.metadata.deletion_timestamp.is_some() {
            return Err(self.refuse_deleted(&mut live, &name, &hello).await?);
        }
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
        // Above whatever this agent held before, also where a store put back from a copy has forgotten it.
        let newest = machine.status.as_ref().map_or(0, |s| s.epoch).max(hello.last_epoch);
        let Some(epoch) = newest.checked_add(1) else {
            return Err(Problem::new(ErrorCode::InvalidDocument, "no epoch can follow the one this agent held").into());
        };
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
        let named = hello.running.map(|running| running.workflow_uid).or(hello.holds);
        let over = match named {
            Some(run) => self.over(run).await?.map(|was| Stopping::new(run, &was)),
            None => None,
        };
        // The same agent, at work: what it was promised holds, and what it was told to stop it may not have heard.
        let at_work = live.session.take().filter(|older| older.boot_id == hello.boot_id && named.is_some());
        let (leased, lease_until, stopping) = at_work.map_or((false, now, None), |older| {
            // After a restart nobody knows that it was told to stop; its lease must not be renewed.
            let told = older.stopping.filter(|stopping| Some(stopping.run()) == named);
            (older.leased, older.lease_until, told.or(over.filter(|_| older.leased)))
        });
        live.session = Some(LiveSession {
            epoch,
            boot_id: hello.boot_id.clone(),
            disks: hello.disks.clone(),
            address: hello.address.clone(),
            protocol: hello.protocol,
            receipts: hello.receipts.clone(),
            to_agent: Some(sender),
            last_heard: now,
            leased,
            lease_until,
            stopping,
            silent: false,
            noted: now,
            peak_rss_bytes: 0,
            held,
            settling: false,
        });
        tracing::info!(machine = %name, epoch, address = %hello.address, agent = %hello.software, "session opened");
        self.stop_strangers(&mut live, &hello, workflow.as_ref());
        let running = named.is_some() && workflow.as_ref().is_some_and(|w| w.metadata.uid == named);
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

    /// The status of a run that an agent must not be working on; `None` if it may.
    async fn over(&self, run: Uuid) -> Result<Option<WorkflowStatus>, Problem> {
        let name = self.index().workflow_name(run);
        let found = match name {
            Some(name) => self.inner.store.workflow(&name).await?,
            None => None,
        };
        let status = found.and_then(|run| run.status).unwrap_or_default();
        Ok(Some(status).filter(|status| !super::drive::is_running(status)))
    }

    /// Lets the machine's run know that an agent is there, or tells the agent that there is none.
    ///
    /// An agent that could not be told is cut off: nobody would tell it later, and when it comes back it is asked anew.
    pub(super) async fn connect(
        &self,
        live: &mut Live,
        workflow: Option<&Workflow>,
        still_running: bool,
    ) -> Result<(), Problem> {
        let outcome = self.connect_once(live, workflow, still_running).await;
        if let (Err(problem), Some(session)) = (&outcome, &mut live.session)
            && session.to_agent.take().is_some()
        {
            tracing::warn!(epoch = session.epoch, %problem, "the session is cut; its agent connects again");
        }
        outcome
    }

    async fn connect_once(
        &self,
        live: &mut Live,
        workflow: Option<&Workflow>,
        still_running: bool,
    ) -> Result<(), Problem> {
        let Some(session) = &mut live.session else { return Ok(()) };
        session.settling = false;
        if session.held {
            // Whatever is there starts; only a disk that cannot boot waits here for the person's word.
            let begun = session.receipts.iter().any(|r| r.receipt.state == ReceiptState::Intent);
            live.send(ToAgent::Idle { boot_disk: !begun });
            return Ok(());
        }
        let (epoch, receipts, protocol) = (session.epoch, session.receipts.clone(), session.protocol);
        let Some(workflow) = workflow else {
            live.send(ToAgent::Idle { boot_disk: true });
            return Ok(());
        };
        let name = &workflow.metadata.name;
        let phase = workflow.status.as_ref().map(|s| s.phase);
        if phase != Some(WorkflowPhase::Running) {
            let machine = self.inner.store.machine(&workflow.spec.machine).await?;
            if let Some(Err(problem)) = machine.as_ref().map(life::may_begin) {
                tracing::info!(workflow = %name, %problem, "nothing begins");
                live.send(ToAgent::Idle { boot_disk: true });
                return Ok(());
            }
        }
        let waits = phase == Some(WorkflowPhase::Pending);
        if waits && !self.index().admission.begin(name) {
            tracing::info!(workflow = %name, machine = %workflow.spec.machine, "its agent waits for its turn");
            live.send(ToAgent::Idle { boot_disk: false });
            return Ok(());
        }
        if still_running && phase == Some(WorkflowPhase::Running) {
            // It acts under an older session's lease: whatever becomes of the run now, it does so until it says otherwise.
            self.take_lease(live, &workflow.spec.machine).await?;
        }
        let event = Event::AgentConnected { epoch, receipts, still_running, protocol };
        let stepped = self.advance(live, name, event).await;
        if waits {
            let runs = |w: &Workflow| w.status.as_ref().is_some_and(super::drive::is_running);
            let began = match &stepped {
                Ok(run) => runs(run),
                // It may have been stored as begun, and only the agent could not be told.
                Err(_) => self.inner.store.workflow(name).await.ok().flatten().is_some_and(|run| runs(&run)),
            };
            if !began {
                self.index().admission.did_not_begin(name);
                if stepped.is_ok() {
                    // It waits for a person, not for its turn.
                    self.index().admission.absent(&workflow.spec.machine);
                }
                self.wake_queue();
            }
        }
        stepped.map(drop)
    }

    /// Its certificate is useless from now on. An agent that says itself that nothing runs any more lets the document go.
    async fn refuse_deleted(&self, live: &mut Live, name: &str, hello: &Hello) -> Result<Refusal, Problem> {
        if let Some(older) = live.session.as_mut().filter(|s| s.boot_id == hello.boot_id)
            && hello.running.is_none()
        {
            older.leased = false;
        }
        self.finish_deletion(live, name).await?;
        let problem = Problem::new(ErrorCode::Revoked, format!("machine \"{name}\" was deleted"))
            .hint("apply it again, then restart the machine so that it enrols anew");
        Ok(Refusal { problem, retry_after: None })
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
                tracing::error!(%problem, "a session did not settle; it is cut, and its agent connects again");
            }
        });
    }

    /// The time to settle is over.
    pub(super) async fn settle(&self, machine_uid: Uuid, epoch: u64) -> Result<(), Problem> {
        let mut live = self.inner.machines.lock(machine_uid).await;
        if !live.session.as_ref().is_some_and(|s| s.epoch == epoch && s.settling) {
            return Ok(());
        }
        let workflow = match self.machine_by_uid(machine_uid).await {
            Ok(machine) => self.current_workflow(&machine).await,
            Err(problem) => Err(problem),
        };
        let workflow = workflow.inspect_err(|_| {
            if let Some(session) = &mut live.session {
                session.to_agent = None;
            }
        })?;
        // A failed attempt whose next one has not begun: the agent waits before it tries again, and still has its list.
        let retrying = workflow
            .as_ref()
            .and_then(|w| w.status.as_ref())
            .is_some_and(landfall_machine::run::conditions::between_attempts);
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
        let renew = session.leased && session.stopping.is_none();
        if renew {
            session.lease_until = now.checked_add(lease).unwrap_or(Timestamp::MAX);
        }
        let grown = peak_rss_bytes >= session.peak_rss_bytes + RSS_STEP;
        // Heartbeats are many and the status is for people: it notes one in six, every return from silence, and memory.
        let note = session.silent || grown || now.duration_since(session.noted).unsigned_abs() >= every * 6;
        let before = (session.silent, session.noted, session.peak_rss_bytes);
        if note {
            session.silent = false;
            session.noted = now;
            session.peak_rss_bytes = session.peak_rss_bytes.max(peak_rss_bytes);
        }
        if renew {
            live.send(ToAgent::LeaseRenewal { epoch, lease });
        }
        if note {
            let name = self.machine_name(machine_uid)?;
            let noted = self.mutate_machine(&name, |machine| {
                let at = (now, machine.metadata.generation);
                let status = machine.status.get_or_insert_with(derive::new_machine_status);
                status.last_heard = Some(now);
                status.agent_peak_rss_bytes = status.agent_peak_rss_bytes.max(Some(peak_rss_bytes));
                derive::set(&mut status.conditions, "Connected", true, "Heard", "the agent is connected", at);
            });
            // The agent was heard and has its lease; that nobody can read of it is no reason to end its session.
            if let Err(problem) = noted.await
                && let Some(session) = &mut live.session
            {
                tracing::warn!(machine = %name, %problem, "a heartbeat was not noted; the next one is");
                (session.silent, session.noted, session.peak_rss_bytes) = before;
            }
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
        let heard = session.last_heard;
        self.leaves_queue(machine_uid);
        let Some(name) = self.index().machine_name(machine_uid) else { return Ok(()) };
        let now = self.now();
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
    ///
    /// # Errors
    /// [`Problem`] if the store cannot be written.
    pub async fn fence_acknowledged(&self, machine_uid: Uuid, epoch: u64) -> Result<(), Problem> {
        let mut live = self.inner.machines.lock(machine_uid).await;
        let now = self.now();
        let Some(session) = live.session.as_mut().filter(|s| s.epoch == epoch) else { return Ok(()) };
        (session.leased, session.stopping, session.lease_until) = (false, None, now);
        let Some(name) = self.index().machine_name(machine_uid) else { return Ok(()) };
        self.finish_deletion(&mut live, &name).await
    }

    /// The agent may act from now on. Known to the store before the agent hears of it: a coordinator that starts again
    /// must not give the machine to somebody else meanwhile.
    pub(super) async fn take_lease(&self, live: &mut Live, machine: &str) -> Result<(), Problem> {
        let until = self.after(self.inner.settings.lease);
        let Some(session) = &live.session else { return Ok(()) };
        if !session.leased {
            // First, and again if it fails: what is known here alone is forgotten with this process.
            self.store_leased(machine, true).await?;
        }
        if let Some(session) = &mut live.session {
            (session.leased, session.lease_until, session.stopping) = (true, until, None);
        }
        Ok(())
    }

    /// The run is over for the agent.
    pub(super) async fn release_lease(&self, live: &mut Live, machine: &str) -> Result<(), Problem> {
        let now = self.now();
        if let Some(session) = &mut live.session {
            session.leased = false;
            session.stopping = None;
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
        let name = self.machine_name(uid)?;
        self.inner.store.machine(&name).await?.ok_or_else(|| no_machine(uid))
    }

    /// The name alone: most who hear of a machine need no more, and its document is large.
    pub(super) fn machine_name(&self, uid: Uuid) -> Result<String, Problem> {
        self.index().machine_name(uid).ok_or_else(|| no_machine(uid))
    }

    /// After a restart only the status knows of the session; when it was last heard, and so when its lease ends, is not
    /// known, so the worst is taken: heard just before the start.
    pub(super) fn remember_session(&self, live: &mut Live, machine: &Machine) {
        let Some(status) = machine.status.as_ref().filter(|_| live.session.is_none()) else { return };
        let Some(holder) = &status.session else { return };
        let started = self.inner.started;
        let wait = if holder.leased { self.inner.settings.lease } else { self.inner.settings.heartbeat * SILENT_AFTER };
        live.session = Some(LiveSession {
            epoch: status.epoch,
            boot_id: holder.boot_id.clone(),
            disks: holder.disks.clone(),
            address: holder.address.clone(),
            // Whatever it spoke, its stream is gone.
            protocol: 0,
            receipts: status.receipts.clone(),
            to_agent: None,
            last_heard: status.last_heard.unwrap_or(started),
            leased: holder.leased,
            lease_until: started.checked_add(wait).unwrap_or(Timestamp::MAX),
            stopping: None,
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
        let (now, horizon) = (self.now(), self.inner.horizon);
        let run_known: Vec<bool> = {
            let index = self.index();
            hello.receipts.iter().map(|found| index.workflow_name(found.receipt.workflow_uid).is_some()).collect()
        };
        let open = workflow.filter(|w| w.status.as_ref().is_some_and(|s| !s.phase.is_terminal()));
        let machine = self
            .mutate_machine(name, |machine| {
                let (at, uid) = ((now, machine.metadata.generation), machine.metadata.uid);
                machine.status.get_or_insert_with(derive::new_machine_status);
                horizon::judge(machine, hello, workflow, at);
                let newer = open.and_then(|run| horizon::newer(&horizon, machine, hello, run));
                let status = machine.status.get_or_insert_with(derive::new_machine_status);
                let stranger = hello.receipts.iter().zip(&run_known).map(|(found, known)| {
                    let ours = *known && uid == Some(found.receipt.machine_uid);
                    let seen = status.receipts.iter().any(|r| r.receipt == found.receipt && r.disk.same_disk(&found.disk));
                    (found, ours || seen)
                });
                // Taken over as it was, and nothing asked for since: whatever is there is as it should be.
                let adopted = status.adopted.is_some() && open.is_none();
                let stranger = stranger
                    .filter(|(found, known)| !known && !adopted && !open.is_some_and(|run| meant(run, found)))
                    .map(|(found, _)| (found, "that this store does not know"))
                    .next();
                let conditions = &mut status.conditions;
                let found = newer.map(|newer| (newer, "NewerThanStore")).or(stranger.map(|s| (s, "UnknownReceipt")));
                match found {
                    Some(((found, what), reason)) => {
                        let receipt = &found.receipt;
                        let message = format!(
                            "disk {} carries a receipt of run \"{}\" ({}, {:?}), {what}; find out whether the store was \
                             restored from an old copy, then adopt the machine as it is, or provision with --force",
                            found.disk.name, receipt.workflow_name, receipt.workflow_uid, receipt.state
                        );
                        derive::set(conditions, "ReceiptConflict", true, reason, message, at);
                    }
                    None => {
                        derive::set(conditions, "ReceiptConflict", false, "Known", "every receipt found is known", at);
                    }
                }
                let under_way = open.and_then(|w| w.status.as_ref()).is_some_and(|s| s.phase != WorkflowPhase::Pending);
                note_lost(status, hello, under_way, at);
                let conditions = &mut status.conditions;
                derive::set(conditions, "Connected", true, "Hello", "the agent is connected", at);
                derive::set(conditions, "IdentityAmbiguous", false, "OneComputer", "one computer holds the session", at);
                if found.is_none() {
                    // Of a disk that is not there now, nothing is known anew.
                    status.receipts.retain(|known| !hello.disks.iter().any(|disk| disk.same_disk(&known.disk)));
                    status.receipts.retain(|known| !hello.receipts.iter().any(|r| r.disk.same_disk(&known.disk)));
                    status.receipts.extend(hello.receipts.iter().cloned());
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
                derive::conditions(machine, workflow, now);
            })
            .await?;
        Ok(machine.status.is_some_and(|s| derive::held(&s.conditions).is_some()))
    }

    /// An agent that still works on a run which is over, or not this machine's newest, is told to stop it.
    fn stop_strangers(&self, live: &mut Live, hello: &Hello, workflow: Option<&Workflow>) {
        let Some(running) = hello.running.map(|running| running.workflow_uid).or(hello.holds) else { return };
        let wanted = workflow.is_some_and(|w| {
            w.metadata.uid == Some(running)
                && w.status.as_ref().is_some_and(|s| matches!(s.phase, WorkflowPhase::Running))
        });
        if !wanted {
            let reason = "this run is over or unknown here".to_owned();
            live.send(ToAgent::Cancel { workflow_uid: running, reason });
        }
    }
}

/// Whether the person who said `--force` for this run can have meant this receipt: it was shown to them, or is older than
/// their word. (Forcing is for what was there, not for what a run in between has installed.)
fn meant(run: &Workflow, found: &DiskReceipt) -> bool {
    let shown = |known: &DiskReceipt| known.receipt == found.receipt && known.disk.same_disk(&found.disk);
    run.spec.authority.as_ref().is_some_and(|by| {
        let shown = run.status.as_ref().is_some_and(|s| s.expected_receipts.iter().any(shown));
        by.force && (shown || found.receipt.written_at <= by.at)
    })
}

/// `NoReceipt`: we installed it, the disk is there, and the mark is not. From now on only a person starts an install.
fn note_lost(status: &mut MachineStatus, hello: &Hello, under_way: bool, at: (Timestamp, u64)) {
    let there = |known: &&DiskReceipt| hello.disks.iter().any(|disk| disk.same_disk(&known.disk));
    let marked = |known: &DiskReceipt| hello.receipts.iter().any(|r| r.disk.same_disk(&known.disk));
    let mut installed = status.receipts.iter().filter(|r| r.receipt.state == ReceiptState::Done).filter(there);
    let lost = installed.find(|known| !marked(known));
    let conditions = &mut status.conditions;
    match lost {
        Some(lost) if !under_way && derive::holds(conditions, "Provisioned") => {
            let (disk, run) = (&lost.disk, &lost.receipt.workflow_name);
            let disk = [&disk.name, &disk.serial, &disk.wwn, &disk.path].into_iter().find(|s| !s.is_empty());
            let disk = disk.map_or("?", String::as_str);
            let message = format!(
                "disk {disk} was installed by run \"{run}\" and carries its receipt no more: somebody partitioned it \
                 anew; only a person starts an install of it"
            );
            derive::set(conditions, "NoReceipt", true, "Lost", message, at);
        }
        _ if !hello.receipts.is_empty() && derive::holds(conditions, "NoReceipt") => {
            derive::set(conditions, "NoReceipt", false, "Found", "a disk carries a receipt", at);
        }
        _ => {}
    }
}

fn no_machine(uid: Uuid) -> Problem {
    Problem::new(ErrorCode::NotFound, format!("no machine document has the uid {uid}"))
        .hint("apply the machine again, then restart it so that it enrols anew")
}

/// Whether the agent speaks a protocol that is still spoken here. A newer one does: what it says that is not known here is
/// answered with a problem, and what it is told it knows.
fn speaks(hello: &Hello) -> Result<(), Refusal> {
    if hello.protocol >= OLDEST_PROTOCOL {
        return Ok(());
    }
    let message = format!(
        "this machine's agent (version {}) speaks protocol {}, and this coordinator needs at least {OLDEST_PROTOCOL}",
        hello.software, hello.protocol
    );
    let problem = Problem::new(ErrorCode::VersionSkew, message)
        .hint("build a new boot image with landfall-image, and let the machine netboot it");
    Err(Refusal { problem, retry_after: None })
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
    // On a disk that the older session had: another computer may carry a mark of this run too, from when it had the run.
    let theirs = |disk: &DiskId| older.disks.iter().any(|known| known.same_disk(disk));
    let carries = hello.receipts.iter().any(|r| Some(r.receipt.workflow_uid) == running && theirs(&r.disk));
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
