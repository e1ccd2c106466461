//! The first process of a program's namespace: this very binary under another name. The kernel drops signals that the first
//! process sends itself, so a script that ends itself with `kill -TERM $$` would run on if it were the first.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::wait::{WaitStatus, wait};

/// The name that this binary is called by.
pub(crate) const INIT: &str = "landfall-init";

/// As shells have it: the program was found and cannot be executed, or was not found.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// A shell adds the number of the signal that ended a program.
const BY_SIGNAL: i32 = 128;

/// The command to which a program and its arguments are added.
pub(crate) fn agent_as_init() -> Command {
    // The link leads to the agent's binary from within any root.
    let mut command = Command::new("/proc/self/exe");
    command.arg0(INIT);
    command
}

/// Starts the program in these words, reaps every process, and ends with the program; its exit code. The kernel then ends what
/// the program left behind.
pub(crate) fn init(mut words: impl Iterator<Item = String>) -> u8 {
    let program = words.next().unwrap_or_default();
    // Process ids are those of this namespace from here on.
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    if let Err(e) = mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>) {
        eprintln!("landfall: cannot mount proc on /proc of the installed system: {e}");
        return NOT_EXECUTABLE;
    }
    match Command::new(&program).args(words).spawn() {
        Ok(child) => until_it_ends(&child),
        Err(e) => {
            eprintln!("landfall: cannot start {program} in the installed system: {e}");
            if e.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
        }
    }
}

fn until_it_ends(child: &Child) -> u8 {
    let is_it = |pid: nix::unistd::Pid| u32::try_from(pid.as_raw()) == Ok(child.id());
    loop {
        let code = match wait() {
            Ok(WaitStatus::Exited(pid, code)) if is_it(pid) => code,
            Ok(WaitStatus::Signaled(pid, signal, _)) if is_it(pid) => BY_SIGNAL + signal as i32,
            Ok(_) | Err(Errno::EINTR) => continue,
            // Not before the program has ended.
            Err(_) => i32::from(NOT_EXECUTABLE),
        };
        return u8::try_from(code).unwrap_or(u8::MAX);
    }
}
