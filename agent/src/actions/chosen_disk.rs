//! Which disk an action may change: the one that its selector matches, now and until the first write.

use landfall_api::message::{ActionKind, AssignedAction};
use landfall_api::{DiskFacts, DiskId, DiskReceipt, DiskSelector, ErrorCode, HealthTest, Problem};
use landfall_disk::{Disk, SelectionGuard};
use uuid::Uuid;

use super::{Machine, final_failure};
use crate::runner::{Failure, Job};

/// The fields that a disk has wherever it is plugged in, and which the coordinator knows of a disk that is not there.
const OWN_FIELDS: [&str; 4] = ["wwn", "serial", "model", "size"];

impl Machine {
    /// The one disk that a selector matches among the present disks, and a guard that says whether that is still so.
    pub(super) fn choose(&self, job: &Job, selector: &DiskSelector) -> Result<(DiskFacts, SelectionGuard), Failure> {
        let set = self.disks.set();
        let disks = list()?;
        let disk = one(selector, &disks)?;
        none_hidden(&set.gave_up, job.run.person_authorised, &disk.id)?;
        if !job.run.force {
            nothing_missing(selector, &disk.id, &disks, &job.run.expected_receipts)?;
            if matches!(job.kind, ActionKind::WriteImage(_)) {
                not_begun_elsewhere(job, &[&disk.id], &self.disks.receipts().on(&disks).receipts)?;
            }
        }
        let guard = self.disks.guard(set.generation, selector, &disk.id);
        Ok((disk, guard))
    }

    /// All the disks from which the selectors of a layout choose; each was chosen as [`Self::choose`] does. And the names of
    /// those that do not answer.
    pub(super) fn choose_all<'s>(
        &self, job: &Job, selectors: impl Iterator<Item = &'s DiskSelector>,
    ) -> Result<(Vec<DiskFacts>, Vec<String>), Failure> {
        let disks = list()?;
        let mut chosen = Vec::new();
        for selector in selectors {
            let (disk, _) = self.choose(job, selector)?;
            // The worker chooses again, from `disks`.
            let first = one(selector, &disks)?;
            if !first.id.same_disk(&disk.id) {
                let message = format!("the selector chose disk {} and now chooses {}", first.id.name, disk.id.name);
                let problem = Problem::new(ErrorCode::DiskChanged, message).at(&disk.id.name);
                return Err(Failure { problem, retryable: true });
            }
            chosen.push(disk.id);
        }
        let found = self.disks.receipts().on(&disks);
        if !job.run.force {
            not_begun_elsewhere(job, &chosen.iter().collect::<Vec<_>>(), &found.receipts)?;
        }
        Ok((disks, found.unreadable.into_iter().map(|unread| unread.disk.name).collect()))
    }
}

/// Every disk that is present.
pub(super) fn list() -> Result<Vec<DiskFacts>, Failure> {
    landfall_disk::list_disks().map_err(|e| {
        final_failure(Problem::new(ErrorCode::DeviceIo, e.to_string()).caused_by(&e).hint("check that /sys is mounted"))
    })
}

/// The one disk of these that a selector matches.
pub(super) fn one(selector: &DiskSelector, disks: &[DiskFacts]) -> Result<DiskFacts, Failure> {
    Disk::select(selector, disks).cloned().map_err(|e| final_failure(e.problem()))
}

/// Whether an action replaces what is on this disk: what is there now says nothing of what follows.
pub(super) fn changes(action: &AssignedAction, disk: &DiskFacts, disks: &[DiskFacts]) -> bool {
    let chooses = |selector: &DiskSelector| Disk::select(selector, disks).is_ok_and(|it| it.id.same_disk(&disk.id));
    match &action.kind {
        ActionKind::WriteImage(spec) => chooses(&spec.disk),
        ActionKind::Storage(spec) => spec.selectors().any(chooses),
        ActionKind::HealthTest(HealthTest::Disks { write: true, disks: selectors, .. }) => {
            selectors.iter().any(chooses)
        }
        // Without selectors it clears each disk with a receipt of this machine.
        ActionKind::Wipe(spec) => spec.disks.is_empty() || spec.disks.iter().any(chooses),
        _ => false,
    }
}

