//! A job for the tests of this crate, and a place where they can do no harm.

use std::{env, fs, panic::resume_unwind, path::Path, thread, time::Duration};

use landfall_api::message::{ActionKind, AssignedAction, Assignment, Retry, WorkerJob};
use landfall_api::{ContainerNetwork, ImageAccess, RunContainer};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use nix::unistd::{chdir, chroot, mkdir};
use uuid::Uuid;

/// Does `work` in a thread whose root is an empty directory, so that code under test which leaves the new system, because it is
/// broken, finds none of this machine's files. A test is skipped where that cannot be: it never runs without.
pub(crate) fn caged(work: impl FnOnce() + Send) {
    caged_in(tempfile::tempdir().unwrap().path(), work);
}

/// The same with this directory, which may hold files already.
pub(crate) fn caged_in(cage: &Path, work: impl FnOnce() + Send) {
    let entered = || {
        if let Err(errno) = enter(cage) {
            eprintln!("SKIPPED: no thread can have a root of its own here: {errno}");
            return;
        }
        // Where `tempfile` makes its files.
        fs::create_dir_all(env::temp_dir()).unwrap();
        work();
    };
    thread::scope(|scope| scope.spawn(entered).join().unwrap_or_else(|panic| resume_unwind(panic)));
}

/// Writes a file of the new system in a cage, and makes the directories above it.
pub(crate) fn put(path: &str, text: &str) {
    let path = Path::new("/root").join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A namespace of its own: what is mounted in there is nowhere else. The root must be a mount for that.
fn enter(cage: &Path) -> nix::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
    mount(Some(cage), cage, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
    // Where this process' descriptors have paths.
    let descriptors = cage.join("proc");
    mkdir(&descriptors, Mode::S_IRWXU)?;
    mount(Some("/proc"), &descriptors, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)?;
    chroot(cage)?;
    chdir("/")
}

/// A job of this one action.
pub(crate) fn job(kind: ActionKind) -> WorkerJob {
    let second = Duration::from_secs(1);
    let retry = Retry { max_attempts: 1, initial_backoff: second, max_backoff: second };
    let run = Assignment {
        epoch: 1,
        workflow_uid: Uuid::from_u128(1),
        workflow_name: "run".into(),
        machine_uid: Uuid::from_u128(2),
        generation: 1,
        lease: second,
        counts_from: None,
        actions: vec![AssignedAction { name: "act".into(), timeout: second, retry, branch: None, when: None, kind }],
        start_index: 0,
        start_attempt: 1,
        starts: Vec::new(),
        earlier_runs: Vec::new(),
        expected_receipts: Vec::new(),
        results: Vec::new(),
        person_authorised: true,
        force: false,
        precheck: true,
        tools: None,
    };
    WorkerJob::new(&run, 0, 1, Vec::new(), false).unwrap()
}

/// A container of an image, with nothing stated.
pub(crate) fn container() -> RunContainer {
    RunContainer {
        image: "oci://h/tool@sha256:00".into(),
        access: ImageAccess::default(),
        command: None,
        args: None,
        variables: Vec::new(),
        directory: None,
        user: None,
        network: ContainerNetwork::None,
        capabilities: Vec::new(),
        devices: Vec::new(),
        mounts: Vec::new(),
        disk: None,
    }
}
