//! An agent's real session with the coordinator that will lose its power; the agent's own computer does nothing.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use landfall_api::{
    DiskId, DiskReceipt, ErrorCode, Problem, Receipt, ReceiptState, SecretText,
    message::{ActionRef, Assignment, EventBody, Identity, Proof, Vitals},
};
use landfall_session::{
    AgentKey, Host, Instruction, Looking, Seen, Session, SessionConfig, SessionHandle, Target, boot_time, enroll,
};
use tokio::sync::mpsc;

use super::acks::{EVENTS_OF_AN_ATTEMPT, mark};

/// Generous: an emulated computer that is slow is not a failure.
const LIMIT: Duration = Duration::from_secs(120);

struct Computer(DiskId);

impl Host for Computer {
    fn look(&self) -> Looking<'_> {
        Seen::disks(vec![self.0.clone()], vec![]).at_once()
    }
    fn vitals(&self) -> Vitals {
        Vitals { uptime: boot_time(), peak_rss_bytes: 1 << 20 }
    }
}

/// An agent that has its workflow.
pub(super) struct Agent {
    handle: SessionHandle,
    assignment: Box<Assignment>,
    disk: DiskId,
}

/// The settings in an agent's boot script.
pub(super) struct Boot {
    /// Where the coordinator is, and its pinned keys.
    pub(super) target: Target,
    token: SecretText,
}

impl Boot {
    /// Asks for the script as iPXE does.
    pub(super) async fn ask(http: &str, mac: &str) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder().no_proxy().timeout(LIMIT).build()?;
        let answer = client.get(format!("{http}/boot/ipxe?mac={mac}")).send().await?.error_for_status()?;
        let script = answer.text().await?;
        let word = |name: &str| {
            let rest = script.split(name).nth(1).and_then(|rest| rest.split_whitespace().next());
            rest.with_context(|| format!("no {name} in the boot script of {mac}: {script}"))
        };
        let target = Target::new(word("landfall.coordinator=")?, vec![word("landfall.ca=")?.parse()?])?;
        Ok(Self { target, token: SecretText::new(word("landfall.token=")?) })
    }

    /// The same for a coordinator that has moved.
    pub(super) fn at(self, url: &str) -> anyhow::Result<Self> {
        let target = Target::new(url, self.target.pins().to_vec())?;
        Ok(Self { target, ..self })
    }
}

impl Agent {
    /// Enrols as its boot script says, and takes its workflow.
    pub(super) async fn start(boot: Boot, name: &str, mac: &str) -> anyhow::Result<Self> {
        let identity =
            Identity { macs: vec![mac.parse().map_err(|_| anyhow!("{mac} is no address"))?], ..Identity::default() };
        let (key, proof, boot_id) = (AgentKey::generate()?, Proof::BootToken(boot.token), format!("boot-{name}"));
        let software = env!("CARGO_PKG_VERSION");
        let enrolled = enroll(&boot.target, software, &identity, &boot_id, &proof, &key).await;
        let config = SessionConfig {
            target: boot.target,
            credentials: enrolled.map_err(|error| anyhow!("{name} is not enrolled: {}", error.problem))?.credentials,
            software: software.to_owned(),
            identity,
            boot_id,
            enrolled_at: boot_time(),
        };
        let disk = DiskId { serial: name.to_owned(), size_bytes: 1 << 30, ..DiskId::default() };
        let (handle, mut instructions) = Session::start(config, Arc::new(Computer(disk.clone())));
        let first = tokio::time::timeout(LIMIT, instructions.recv()).await;
        let assignment = match first.with_context(|| format!("{name} got no workflow"))? {
            Some(Instruction::Assign { assignment, .. }) => assignment,
            other => bail!("{name} expected a workflow, not {other:?}"),
        };
        // It ignores all other instructions.
        tokio::spawn(drain(instructions));
        Ok(Self { handle, assignment, disk })
    }

    /// The workflow's name.
    pub(super) fn run(&self) -> &str {
        &self.assignment.workflow_name
    }

    /// Reports an attempt's event: the first states that it began, the last that it failed and may be retried, those
    /// between report a receipt. All but the first say which they are.
    pub(super) async fn report(&self, attempt: u32, seq: u64) -> anyhow::Result<()> {
        let kind = match seq {
            1 => EventBody::Started,
            EVENTS_OF_AN_ATTEMPT => {
                let problem = Problem::new(ErrorCode::SourceUnreachable, format!("broke {}", mark(attempt, seq)));
                EventBody::Failed { problem, retryable: true }
            }
            _ => EventBody::ReceiptWritten { receipt: self.receipt(mark(attempt, seq)) },
        };
        let action = ActionRef { workflow_uid: self.assignment.workflow_uid, action_index: 0, attempt };
        let given = self.handle.report(action, kind).await?;
        anyhow::ensure!(given == seq, "event {seq} of attempt {attempt} of {} got number {given}", self.run());
        Ok(())
    }

    /// Waits until everything reported is acknowledged.
    pub(super) async fn flush(&self) -> anyhow::Result<()> {
        self.handle.flush(LIMIT).await.with_context(|| self.run().to_owned())
    }

    fn receipt(&self, name: String) -> DiskReceipt {
        let receipt = Receipt {
            machine_uid: self.assignment.machine_uid,
            workflow_uid: self.assignment.workflow_uid,
            workflow_name: self.assignment.workflow_name.clone(),
            generation: self.assignment.generation,
            action_index: 0,
            image_digest: None,
            state: ReceiptState::Intent,
            written_at: jiff::Timestamp::now(),
        };
        DiskReceipt { disk: DiskId { name, ..self.disk.clone() }, receipt }
    }
}

async fn drain(mut instructions: mpsc::Receiver<Instruction>) {
    while instructions.recv().await.is_some() {}
}
