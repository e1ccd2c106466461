//! `wipe`: chooses the disks, checks all of them before it wipes the first, and calls `landfall_disk`.

use landfall_api::message::{ActionResult, EventBody, WipeResult};
use landfall_api::{DiskFacts, DiskReceipt, ErrorCode, Problem, WipeReport, WipeSpec};
use landfall_disk::{Disk, Observer, SelectionGuard, Unobserved, WipeRequest, WriteError};

use super::at_once::{Together, failure};
use super::chosen_disk::{list, not_begun_elsewhere};
use super::{Machine, authority, final_failure};
use crate::efi;
use crate::runner::{Failure, Job};

/// Wipes the disks, all at once: one alone may take a day. Blocks until each is wiped or has failed.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &WipeSpec) -> Result<ActionResult, Failure> {
    let requests = requests(machine, job, spec)?;
    each(job, &requests, |request, observer| {
        landfall_disk::wipe_disk(request, observer).map(|report| {
            machine.note_wiped(job.run.workflow_uid, report.disk.clone());
            tell(job, report);
        })
    })?;
    forget(&requests);
    Ok(ActionResult::Wipe(WipeResult { disks: requests.into_iter().map(|request| request.disk.id).collect() }))
}

/// Does that to all of the disks at once, once each of them may be wiped. Fails if one does, after all have ended.
pub(super) fn each(
    job: &Job, requests: &[WipeRequest], act: impl Fn(&WipeRequest, &dyn Observer) -> Result<(), WriteError> + Sync,
) -> Result<(), Failure> {
    let disks: Vec<DiskFacts> = requests.iter().map(|request| request.disk.clone()).collect();
    let all = Together::new(job, &disks);
    // If one disk must not be wiped, or supports no level that will do, no disk is wiped.
    for (n, request) in requests.iter().enumerate() {
        landfall_disk::wait_to_wipe(request, &all.of(n)).map_err(|e| failure(&e))?;
    }
    all.at_once(|n, observer| act(&requests[n], observer))
}

/// The firmware no longer lists the disks; where it does not take that, its entries lead nowhere.
pub(super) fn forget(requests: &[WipeRequest]) {
    if !efi::is_ours() {
        return;
    }
    match efi::forget(&requests.iter().map(|request| &request.disk).collect::<Vec<_>>()) {
        Ok(0) => {}
        Ok(n) => tracing::info!("{n} boot entries of the wiped disks are removed from the firmware"),
        Err(error) => {
            tracing::warn!("{error}. The firmware keeps boot entries of the wiped disks, which start nothing")
        }
    }
}

/// Reports a disk at once: another that fails later changes nothing of it.
pub(super) fn tell(job: &Job, report: WipeReport) {
    tracing::info!("disk {} is wiped: {}, {} samples", report.disk.name, report.method, report.samples);
    let disk = report.disk.name.clone();
    if job.report.report_blocking(job.action, EventBody::DiskWiped { report }).is_err() {
        tracing::warn!("the session has ended before the coordinator got the report of disk {disk}");
    }
}

/// Whether it would wipe them. Blocks while the disks are looked at; nothing is written.
pub(super) fn check(machine: &Machine, job: &Job, spec: &WipeSpec) -> Result<(), Failure> {
    for request in &requests(machine, job, spec)? {
        landfall_disk::may_wipe(request, &Unobserved).map_err(|e| failure(&e))?;
    }
    Ok(())
}

type Chosen = Vec<(DiskFacts, SelectionGuard)>;

/// A request for each disk.
pub(super) fn requests(machine: &Machine, job: &Job, spec: &WipeSpec) -> Result<Vec<WipeRequest>, Failure> {
    let disks = choose(machine, job, spec)?;
    Ok(disks.into_iter().map(|(disk, guard)| request(job, spec, disk, guard)).collect())
}

