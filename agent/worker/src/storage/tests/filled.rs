//! A layout that a later action fills.

use landfall_api::{Digest, ImageAccess, Unpack, UnpackSource};
use landfall_disk::judge::Findings;

use super::*;

/// What the receipt says, and whether any firmware would look for a system on the disk.
fn stands(device: &Loop) -> (ReceiptState, bool) {
    let disk = landfall_disk::RealDevice::open_read_only(&device.path).unwrap();
    let found = Findings::of(&disk, 512).unwrap();
    (read_receipt(&device.path).unwrap().unwrap().state, found.anything_boots())
}

fn archive() -> Unpack {
    let source = UnpackSource::Archive { url: "http://h/a".into(), digest: Digest::from_sha256([1; 32]) };
    Unpack { source, access: ImageAccess::default(), path: "/".into(), disk: None }
}

#[test]
fn a_layout_starts_nothing_until_its_last_fill_has_ended() {
    let storage = storage(json!({"disks": [{"partitions": [{"role": "boot", "size": "32MiB"}, {"role": "root"}]}]}));
    let Some(device) = device(128 * MIB, 512) else { return };
    let (report, target) = (Reporter::new(std::io::sink()), tempfile::tempdir().unwrap());
    let laid = WorkerJob { commits: false, ..job(&storage) };
    let context = Context { job: &laid, report: &report, target: target.path() };
    let tools = Installed { report: &report };
    lay_out(&context, &storage, vec![device.facts()], SelectionGuard::named(), &tools).unwrap();
    assert_eq!(stands(&device), (ReceiptState::Intent, false));

    // As after a restart of the machine: no table leads to the partitions.
    let forgotten = process::Command::new("blockdev").arg("--rereadpt").arg(&device.path).status().unwrap();
    assert!(forgotten.success() && !device.has(1));
    let mut fill = WorkerJob { disks: vec![device.facts()], ..laid.clone() };
    fill.assignment.actions.push(fill.assignment.actions[0].clone());
    fill.assignment.start_index = 1;
    let context = Context { job: &fill, report: &report, target: target.path() };
    let held_back = Filled::of(&context, &archive()).unwrap().unwrap();
    let mounted = held_back.layout.mount(target.path()).unwrap();
    fs::write(mounted.root().join("boot/file"), "x").unwrap();
    assert_eq!(stands(&device), (ReceiptState::Intent, false));
    mounted.close().unwrap();
    assert_eq!(commit(&context).unwrap().mounts.len(), 2);
    assert_eq!(stands(&device), (ReceiptState::Done, true));
    let receipt = read_receipt(&device.path).unwrap().unwrap();
    assert_eq!(receipt.action_index, 0, "it is that of the action which laid the disk out");

    // The power was cut before the end was reported.
    let again = Filled::of(&context, &archive()).unwrap().unwrap();
    let disk = landfall_disk::RealDevice::open_read_only(&device.path).unwrap();
    assert!(!Findings::of(&disk, 512).unwrap().anything_boots());
    assert_eq!(stands(&device).0, ReceiptState::Intent);
    again.commit(target.path(), &report).unwrap();
    assert_eq!(stands(&device), (ReceiptState::Done, true));
    let before = fs::read(&device.path).unwrap();
    commit(&context).unwrap();
    assert!(fs::read(&device.path).unwrap() == before, "what is committed is left as it is");
    let mounted = again.layout.mount(target.path()).unwrap();
    assert_eq!(fs::read_to_string(mounted.root().join("boot/file")).unwrap(), "x");
    mounted.close().unwrap();
}

#[test]
fn a_retry_finishes_what_its_first_run_laid_out() {
    let storage = storage(json!({"disks": [{"partitions": [{"role": "root"}]}]}));
    let Some(device) = device(64 * MIB, 512) else { return };
    let (report, target) = (Reporter::new(std::io::sink()), tempfile::tempdir().unwrap());
    let laid = WorkerJob { commits: false, ..job(&storage) };
    let context = Context { job: &laid, report: &report, target: target.path() };
    lay_out(&context, &storage, vec![device.facts()], SelectionGuard::named(), &Installed { report: &report }).unwrap();
    let mut fill = WorkerJob { disks: vec![device.facts()], ..laid.clone() };
    fill.assignment.actions.push(fill.assignment.actions[0].clone());
    fill.assignment.start_index = 1;
    fill.assignment.workflow_uid = workflow(2);
    let committed = |job: &WorkerJob| commit(&Context { job, report: &report, target: target.path() });
    let refused = committed(&fill).unwrap_err();
    assert_eq!(refused.problem.code, landfall_api::ErrorCode::ReceiptMismatch, "another workflow's layout");
    assert_eq!(stands(&device), (ReceiptState::Intent, false));
    fill.assignment.earlier_runs = vec![laid.assignment.workflow_uid];
    committed(&fill).unwrap();
    assert_eq!(stands(&device), (ReceiptState::Done, true));
}