/// Whether the last of these actions that replaces what is on the disk lays it out.
pub(super) fn is_laid_out(before: &[AssignedAction], disk: &DiskFacts, disks: &[DiskFacts]) -> bool {
    let last = before.iter().rev().find(|action| changes(action, disk, disks));
    last.is_some_and(|action| matches!(action.kind, ActionKind::Storage(_)))
}

/// Refuses a choice from a set of disks that may lack one, unless a person answers for it.
fn none_hidden(gave_up: &[String], person_authorised: bool, chosen: &DiskId) -> Result<(), Failure> {
    if gave_up.is_empty() || person_authorised {
        return Ok(());
    }
    let message = format!("not every disk is known, because the scan gave up: {}", gave_up.join(", "));
    let hint = "mend or remove that device, or request the workflow with landfall provision";
    Err(final_failure(Problem::new(ErrorCode::AmbiguousDisk, message).hint(hint).at(&chosen.name)))
}

/// Whether a workflow is the one that runs, or one whose work it took over.
pub(super) fn is_own(job: &Job, workflow: Uuid) -> bool {
    workflow == job.run.workflow_uid || job.run.earlier_runs.contains(&workflow)
}

/// Refuses a choice that falls on another disk than before: kernel names and addresses change over a restart, and the action
/// has begun, or ended, on a disk that is still there. `chosen`: all that the action takes.
pub(super) fn not_begun_elsewhere(job: &Job, chosen: &[&DiskId], receipts: &[DiskReceipt]) -> Result<(), Failure> {
    let index = job.action.action_index;
    let begun = |found: &&DiskReceipt| {
        let taken = chosen.iter().any(|disk| found.disk.same_disk(disk));
        found.receipt.action_index == index && is_own(job, found.receipt.workflow_uid) && !taken
    };
    let Some(begun) = receipts.iter().find(begun) else { return Ok(()) };
    let DiskId { name, serial, wwn, .. } = &begun.disk;
    let message = format!(
        "this action has begun to write disk {name} (serial {serial}, wwn {wwn}); its selectors now match {}",
        chosen.iter().map(|disk| format!("disk {}", disk.name)).collect::<Vec<_>>().join(", ")
    );
    let hint = "select the disk by serial or wwn: kernel names and addresses change when the machine restarts";
    Err(final_failure(Problem::new(ErrorCode::AmbiguousDisk, message).hint(hint).at(name)))
}