/// The disks that the action names; else every disk that carries, or is believed to carry, a receipt of this machine.
/// (A disk without the believed receipt was cleared by an attempt whose report was lost, or it is refused below.)
fn choose(machine: &Machine, job: &Job, spec: &WipeSpec) -> Result<Chosen, Failure> {
    let mut chosen: Chosen = Vec::new();
    if spec.disks.is_empty() {
        let disks = list()?;
        let found = machine.disks.receipts().on(&disks).receipts;
        let own = |r: &&DiskReceipt| r.receipt.machine_uid == job.run.machine_uid;
        let marked: Vec<&DiskReceipt> = found.iter().chain(&job.run.expected_receipts).filter(own).collect();
        chosen = carrying(&disks, &marked)?;
    }
    for selector in &spec.disks {
        let (disk, guard) = machine.choose(job, selector)?;
        if !chosen.iter().any(|(known, _)| known.id.same_disk(&disk.id)) {
            chosen.push((disk, guard));
        }
    }
    if !spec.disks.is_empty() && !job.run.force {
        let ids: Vec<_> = chosen.iter().map(|(disk, _)| &disk.id).collect();
        not_begun_elsewhere(job, &ids, &machine.disks.receipts().on(&list()?).receipts)?;
    }
    if chosen.is_empty() {
        let text = "no disk carries a receipt of this machine";
        return Err(final_failure(Problem::new(ErrorCode::NoDiskMatches, text).hint("name the disks to wipe")));
    }
    Ok(chosen)
}

/// The disks that carry one of these receipts.
fn carrying(disks: &[DiskFacts], marked: &[&DiskReceipt]) -> Result<Chosen, Failure> {
    let mut chosen = Vec::new();
    for disk in disks.iter().filter(|disk| marked.iter().any(|mark| mark.disk.same_disk(&disk.id))) {
        // Each path of a unit shows its receipt.
        Disk::no_lone_path(disk, disks).map_err(|error| final_failure(error.problem()))?;
        // Each is meant by its own receipt: a disk that appears later changes nothing for it.
        chosen.push((disk.clone(), SelectionGuard::named()));
    }
    Ok(chosen)
}

fn request(job: &Job, spec: &WipeSpec, disk: DiskFacts, selection: SelectionGuard) -> WipeRequest {
    WipeRequest { disk, level: spec.level, fallback: spec.fallback.clone(), authority: authority(job, selection) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use landfall_api::DiskId;
    use landfall_api::message::{ActionKind, Assignment};
    use uuid::Uuid;

    use super::*;
    use crate::actions::testing::{heard, write_image};
    use crate::disks::{Disks, done_by};

    #[test]
    fn both_paths_of_one_unit_are_not_wiped_at_once() {
        let disk = |name: &str, wwn: &str| {
            let id = DiskId { name: name.into(), wwn: wwn.into(), size_bytes: 10, ..DiskId::default() };
            DiskFacts { id, ..DiskFacts::default() }
        };
        let disks = [disk("sda", "0x5"), disk("sdb", "0x5"), disk("sdc", "0x6")];
        let mark = |disk: &DiskFacts| DiskReceipt { disk: disk.id.clone(), receipt: done_by(9) };
        let failure = carrying(&disks, &[&mark(&disks[0])]).map(drop).unwrap_err();
        assert_eq!(failure.problem.code, ErrorCode::AmbiguousDisk, "{}", failure.problem);
        let chosen = carrying(&disks, &[&mark(&disks[2])]).unwrap();
        assert_eq!(chosen.iter().map(|(disk, _)| disk.id.name.as_str()).collect::<Vec<_>>(), ["sdc"]);
    }

    #[tokio::test]
    async fn a_receipt_that_was_wiped_is_expected_no_more() {
        let machine = Machine::new(Disks::watch(None));
        let disk = |serial: &str| DiskId { serial: serial.into(), ..DiskId::default() };
        let (job, _) = heard(write_image("x"));
        let expected_receipts = ["a", "b"].map(|on| DiskReceipt { disk: disk(on), receipt: done_by(9) }).to_vec();
        let job = Job { run: Arc::new(Assignment { expected_receipts, ..(*job.run).clone() }), ..job };
        let expected = |job: &Job| {
            let after = machine.after_wipes(job.clone());
            assert!(matches!(after.kind, ActionKind::WriteImage(_)));
            after.run.expected_receipts.iter().map(|known| known.disk.serial.clone()).collect::<Vec<_>>().concat()
        };
        assert_eq!(expected(&job), "ab");
        machine.note_wiped(Uuid::from_u128(8), disk("b"));
        assert_eq!(expected(&job), "ab", "another workflow wiped it");
        machine.note_wiped(job.run.workflow_uid, disk("a"));
        assert_eq!(expected(&job), "b");
    }
}
