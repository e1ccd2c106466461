//! One machine's life, by the agent's own session library: enrol, hold the session, take the workflow, report it,
//! restart, phone home.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use jiff::Timestamp;
use landfall_api::message::{
    ActionKind, ActionRef, ActionResult, Assignment, EventBody, LogLevel, PhoneHomeReport, Proof, WriteImageResult,
};
use landfall_api::{DiskReceipt, Progress, Receipt, ReceiptState, SecretText};
use landfall_session::{
    AgentKey, Connection, Instruction, Session, SessionConfig, SessionHandle, Target, boot_time, enroll, phone_home,
};
use tokio::{sync::mpsc, time::timeout};

use crate::machine::Machine;

/// How often an enrolment is tried.
const ENROLMENTS: u32 = 5;

/// Unexpected events of a whole fleet.
#[derive(Debug, Default)]
pub struct Troubles {
    /// Sessions that the coordinator refused, for a time or for good.
    pub refused: AtomicU64,
    /// Sessions that were fenced, although no other session has these machines.
    pub fenced: AtomicU64,
    /// Workflows that the coordinator cancelled.
    pub cancelled: AtomicU64,
}

impl Troubles {
    /// How many of each: refused, fenced, cancelled.
    pub fn counts(&self) -> [u64; 3] {
        [&self.refused, &self.fenced, &self.cancelled].map(|count| count.load(Ordering::Relaxed))
    }
}

/// A machine whose agent holds a session and has its workflow.
#[derive(Debug)]
pub struct Agent {
    machine: Arc<Machine>,
    session: SessionHandle,
    assignment: Box<Assignment>,
    follow: tokio::task::JoinHandle<()>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.follow.abort();
    }
}

impl Agent {
    /// Enrols, opens the session and waits for the workflow, each for at most `limit`.
    ///
    /// # Errors
    /// Refused, or not in time.
    pub async fn start(
        machine: Arc<Machine>, target: Target, token: SecretText, troubles: Arc<Troubles>, limit: Duration,
    ) -> Result<Self> {
        let credentials = enrolled(&machine, &target, token).await?;
        let config = SessionConfig {
            target,
            credentials,
            software: env!("CARGO_PKG_VERSION").to_owned(),
            identity: machine.identity(),
            boot_id: machine.boot_id.clone(),
            enrolled_at: boot_time(),
        };
        let (session, mut instructions) = Session::start(config, machine.clone());
        let first = timeout(limit, first_assignment(&mut instructions)).await;
        let assignment = first.with_context(|| format!("{} got no workflow", machine.name))??;
        let follow = tokio::spawn(follow(instructions, troubles));
        Ok(Self { machine, session, assignment, follow })
    }

    /// The machine.
    pub fn name(&self) -> &str {
        &self.machine.name
    }

    /// The epoch of the session that is up now; `None` while there is none.
    pub fn epoch(&self) -> Option<u64> {
        match *self.session.connection().borrow() {
            Connection::Connected { epoch } => Some(epoch),
            _ => None,
        }
    }

    /// Waits for a session with a higher epoch than `epoch`.
    ///
    /// # Errors The session has ended for good, or did not open in time.
    pub async fn back(&self, epoch: u64, limit: Duration) -> Result<()> {
        let mut connection = self.session.connection();
        let settled = |c: &Connection| match c {
            Connection::Connected { epoch: newer } => *newer > epoch,
            Connection::Ended => true,
            _ => false,
        };
        match timeout(limit, connection.wait_for(settled)).await {
            Ok(Ok(connection)) if *connection != Connection::Ended => Ok(()),
            Ok(_) => bail!("the session of {} ended for good", self.name()),
            Err(_) => bail!("{} is not back", self.name()),
        }
    }

