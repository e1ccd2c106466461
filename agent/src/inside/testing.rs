//! A root for tests that run programs in it.

use std::{fs, path::Path, process::Command, thread};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

const DIRECTORIES: [&str; 4] = ["bin", "lib", "lib64", "usr"];

/// A root for this machine's own programs; `None` where the test may not mount.
pub(crate) fn root() -> Option<tempfile::TempDir> {
    if !nix::unistd::geteuid().is_root() {
        return None;
    }
    let root = tempfile::tempdir().unwrap();
    for directory in DIRECTORIES.iter().chain(&["etc"]) {
        if Path::new("/").join(directory).exists() {
            fs::create_dir(root.path().join(directory)).unwrap();
        }
    }
    Some(root)
}

/// In place of the agent's binary, which is not this test's.
pub(crate) fn shell_as_init() -> Command {
    let mut command = Command::new("/bin/sh");
    // More than one command, or the shell would become the program.
    command.args(["-c", "\"$@\"; exit $?", "init"]);
    command
}

/// Does `work` with this machine's /usr mounted in the root, on a thread whose mounts vanish.
pub(crate) fn with_programs<T: Send>(root: &Path, work: impl FnOnce() -> T + Send) -> T {
    let work = || {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
        for directory in DIRECTORIES {
            let (from, to) = (Path::new("/").join(directory), root.join(directory));
            if to.exists() {
                let from = fs::canonicalize(from).unwrap();
                mount(Some(&from), &to, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
            }
        }
        work()
    };
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}
