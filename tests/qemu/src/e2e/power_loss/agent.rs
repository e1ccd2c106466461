//! An agent's real session with the coordinator that will lose its power; the agent's own computer does nothing.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use landfall_api::message::{ActionRef, Assignment, EventBody};
use landfall_api::{DiskId, DiskReceipt, ErrorCode, Problem, Receipt, ReceiptState};
use landfall_session::testing::{Booted, Still};
use landfall_session::{Instruction, SessionHandle, Target};
use tokio::sync::mpsc;

use super::acks::{EVENTS_OF_AN_ATTEMPT, mark};

/// Generous: an emulated computer that is slow is not a failure.
const LIMIT: Duration = Duration::from_secs(120);

/// An agent that has its workflow.
pub(super) struct Agent {
    handle: SessionHandle,
    assignment: Box<Assignment>,
    disk: DiskId,
}

/// Asks for an agent's boot script as iPXE does; the coordinator will have moved to `url`.
pub(super) async fn boot(http: &str, mac: &str, url: &str) -> anyhow::Result<Booted> {
    let client = reqwest::Client::builder().no_proxy().timeout(LIMIT).build()?;
    let answer = client.get(format!("{http}/boot/ipxe?mac={mac}")).send().await?.error_for_status()?;
    let booted = Booted::of_script(&answer.text().await?).map_err(|error| anyhow!("{mac}: {error}"))?;
    let target = Target::new(url, booted.target.pins().to_vec())?;
    Ok(Booted { target, ..booted })
}

impl Agent {
    /// Enrols as its boot script says, and takes its workflow.
    pub(super) async fn start(boot: Booted, name: &str, mac: &str) -> anyhow::Result<Self> {
        let disk = DiskId { serial: name.to_owned(), size_bytes: 1 << 30, ..DiskId::default() };
        let mac = mac.parse().map_err(|_| anyhow!("{mac} is no address"))?;
        let started = boot.start(name, mac, Still(vec![disk.clone()])).await;
        let (handle, mut instructions) = started.map_err(anyhow::Error::msg)?;
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
