//! A fake disk: its receipt, what would boot from it, and a count of every install that went to it.

use std::collections::HashMap;

use landfall_api::{DiskId, DiskReceipt, ErrorCode, Problem, Receipt, ReceiptState, message::Assignment};
use uuid::Uuid;

/// The disk of one computer. It outlives every boot of it.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) id: DiskId,
    pub(crate) receipt: Option<DiskReceipt>,
    /// The workflow whose system would boot, and its seed's phone-home settings.
    pub(crate) installed: Option<(Uuid, Option<String>)>,
    /// Commits of each workflow.
    pub(crate) installs: HashMap<Uuid, u32>,
    pub(crate) written: u64,
}

/// Whether the receipt allows a write.
#[derive(Debug, PartialEq)]
pub(crate) enum Decision {
    Write,
    AlreadyDone,
}

impl Disk {
    /// The compare of compare-and-swap, as the agent's disk library does it.
    pub(crate) fn authorise(&self, run: &Assignment, action_index: u32) -> Result<Decision, Problem> {
        let found = self.receipt.as_ref().map(|mark| &mark.receipt);
        let same_run = |r: &Receipt| {
            (r.machine_uid, r.workflow_uid, r.action_index) == (run.machine_uid, run.workflow_uid, action_index)
        };
        match found.filter(|receipt| same_run(receipt)).map(|receipt| receipt.state) {
            Some(ReceiptState::Done) => return Ok(Decision::AlreadyDone),
            Some(ReceiptState::Intent) => return Ok(Decision::Write),
            None => {}
        }
        let expected = run.expected_receipts.iter().find(|mark| mark.disk.same_disk(&self.id)).map(|m| &m.receipt);
        let mark = |r: &Receipt| (r.machine_uid, r.workflow_uid, r.generation, r.action_index, r.state);
        if run.force || found.map(mark) == expected.map(mark) {
            return Ok(Decision::Write);
        }
        Err(Problem::new(ErrorCode::ReceiptMismatch, format!("found {found:?}, expected {expected:?}")))
    }

    /// The receipt of this workflow.
    pub(crate) fn mark(&self, run: &Assignment, action_index: u32, state: ReceiptState) -> DiskReceipt {
        let receipt = Receipt {
            machine_uid: run.machine_uid,
            workflow_uid: run.workflow_uid,
            workflow_name: run.workflow_name.clone(),
            generation: run.generation,
            action_index,
            image_digest: None,
            state,
            written_at: jiff::Timestamp::UNIX_EPOCH,
        };
        DiskReceipt { disk: self.id.clone(), receipt }
    }
}
