//! A layout that a later action fills.

use landfall_disk::judge::Findings;

use super::*;

/// What the receipt says, and whether any firmware would look for a system on the disk.
fn stands(device: &Loop) -> (ReceiptState, bool) {
    let disk = landfall_disk::RealDevice::open_read_only(&device.path).unwrap();
    let found = Findings::of(&disk, 512).unwrap();
    (read_receipt(&device.path).unwrap().unwrap().state, found.anything_boots())
}

#[test]
fn a_layout_starts_nothing_until_its_last_fill_has_ended() {
    let storage = storage(json!({"disks": [{"partitions": [{"role": "boot", "size": "32MiB"}, {"role": "root"}]}]}));
    let Some(device) = device(128 * MIB, 512) else { return };
    let (report, target) = (Reporter::new(std::io::sink()), tempfile::tempdir().unwrap());
    let laid = WorkerJob { completes: false, ..job(&storage) };
    let context = Context { job: &laid, report: &report, target: target.path() };
    let tools = Installed { report: &report };
    lay_out(&context, &storage, vec![device.facts()], SelectionGuard::named(), &tools).unwrap();
    assert_eq!(stands(&device), (ReceiptState::Intent, false));

    // As after a restart of the machine: no table leads to the partitions.
    let forgotten = process::Command::new("blockdev").arg("--rereadpt").arg(&device.path).status().unwrap();
    assert!(forgotten.success() && !device.has(1));
    let mut fill = WorkerJob { completes: true, disks: vec![device.facts()], ..laid.clone() };
    fill.assignment.actions.push(fill.assignment.actions[0].clone());
    fill.assignment.start_index = 1;
    let context = Context { job: &fill, report: &report, target: target.path() };
    let held_back = HeldBack::of(&context).unwrap().unwrap();
    let mounted = held_back.layout.mount(target.path()).unwrap();
    fs::write(mounted.root().join("boot/file"), "x").unwrap();
    assert_eq!(stands(&device), (ReceiptState::Intent, false));
    held_back.finish(target.path(), &report).unwrap();
    mounted.close().unwrap();
    assert_eq!(stands(&device), (ReceiptState::Done, true));
    let receipt = read_receipt(&device.path).unwrap().unwrap();
    assert_eq!(receipt.action_index, 0, "it is that of the action which laid the disk out");

    // The power was cut before the end was reported.
    let again = HeldBack::of(&context).unwrap().unwrap();
    let disk = landfall_disk::RealDevice::open_read_only(&device.path).unwrap();
    assert!(!Findings::of(&disk, 512).unwrap().anything_boots());
    assert_eq!(stands(&device).0, ReceiptState::Intent);
    again.finish(target.path(), &report).unwrap();
    assert_eq!(stands(&device), (ReceiptState::Done, true));
    let mounted = again.layout.mount(target.path()).unwrap();
    assert_eq!(fs::read_to_string(mounted.root().join("boot/file")).unwrap(), "x");
    mounted.close().unwrap();
}

#[test]
fn a_retry_finishes_what_its_first_run_laid_out() {
    let storage = storage(json!({"disks": [{"partitions": [{"role": "root"}]}]}));
    let Some(device) = device(64 * MIB, 512) else { return };
    let (report, target) = (Reporter::new(std::io::sink()), tempfile::tempdir().unwrap());
    let laid = WorkerJob { completes: false, ..job(&storage) };
    let context = Context { job: &laid, report: &report, target: target.path() };
    lay_out(&context, &storage, vec![device.facts()], SelectionGuard::named(), &Installed { report: &report }).unwrap();
    let mut fill = WorkerJob { completes: true, disks: vec![device.facts()], ..laid.clone() };
    fill.assignment.actions.push(fill.assignment.actions[0].clone());
    fill.assignment.start_index = 1;
    fill.assignment.workflow_uid = workflow(2);
    let held_back = |job: &WorkerJob| {
        let context = Context { job, report: &report, target: target.path() };
        HeldBack::of(&context).map(|held_back| held_back.unwrap().finish(target.path(), &report).unwrap())
    };
    let refused = held_back(&fill).unwrap_err();
    assert_eq!(refused.problem.code, landfall_api::ErrorCode::ReceiptMismatch, "another workflow's layout");
    assert_eq!(stands(&device), (ReceiptState::Intent, false));
    fill.assignment.earlier_runs = vec![laid.assignment.workflow_uid];
    held_back(&fill).unwrap();
    assert_eq!(stands(&device), (ReceiptState::Done, true));
}