    /// Begins the first action.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn begin(&self) -> Result<()> {
        self.report(0, EventBody::Started).await
    }

    /// Reports the receipt on the disk; may be called repeatedly.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn mark(&self, state: ReceiptState) -> Result<()> {
        let receipt = self.receipt(state);
        self.machine.carry(receipt.clone());
        self.report(0, EventBody::ReceiptWritten { receipt }).await
    }

    /// Reports the end of the write, the seed, and the beginning of the restart: five events, without waiting.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn finish_write(&self) -> Result<()> {
        self.mark(ReceiptState::Done).await?;
        let result = WriteImageResult {
            receipt: Some(self.receipt(ReceiptState::Done)),
            written: true,
            stored_bytes: 700 << 20,
            raw_bytes: 2 << 30,
            written_bytes: 2 << 30,
            elapsed_ms: 4000,
        };
        self.report(0, EventBody::Finished { result: ActionResult::WriteImage(result) }).await?;
        self.report(1, EventBody::Started).await?;
        let seeded =
            ActionResult::CloudInit(landfall_api::message::CloudInitResult { root_device: "/dev/nvme0n1p1".into() });
        self.report(1, EventBody::Finished { result: seeded }).await?;
        self.report(2, EventBody::Started).await
    }

    /// Sends progress and log lines, as a write does.
    pub fn talk(&self, lines: u32) {
        for n in 0..lines {
            let raw_bytes = u64::from(n) << 20;
            let progress =
                Progress { raw_bytes, bytes_per_second: 500 << 20, stage: "write".into(), ..Progress::default() };
            self.session.progress(self.action(0), progress);
            let line = format!("{n}: wrote {raw_bytes} bytes to /dev/nvme0n1, 500 MiB/s, the slowest stage is fetch");
            self.session.log(self.action(0), LogLevel::Info, line);
        }
    }

    /// Waits until everything reported is acknowledged.
    ///
    /// # Errors
    /// It is not, in time.
    pub async fn flush(&self, limit: Duration) -> Result<()> {
        self.session.flush(limit).await.with_context(|| self.name().to_owned())
    }

    /// The restart, the session's end, and the installed system's call to that server.
    ///
    /// # Errors
    /// Whichever step fails.
    pub async fn end(self, client: &reqwest::Client, server: &str, limit: Duration) -> Result<()> {
        self.report(2, EventBody::Finished { result: ActionResult::Reboot }).await?;
        self.flush(limit).await?;
        self.session.close().await;
        let unit = self.assignment.actions.iter().find_map(|action| match &action.kind {
            ActionKind::CloudInit(seed) => seed.phone_home.as_ref(),
            _ => None,
        });
        let unit = unit.with_context(|| format!("{} got no phone-home unit", self.name()))?;
        let report = PhoneHomeReport { hostname: self.machine.name.clone(), ..PhoneHomeReport::default() };
        let url = format!("{server}/phone-home");
        phone_home(client, &url, &unit.bearer_token, &report).await.with_context(|| self.name().to_owned())
    }

    fn action(&self, action_index: u32) -> ActionRef {
        let attempt = if action_index == self.assignment.start_index { self.assignment.start_attempt } else { 1 };
        ActionRef { workflow_uid: self.assignment.workflow_uid, action_index, attempt }
    }

    async fn report(&self, action_index: u32, kind: EventBody) -> Result<()> {
        let reported = self.session.report(self.action(action_index), kind).await;
        reported.map(drop).with_context(|| self.name().to_owned())
    }

    fn receipt(&self, state: ReceiptState) -> DiskReceipt {
        let receipt = Receipt {
            machine_uid: self.assignment.machine_uid,
            workflow_uid: self.assignment.workflow_uid,
            workflow_name: self.assignment.workflow_name.clone(),
            generation: self.assignment.generation,
            action_index: 0,
            image_digest: None,
            state,
            written_at: Timestamp::UNIX_EPOCH,
        };
        DiskReceipt { disk: self.machine.disk(), receipt }
    }
}

async fn enrolled(machine: &Machine, target: &Target, token: SecretText) -> Result<landfall_session::Credentials> {
    let (key, proof) = (AgentKey::generate()?, Proof::BootToken(token));
    let (identity, mut tries) = (machine.identity(), 0);
    loop {
        tries += 1;
        match enroll(target, env!("CARGO_PKG_VERSION"), &identity, &machine.boot_id, &proof, &key).await {
            Ok(enrolled) if enrolled.machine_name == machine.name => return Ok(enrolled.credentials),
            Ok(enrolled) => bail!("{} was enrolled as {}", machine.name, enrolled.machine_name),
            Err(error) if error.retryable && tries < ENROLMENTS => tokio::time::sleep(Duration::from_secs(1)).await,
            Err(error) => return Err(anyhow!(error).context(machine.name.clone())),
        }
    }
}

async fn first_assignment(instructions: &mut mpsc::Receiver<Instruction>) -> Result<Box<Assignment>> {
    while let Some(instruction) = instructions.recv().await {
        match instruction {
            Instruction::Assign { assignment, .. } => return Ok(assignment),
            Instruction::Refused { problem, retry_after: None } => bail!("refused: {problem}"),
            Instruction::Refused { .. } => {}
            other => bail!("a workflow was expected, not {other:?}"),
        }
    }
    bail!("the session ended")
}

async fn follow(mut instructions: mpsc::Receiver<Instruction>, troubles: Arc<Troubles>) {
    while let Some(instruction) = instructions.recv().await {
        let trouble = match instruction {
            Instruction::Refused { .. } => &troubles.refused,
            Instruction::Fenced { .. } => &troubles.fenced,
            Instruction::Cancel { .. } => &troubles.cancelled,
            // A repeat after a reconnect: the library has taken its lease, and the work goes on.
            Instruction::Assign { .. }
            | Instruction::Check(_)
            | Instruction::Control { .. }
            | Instruction::Idle { .. } => continue,
        };
        trouble.fetch_add(1, Ordering::Relaxed);
    }
}