/// Refuses a choice that may fall on the wrong disk: a disk that this machine installed is missing, and the selector may mean
/// that one.
fn nothing_missing(
    selector: &DiskSelector, chosen: &DiskId, disks: &[DiskFacts], expected: &[DiskReceipt],
) -> Result<(), Failure> {
    if selector.states_by_id() {
        return Ok(());
    }
    let own: DiskSelector = DiskSelector(
        selector
            .0
            .iter()
            .filter(|(field, _)| OWN_FIELDS.contains(&field.as_str()))
            .map(|(field, value)| (field.clone(), value.clone()))
            .collect(),
    );
    let is_meant = |known: &&DiskReceipt| {
        let there = disks.iter().any(|disk| disk.id.same_disk(&known.disk));
        let facts = DiskFacts { id: known.disk.clone(), ..DiskFacts::default() };
        !there && own.mismatches(&facts).is_ok_and(|mismatches| mismatches.is_empty())
    };
    let Some(missing) = expected.iter().find(is_meant) else { return Ok(()) };
    let DiskId { name, serial, wwn, model, size_bytes, .. } = &missing.disk;
    let message = format!(
        "disk {name} (model {model}, serial {serial}, wwn {wwn}, {size_bytes} bytes) carries a receipt of this machine and is \
            missing; the selector would choose {} in its place",
        chosen.name
    );
    let hint =
        "connect it, or select the disk by serial or wwn; where it was replaced, run landfall provision with --force";
    Err(final_failure(Problem::new(ErrorCode::AmbiguousDisk, message).hint(hint).at(&chosen.name)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::actions::testing::{heard, write_image};
    use crate::disks::done_by;

    fn disk(serial: &str, size_bytes: u64) -> DiskFacts {
        let id = DiskId { name: format!("sd{serial}"), serial: serial.into(), size_bytes, ..DiskId::default() };
        DiskFacts { id, ..DiskFacts::default() }
    }

    fn receipt_on(serial: &str, size_bytes: u64) -> DiskReceipt {
        DiskReceipt { disk: disk(serial, size_bytes).id, receipt: done_by(1) }
    }

    #[test]
    fn only_a_person_chooses_while_a_disk_may_be_missing() {
        let waits = ["NVMe controller nvme0 is connecting".to_owned()];
        let may = |gave_up: &[String], person| none_hidden(gave_up, person, &disk("a", 1).id);
        assert_eq!((may(&[], false), may(&[], true), may(&waits, true)), (Ok(()), Ok(()), Ok(())));
        let refused = may(&waits, false).unwrap_err().problem;
        assert!(refused.code == ErrorCode::AmbiguousDisk && refused.message.contains("nvme0"), "{refused}");
    }

    #[test]
    fn a_write_that_begun_on_one_disk_takes_no_other() {
        let (write, _) = heard(write_image("x"));
        let begun = |run: u128, action_index: u32, on: &str| {
            let receipt = landfall_api::Receipt { action_index, ..done_by(run) };
            let chosen = [&disk("b", 1).id, &disk("c", 1).id];
            not_begun_elsewhere(&write, &chosen, &[DiskReceipt { disk: disk(on, 1).id, receipt }])
        };
        let refused = begun(1, 0, "a").unwrap_err();
        assert_eq!((refused.problem.code, refused.retryable), (ErrorCode::AmbiguousDisk, false));
        assert!(refused.problem.to_string().contains("serial a"), "{}", refused.problem);
        for (run, index, on) in [(1, 0, "b"), (1, 0, "c"), (1, 1, "a"), (7, 0, "a")] {
            assert_eq!(begun(run, index, on), Ok(()), "{run} {index} {on}");
        }
    }

    #[test]
    fn a_known_disk_that_is_missing_stops_a_vague_selector() {
        let there = [disk("b", 8 << 30)];
        let allowed = |selector: serde_json::Value, expected: &[DiskReceipt]| {
            let selector: DiskSelector = serde_json::from_value(selector).unwrap();
            nothing_missing(&selector, &there[0].id, &there, expected)
        };
        let missing = [receipt_on("a", 8 << 30)];
        let vague = [
            json!({}),
            json!({"size": ">= 1GiB"}),
            json!({"transport": "scsi"}),
            json!({"serial": "!= x"}),
            json!({"byId": "glob virtio-*"}),
            json!({"byId": "virtio-b"}),
        ];
        for vague in vague {
            let refused = allowed(vague.clone(), &missing).unwrap_err();
            let text = refused.problem.to_string();
            assert_eq!((refused.problem.code, refused.retryable), (ErrorCode::AmbiguousDisk, false), "{vague}");
            assert!(text.contains("serial a") && text.contains("missing") && text.contains("sdb"), "{text}");
        }
        let sure =
            [json!({"serial": "b"}), json!({"size": "< 8GiB"}), json!({"wwn": "0x5"}), json!({"byId": "wwn-0x5"})];
        for sure in sure {
            assert_eq!(allowed(sure.clone(), &missing), Ok(()), "{sure}");
        }
        assert_eq!(allowed(json!({}), &[receipt_on("b", 8 << 30)]), Ok(()), "it is there");
        assert_eq!(allowed(json!({}), &[]), Ok(()));
    }
}
