//! On loop devices, with the programs of this machine. Skipped, loudly, where there are none.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::{fs, process};

use landfall_api::message::{ActionKind, Assignment, WorkerJob};
use landfall_api::{DiskReceipt, ReceiptState, StorageSpec};
use landfall_disk::{disk_at, read_receipt};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{commands::Command, *};
use crate::{Reporter, testing};

mod filled;
mod others;

const MIB: u64 = 1 << 20;

/// A loop device of a sparse file; its partitions show.
struct Loop {
    path: PathBuf,
    _file: tempfile::NamedTempFile,
}

impl Loop {
    fn new(size: u64, sector: u32) -> Result<Self, String> {
        let file = tempfile::NamedTempFile::new().map_err(|e| e.to_string())?;
        file.as_file().set_len(size).map_err(|e| e.to_string())?;
        let output = process::Command::new("losetup")
            .args(["--find", "--show", "--partscan", "--sector-size", &sector.to_string()])
            .arg(file.path())
            .output()
            .map_err(|e| format!("losetup: {e}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        Ok(Self { path: String::from_utf8_lossy(&output.stdout).trim().into(), _file: file })
    }

    fn facts(&self) -> DiskFacts {
        disk_at(&self.path).unwrap()
    }

    fn partition(&self, number: u32) -> PathBuf {
        format!("{}p{number}", self.path.display()).into()
    }

    /// Whether the kernel has this partition.
    fn has(&self, number: u32) -> bool {
        let name = self.partition(number).file_name().unwrap().to_owned();
        Path::new("/sys/class/block").join(name).exists()
    }

    /// One value that blkid reads from the device itself.
    fn blkid(&self, number: u32, tag: &str) -> String {
        let output =
            process::Command::new("blkid").args(["-p", "-o", "value", "-s", tag]).arg(self.partition(number)).output();
        String::from_utf8_lossy(&output.unwrap().stdout).trim().to_owned()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // Nothing more can be done about a device that stays.
        let _ = process::Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

/// A workflow of this test alone: others run at the same time, and mkfs.btrfs takes no UUID that any device has.
fn workflow(number: u64) -> Uuid {
    let mut hasher = DefaultHasher::new();
    (std::thread::current().name(), number).hash(&mut hasher);
    Uuid::from_u128(hasher.finish().into())
}

fn job(storage: &Storage) -> WorkerJob {
    let mut job = testing::job(ActionKind::Storage(storage.clone()));
    job.assignment.workflow_uid = workflow(1);
    job.assignment.person_authorised = false;
    job
}

fn storage(tree: Value) -> Storage {
    serde_json::from_value::<StorageSpec>(tree).unwrap().resolved()
}

/// Runs programs until it has run so many; the next one never starts, as if the power had gone.
struct Cut<'a> {
    tools: Installed<'a>,
    left: Mutex<usize>,
}

impl Tools for Cut<'_> {
    fn read(&self, command: &Command, each: &mut dyn FnMut(&str)) -> Result<(), Failure> {
        let mut left = self.left.lock().unwrap();
        match left.checked_sub(1) {
            Some(less) => *left = less,
            None => {
                let text = "the power was cut";
                return Err(Failure::last(landfall_api::Problem::new(landfall_api::ErrorCode::Internal, text)));
            }
        }
        self.tools.read(command, each)
    }
}

/// Performs the action on these disks; `programs`: how many may run. What it reported beside.
fn perform(
    storage: &Storage, disks: &[DiskFacts], programs: usize, change: impl FnOnce(&mut Assignment),
) -> Result<bool, Failure> {
    let report = Reporter::new(std::io::sink());
    let tools = Cut { tools: Installed { report: &report }, left: Mutex::new(programs) };
    perform_with(&tools, storage, disks, change)
}

/// The same with these tools.
fn perform_with(
    tools: &dyn Tools, storage: &Storage, disks: &[DiskFacts], change: impl FnOnce(&mut Assignment),
) -> Result<bool, Failure> {
    let (mut job, report) = (job(storage), Reporter::new(std::io::sink()));
    change(&mut job.assignment);
    let target = tempfile::tempdir().unwrap();
    let context = Context { job: &job, report: &report, target: target.path() };
    match lay_out(&context, storage, disks.to_vec(), SelectionGuard::named(), tools)? {
        ActionResult::Storage(StorageResult { written, .. }) => Ok(written),
        other => panic!("{other:?}"),
    }
}

fn simple() -> Value {
    json!({"disks": [{"partitions": [{"role": "esp", "size": "64MiB", "mount": "none", "label": "ESP"},
        {"role": "swap", "size": "16MiB"}, {"role": "var", "format": "xfs", "size": "320MiB"},
        {"role": "boot", "size": "32MiB"},
        {"role": "root", "format": "btrfs", "label": "wurzel", "subvolumes": [{"name": "@", "mount": "/"},
            {"name": "@/opt", "mount": "/opt", "options": "noatime"}]}]}]})
}

/// What must hold once the layout stands; the identities, which no repetition changes.
fn assert_stands(device: &Loop, storage: &Storage) -> Vec<String> {
    assert_eq!(read_receipt(&device.path).unwrap().unwrap().state, ReceiptState::Done);
    let kinds: Vec<String> = (1..=5).map(|n| device.blkid(n, "TYPE")).collect();
    assert_eq!(kinds, ["vfat", "swap", "xfs", "ext4", "btrfs"]);
    assert_eq!((device.blkid(1, "LABEL"), device.blkid(5, "LABEL")), ("ESP".into(), "wurzel".into()));
    let uuids: Vec<String> = (1..=5).map(|n| device.blkid(n, "UUID")).collect();
    let (job, report, target) = (job(storage), Reporter::new(std::io::sink()), tempfile::tempdir().unwrap());
    let tools = Installed { report: &report };
    let layout = Layout::new(&job, 0, storage, vec![device.facts()], &tools).unwrap();
    for uuid in &uuids {
        let listed = layout.plan.texts.fstab.contains(&format!("UUID={uuid} "));
        assert!(listed || *uuid == uuids[0], "{uuid}:\n{}", layout.plan.texts.fstab);
    }
    let mounted = layout.mount(target.path()).unwrap();
    fs::write(mounted.root().join("var/file"), "x").unwrap();
    fs::write(mounted.root().join("opt/file"), "y").unwrap();
    mounted.close().unwrap();
    let mounted = layout.mount(target.path()).unwrap();
    let read = |path: &str| fs::read_to_string(mounted.root().join(path)).unwrap();
    assert_eq!((read("var/file").as_str(), read("opt/file").as_str()), ("x", "y"));
    // A link in its place is replaced, and leads nowhere.
    fs::create_dir_all(mounted.root().join("etc/mdadm")).unwrap();
    std::os::unix::fs::symlink("/proc/version", mounted.root().join("etc/fstab.new")).unwrap();
    fs::rename(mounted.root().join("etc/fstab.new"), mounted.root().join("etc/fstab")).unwrap();
    layout.write_texts(mounted.root()).unwrap();
    assert_eq!(read("etc/fstab"), layout.plan.texts.fstab);
    assert!(!mounted.root().join("etc/crypttab").exists() && !mounted.root().join("etc/mdadm/mdadm.conf").exists());
    mounted.close().unwrap();
    uuids
}

fn device(size: u64, sector: u32) -> Option<Loop> {
    let made = Loop::new(size, sector);
    made.map_err(|why| eprintln!("SKIPPED: no loop device with {sector}-byte sectors: {why}")).ok()
}

#[test]
fn a_layout_stands_after_a_cut_before_any_program() {
    let storage = storage(simple());
    for sector in [512, 4096] {
        // FAT32 takes 264 MiB there.
        let mut storage = storage.clone();
        if sector == 4096 {
            storage.layout.disks[0].partitions[0].size = Some("280MiB".parse().unwrap());
        }
        let Some(device) = device(1200 * MIB, sector) else { continue };
        let disks = [device.facts()];
        // Seven programs: five file systems and two subvolumes.
        let mut identities = None;
        for programs in (0..7).filter(|n| sector == 512 || *n == 3) {
            let cut = perform(&storage, &disks, programs, |_| {}).unwrap_err();
            assert_eq!(cut.problem.message, "the power was cut", "{}", cut.problem);
            assert_eq!(read_receipt(&device.path).unwrap().unwrap().state, ReceiptState::Intent);
        }
        assert!(perform(&storage, &disks, 7, |_| {}).unwrap());
        for written in [false, false] {
            let uuids = assert_stands(&device, &storage);
            assert_eq!(identities.get_or_insert_with(|| uuids.clone()), &uuids);
            assert_eq!(perform(&storage, &disks, 0, |_| {}), Ok(written));
        }
    }
}

#[test]
fn a_disk_with_content_waits_for_a_person() {
    let storage = storage(json!({"disks": [{"partitions": [{"role": "root"}]}]}));
    let Some(device) = device(64 * MIB, 512) else { return };
    let disks = [device.facts()];
    fs::write(&device.path, vec![7; 1 << 20]).unwrap();
    let refused = perform(&storage, &disks, 9, |_| {}).unwrap_err();
    assert_eq!(refused.problem.code, landfall_api::ErrorCode::DiskNotBlank);
    assert!(perform(&storage, &disks, 9, |run| run.person_authorised = true).unwrap());
    let found = read_receipt(&device.path).unwrap().unwrap();
    // Another workflow, whose coordinator knows nothing of this one.
    let other = |run: &mut Assignment| (run.workflow_uid, run.person_authorised) = (workflow(2), true);
    let refused = perform(&storage, &disks, 9, other).unwrap_err();
    assert_eq!(refused.problem.code, landfall_api::ErrorCode::ReceiptMismatch);
    assert_eq!(read_receipt(&device.path).unwrap().unwrap(), found, "nothing was written");
    let known = |run: &mut Assignment| {
        other(run);
        run.expected_receipts = vec![DiskReceipt { disk: disks[0].id.clone(), receipt: found }];
    };
    assert!(perform(&storage, &disks, 9, known).unwrap());
}

#[test]
fn if_one_disk_is_refused_no_disk_is_changed() {
    let storage = storage(json!({"disks": [{"select": [{"name": "a"}, {"name": "b"}],
        "partitions": [{"name": "data", "format": "ext4"}]}]}));
    let (Some(blank), Some(full)) = (device(64 * MIB, 512), device(65 * MIB, 512)) else { return };
    fs::write(&full.path, vec![7; 1 << 20]).unwrap();
    let disks = [blank.facts(), full.facts()];
    let refused = perform(&storage, &disks, 9, |_| {}).unwrap_err();
    assert_eq!(refused.problem.code, landfall_api::ErrorCode::DiskNotBlank);
    assert_eq!(read_receipt(&blank.path).unwrap(), None);
    assert!(fs::read(&blank.path).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn if_one_disk_is_in_use_no_disk_is_changed() {
    let storage = storage(json!({"disks": [{"select": [{"name": "a"}, {"name": "b"}],
        "partitions": [{"name": "data", "format": "ext4"}]}]}));
    let (Some(free), Some(used)) = (device(64 * MIB, 512), device(65 * MIB, 512)) else { return };
    // As a mount of another namespace does.
    let hold =
        fs::OpenOptions::new().read(true).custom_flags(nix::fcntl::OFlag::O_EXCL.bits()).open(&used.path).unwrap();
    let refused = perform(&storage, &[free.facts(), used.facts()], 9, |_| {}).unwrap_err();
    assert_eq!(refused.problem.code, landfall_api::ErrorCode::DiskInUse);
    assert_eq!(read_receipt(&free.path).unwrap(), None);
    drop(hold);
    assert_eq!(perform(&storage, &[free.facts(), used.facts()], 9, |_| {}), Ok(true));
}

#[test]
fn unless_every_disk_is_done_all_are_made_anew() {
    let storage = storage(json!({"disks": [{"select": [{"name": "a"}, {"name": "b"}],
        "partitions": [{"name": "data", "format": "ext4"}]}]}));
    let (Some(one), Some(other)) = (device(64 * MIB, 512), device(65 * MIB, 512)) else { return };
    let disks = [one.facts(), other.facts()];
    assert_eq!(perform(&storage, &disks, 9, |_| {}), Ok(true));
    assert_eq!(perform(&storage, &disks, 9, |_| {}), Ok(false));
    // As if the power had gone between the two receipts.
    fs::write(&other.path, vec![0; 65 << 20]).unwrap();
    assert_eq!(perform(&storage, &disks, 9, |_| {}), Ok(true));
    for device in [&one, &other] {
        assert_eq!(read_receipt(&device.path).unwrap().unwrap().state, ReceiptState::Done);
        assert_eq!(device.blkid(1, "TYPE"), "ext4");
    }
}

#[test]
fn a_layout_that_does_not_mount_is_not_done() {
    let storage = storage(json!({"disks": [{"partitions": [{"role": "root", "options": "nonsense"}]}]}));
    let Some(device) = device(64 * MIB, 512) else { return };
    for _ in 0..2 {
        let refused = perform(&storage, &[device.facts()], 9, |_| {}).unwrap_err();
        assert!(refused.problem.message.starts_with("cannot mount / for "), "{}", refused.problem);
        assert_eq!(read_receipt(&device.path).unwrap().unwrap().state, ReceiptState::Intent);
    }
}

#[test]
fn an_unusable_key_is_refused_before_anything_changes() {
    let mut storage = storage(json!({"keys": {"k": "ge\theim"},
        "disks": [{"partitions": [{"role": "root", "encrypt": {"key": "k"}}]}]}));
    let Some(device) = device(64 * MIB, 512) else { return };
    let refused = perform(&storage, &[device.facts()], 9, |_| {}).unwrap_err();
    assert!(refused.problem.message.contains("the key k"), "{}", refused.problem);
    storage.keys.clear();
    perform(&storage, &[device.facts()], 9, |_| {}).unwrap_err();
    assert_eq!(read_receipt(&device.path).unwrap(), None);
}

#[test]
fn a_retry_finds_what_its_first_run_made() {
    let storage = storage(json!({"disks": [{"partitions": [{"role": "root"}]}]}));
    let facts = |name: &str| {
        let id = landfall_api::DiskId { name: name.into(), size_bytes: 64 * MIB, ..landfall_api::DiskId::default() };
        DiskFacts { id, logical_sector_bytes: 512, ..DiskFacts::default() }
    };
    let (first, report) = (job(&storage), Reporter::new(std::io::sink()));
    let tools = Installed { report: &report };
    let planned = |job: &WorkerJob, index: u32| {
        Layout::new(job, index, &storage, vec![facts("vda")], &tools).unwrap().plan.texts.fstab
    };
    let mut retry = first.clone();
    retry.assignment.workflow_uid = workflow(3);
    retry.assignment.earlier_runs = vec![workflow(2), first.assignment.workflow_uid];
    assert_eq!(planned(&retry, 0), planned(&first, 0));
    assert_ne!(planned(&first, 1), planned(&first, 0), "another action of the list");
    retry.assignment.earlier_runs.clear();
    assert_ne!(planned(&retry, 0), planned(&first, 0));
}

#[test]
fn what_is_preserved_survives_a_new_layout_and_a_cut() {
    let first = storage(json!({"disks": [{"partitions": [{"role": "root", "size": "40MiB"},
        {"name": "data", "size": "60MiB", "format": "ext4"}, {"role": "home"}]}]}));
    let second = storage(json!({"disks": [{"partitions": [{"role": "boot", "size": "16MiB"},
        {"name": "data", "preserve": true, "format": "ext4", "mount": "/srv"}, {"role": "root"}]}]}));
    let Some(device) = device(200 * MIB, 512) else { return };
    let disks = [device.facts()];
    assert!(perform(&first, &disks, 9, |_| {}).unwrap());
    let (job, report) = (job(&second), Reporter::new(std::io::sink()));
    let target = tempfile::tempdir().unwrap();
    let tools = Installed { report: &report };
    {
        let mut by_name = first.clone();
        by_name.layout.disks[0].partitions[1].mount = Some("/data".into());
        let layout = Layout::new(&job, 0, &by_name, disks.to_vec(), &tools).unwrap();
        let mounted = layout.mount(target.path()).unwrap();
        fs::write(mounted.root().join("data/file"), "kept").unwrap();
        mounted.close().unwrap();
    }
    let known = |run: &mut Assignment| {
        (run.workflow_uid, run.person_authorised, run.force) = (workflow(2), true, true);
    };
    assert!(perform(&second, &disks, 1, known).is_err());
    assert!(perform(&second, &disks, 9, known).unwrap());
    let layout = Layout::new(&job, 0, &second, disks.to_vec(), &tools).unwrap();
    let mounted = layout.mount(target.path()).unwrap();
    assert_eq!(fs::read_to_string(mounted.root().join("srv/file")).unwrap(), "kept");
    mounted.close().unwrap();
}

#[test]
fn what_is_mounted_from_the_disk_is_unmounted_first() {
    let storage = storage(json!({"disks": [{"partitions": [{"role": "root"}]}]}));
    let Some(device) = device(64 * MIB, 512) else { return };
    let disks = [device.facts()];
    assert!(perform(&storage, &disks, 9, |_| {}).unwrap());
    let at = tempfile::tempdir().unwrap();
    nix::mount::mount(Some(&device.partition(1)), at.path(), Some("ext4"), nix::mount::MsFlags::empty(), None::<&str>)
        .unwrap();
    let other = |run: &mut Assignment| {
        (run.workflow_uid, run.person_authorised, run.force) = (workflow(2), true, true);
    };
    assert!(perform(&storage, &disks, 9, other).unwrap());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(at.path().to_str().unwrap()), "it was unmounted");
}

#[test]
fn a_program_that_fails_is_named_with_its_last_words() {
    let Some(device) = device(64 * MIB, 512) else { return };
    let lines: Arc<Mutex<Vec<u8>>> = Arc::default();
    let report = Reporter::new(std::io::sink());
    let arguments = vec!["-q".into(), "-U".into(), "no uuid".into(), device.path.display().to_string()];
    let command = Command { program: "mkfs.ext4", arguments, input: None };
    let failed = Installed { report: &report }.run(&command).unwrap_err();
    assert_eq!(failed.problem.code, landfall_api::ErrorCode::ProgramFailed);
    assert!(failed.problem.message.starts_with("mkfs.ext4 failed with exit status: 1: "), "{}", failed.problem);
    assert!(!failed.problem.last_log_lines.is_empty() && lines.lock().unwrap().is_empty());
    let missing = Command { program: "no-such-program", arguments: Vec::new(), input: None };
    let failed = Installed { report: &report }.run(&missing).unwrap_err();
    assert!(failed.problem.message.contains("cannot run no-such-program"), "{}", failed.problem);
    assert!(Path::new("/dev/loop-control").exists());
}
