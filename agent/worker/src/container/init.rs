//! The first process of a container: the worker's own program under another argument, started in a process namespace of its own. It puts
//! the container together, gives up every right that the container does not have, starts the program, and ends with it. The kernel then
//! ends what the program left behind.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::{fs, io};

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, wait};
use nix::unistd::{Gid, Pid, Uid, close, dup2_stdin, setgroups, setresgid, setresuid, setsid};

use super::error::{InitError, failed};
use super::plan::{Plan, Who};
use super::{capabilities, loopback, mounts};

/// As shells have it: the program was found and cannot be executed, or was not found.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// As Docker has it: the container could not be put together. The reason went to the worker.
const NO_CONTAINER: u8 = 125;
/// A shell adds the number of the signal that ended a program.
const BY_SIGNAL: i32 = 128;
/// Where the machine has too little memory, a container ends first. (proc(5), oom_score_adj.)
const FIRST: &str = "1000";

/// The whole life of that process; its exit code. The standard input is the worker's: a plan comes from there, and what it is
/// answered is why there is no container, or nothing.
pub fn init() -> u8 {
    if let Err(error) = close_others() {
        eprintln!("landfall-worker: cannot close what others left open: {error}");
        return NO_CONTAINER;
    }
    let Ok(socket) = io::stdin().as_fd().try_clone_to_owned() else { return NO_CONTAINER };
    let mut socket = UnixStream::from(socket);
    let prepared = read(&mut socket).and_then(|plan| prepare(&plan).map(|()| plan));
    let plan = match prepared {
        Ok(plan) => plan,
        Err(error) => {
            // The worker has gone if it does not hear this.
            let _ = write!(socket, "{error}");
            return NO_CONTAINER;
        }
    };
    // Also the program's end of it: its end tells the worker that the program begins.
    let begins = File::open("/dev/null").and_then(|null| Ok(dup2_stdin(OwnedFd::from(null))?));
    if begins.is_err() || socket.shutdown(Shutdown::Both).is_err() {
        return NO_CONTAINER;
    }
    drop(socket);
    run(plan)
}

/// Closes every file but the standard ones: a directory that is open could be entered, also from inside. This process has opened
/// none yet.
fn close_others() -> io::Result<()> {
    let names = fs::read_dir("/proc/self/fd")?.map(|entry| entry.map(|entry| entry.file_name()));
    let open: Vec<_> = names.collect::<Result<_, _>>()?;
    for number in open.iter().filter_map(|name| name.to_str()?.parse::<i32>().ok()).filter(|number| *number > 2) {
        match close(number) {
            // The list was one of them.
            Ok(()) | Err(Errno::EBADF) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn read(socket: &mut UnixStream) -> Result<Plan, InitError> {
    let mut text = Vec::new();
    socket.read_to_end(&mut text).map_err(failed("read the plan"))?;
    serde_json::from_slice(&text).map_err(|error| failed("read the plan")(io::Error::other(error)))
}

fn prepare(plan: &Plan) -> Result<(), InitError> {
    end_with_worker()?;
    // Without a controlling terminal: the console is none of its.
    setsid().map_err(failed("begin a session"))?;
    fs::write("/proc/self/oom_score_adj", FIRST).map_err(failed("let the container end first"))?;
    let mut namespaces = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC;
    namespaces.set(CloneFlags::CLONE_NEWNET, !plan.host_network);
    unshare(namespaces).map_err(failed("make namespaces"))?;
    match unshare(CloneFlags::CLONE_NEWCGROUP) {
        // A kernel without control groups.
        Ok(()) | Err(Errno::EINVAL) => {}
        Err(e) => return Err(failed("make a namespace of control groups")(e)),
    }
    if !plan.host_network {
        loopback::up().map_err(failed("start the loopback interface"))?;
    }
    mounts::enter(plan)?;
    std::env::set_current_dir(&plan.directory).map_err(failed(format!("enter the directory {}", plan.directory)))?;
    restrict(&plan.who, plan.capabilities)?;
    // A change of the user takes it away.
    end_with_worker()
}

/// The worker's end, however it comes, is that of this process, and so of the container.
fn end_with_worker() -> Result<(), InitError> {
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(failed("tie the container to the worker"))
}

fn restrict(who: &Who, allowed: u64) -> Result<(), InitError> {
    let Who { user, group, groups } = who;
    capabilities::bound(allowed).map_err(failed("bound the capabilities"))?;
    let groups: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
    let (uid, gid) = (Uid::from_raw(*user), Gid::from_raw(*group));
    setgroups(&groups).map_err(failed("set the groups"))?;
    setresgid(gid, gid, gid).map_err(failed("set the group"))?;
    setresuid(uid, uid, uid).map_err(failed("set the user"))?;
    capabilities::keep(if uid.is_root() { allowed } else { 0 }).map_err(failed("give up capabilities"))?;
    prctl::set_no_new_privs().map_err(failed("keep programs from gaining rights"))
}

fn run(plan: Plan) -> u8 {
    let Plan { words, env, directory, .. } = plan;
    let Some((program, arguments)) = words.split_first() else { return NOT_FOUND };
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(env).current_dir(directory).stdin(Stdio::null());
    match command.spawn() {
        Ok(child) => until_it_ends(Pid::from_raw(child.id().cast_signed())),
        Err(e) => {
            eprintln!("cannot start {program} in the container: {e}");
            if e.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
        }
    }
}

/// Reaps every process until this one has ended.
fn until_it_ends(child: Pid) -> u8 {
    loop {
        let code = match wait() {
            Ok(WaitStatus::Exited(pid, code)) if pid == child => code,
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => BY_SIGNAL + signal as i32,
            Ok(_) | Err(Errno::EINTR) => continue,
            // Not before the program has ended.
            Err(_) => i32::from(NOT_EXECUTABLE),
        };
        return u8::try_from(code).unwrap_or(u8::MAX);
    }
}
