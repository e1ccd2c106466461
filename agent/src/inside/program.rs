//! One program, run inside an installed system until it ends.

use std::{
    fs::{self, OpenOptions},
    io::{self, PipeWriter, Write as _},
    os::unix::{
        fs::OpenOptionsExt as _,
        process::{CommandExt as _, ExitStatusExt as _},
    },
    path::Path,
    process::{Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use landfall_api::{Exec, ExecProgram};
use nix::sys::signal::Signal;

use super::{
    enter::{EnterError, PRIVATE, inside},
    output::{Hidden, lines},
};
use crate::children::Own;

/// Between looks whether the program ended or must be stopped.
const POLL: Duration = Duration::from_millis(50);
/// Debian's for root's login shell.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// For scripts without an interpreter: the first command that fails ends the script.
const SHELL: &str = "#!/bin/sh -e\n";

/// A program could not be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// The installed system could not be entered.
    #[error(transparent)]
    Enter(#[from] EnterError),
    /// It did not start.
    #[error("cannot start {program} in the installed system")]
    Start {
        /// Its name, or the script's interpreter.
        program: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A pipe, a thread or a process of this machine's failed.
    #[error("cannot follow the program")]
    Follow(#[source] io::Error),
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With this exit code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// The agent stopped it.
    Stopped,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "ended with exit code {code}"),
            Self::Signal(number) => match Signal::try_from(*number) {
                Ok(signal) => write!(f, "was ended by signal {signal}"),
                Err(_) => write!(f, "was ended by signal {number}"),
            },
            Self::Stopped => f.write_str("was stopped"),
        }
    }
}

/// Runs the program of `spec` in the system whose root is mounted at `root`. `also` are variables beside those of `spec`, `said`
/// gets each line it prints, and `stop` is asked many times a second. Nothing that the program started runs when this returns.
/// Blocking.
///
/// # Errors
/// [`RunError`]
pub(crate) fn run(
    root: &Path,
    spec: &Exec,
    also: &[(&str, &str)],
    said: impl FnMut(String),
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Ended, RunError> {
    let (output, input) = io::pipe().map_err(RunError::Follow)?;
    let hidden = Hidden::new(spec.variables.iter().filter(|v| v.secret).map(|v| v.value.expose()));
    // A system without network has no such file.
    let resolv_conf = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    thread::scope(|scope| {
        let enter = || inside(root, &resolv_conf, || started(spec, also, input, stop));
        let thread = thread::Builder::new().name("exec".into()).spawn_scoped(scope, enter).map_err(RunError::Follow)?;
        let read = lines(output, &hidden, said);
        let ended = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))??;
        read.map_err(RunError::Follow)?;
        Ok(ended)
    })
}

/// Inside: starts the program and waits for its end.
fn started(
    spec: &Exec,
    also: &[(&str, &str)],
    output: PipeWriter,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Ended, RunError> {
    let mut child = {
        let (mut command, program) = command(&spec.program)?;
        let errors = output.try_clone().map_err(RunError::Follow)?;
        command
            .env_clear()
            .envs([("PATH", PATH), ("HOME", "/root"), ("LANG", "C.UTF-8"), ("TERM", "dumb")])
            .envs(also.iter().copied())
            .envs(spec.variables.iter().map(|v| (&v.name, v.value.expose())))
            .current_dir(&spec.directory)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors);
        let directory = Path::new(&spec.directory);
        if !directory.is_dir() {
            // The kernel would say the same of it as of a missing program.
            let source = io::Error::new(io::ErrorKind::NotFound, format!("there is no directory {}", spec.directory));
            return Err(RunError::Start { program, source });
        }
        Own::spawn(&mut command).map_err(|source| RunError::Start { program, source })?
        // The command's ends of the pipe are closed here: the output ends with the program.
    };
    loop {
        if let Some(status) = child.ended().map_err(RunError::Follow)? {
            return Ok(ended(status));
        }
        if stop() {
            child.kill().map_err(RunError::Follow)?;
            while child.ended().map_err(RunError::Follow)?.is_none() {
                thread::sleep(POLL);
            }
            return Ok(Ended::Stopped);
        }
        thread::sleep(POLL);
    }
}

/// The command, and what to call it in an error.
fn command(program: &ExecProgram) -> Result<(Command, String), RunError> {
    match program {
        ExecProgram::Command(words) => {
            let (name, arguments) = words.split_first().map_or(("", &[][..]), |(name, rest)| (name.as_str(), rest));
            let mut command = Command::new(name);
            command.args(arguments);
            Ok((command, name.to_owned()))
        }
        ExecProgram::Script(text) => {
            let path = format!("{PRIVATE}/script");
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o700).open(&path).map_err(RunError::Follow)?;
            let first = if text.starts_with("#!") { "" } else { SHELL };
            file.write_all(first.as_bytes())
                .and_then(|()| file.write_all(text.as_bytes()))
                .map_err(RunError::Follow)?;
            let interpreter = text.strip_prefix("#!").and_then(|rest| rest.lines().next()).unwrap_or("/bin/sh").trim();
            Ok((Command::new(path), format!("the script with {interpreter}")))
        }
    }
}

fn ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Code(code),
        (None, signal) => Ended::Signal(signal.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        time::Instant,
    };

    use landfall_api::{ExecVariable, SecretText};

    use super::*;

    /// A root with this machine's own programs; `None` where the test may not mount.
    fn root() -> Option<tempfile::TempDir> {
        if !nix::unistd::geteuid().is_root() {
            return None;
        }
        let root = tempfile::tempdir().unwrap();
        for directory in ["bin", "lib", "lib64", "usr", "etc"] {
            if Path::new("/").join(directory).exists() {
                fs::create_dir(root.path().join(directory)).unwrap();
            }
        }
        Some(root)
    }

    fn script(text: &str) -> Exec {
        Exec { program: ExecProgram::Script(text.into()), variables: Vec::new(), directory: "/".into(), disk: None }
    }

    /// Runs it with this machine's /usr mounted in the root, on a thread whose mounts vanish.
    fn ran(root: &Path, spec: &Exec, stop: &(dyn Fn() -> bool + Sync)) -> (Result<Ended, RunError>, Vec<String>) {
        use nix::{
            mount::{MsFlags, mount},
            sched::{CloneFlags, unshare},
        };
        thread::scope(|scope| {
            let work = || {
                unshare(CloneFlags::CLONE_NEWNS).unwrap();
                mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
                for directory in ["bin", "lib", "lib64", "usr"] {
                    let (from, to) = (Path::new("/").join(directory), root.join(directory));
                    if to.exists() {
                        let from = fs::canonicalize(from).unwrap();
                        mount(Some(&from), &to, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
                    }
                }
                let mut lines = Vec::new();
                let ended = run(root, spec, &[("LANDFALL_DISK", "/dev/vda")], |line| lines.push(line), stop);
                (ended, lines)
            };
            scope.spawn(work).join().unwrap()
        })
    }

    #[test]
    fn a_script_runs_inside_with_the_kernels_file_systems() {
        let Some(root) = root() else { return };
        fs::write(root.path().join("etc/resolv.conf"), "old\n").unwrap();
        let text = "test -c /dev/null; test -d /proc/1; test -d /sys/kernel; test -w /run\n\
            echo $LANDFALL_DISK $A; cat /etc/resolv.conf | head -c 0; echo 2 >&2; echo made > /etc/made";
        let value = SecretText::new("plain");
        let variables = vec![ExecVariable { name: "A".into(), value, secret: false }];
        let (ended, lines) = ran(root.path(), &Exec { variables, ..script(text) }, &|| false);
        assert_eq!((ended.unwrap(), lines), (Ended::Code(0), vec!["/dev/vda plain".to_owned(), "2".to_owned()]));
        assert_eq!(fs::read_to_string(root.path().join("etc/made")).unwrap(), "made\n");
        assert_eq!(fs::read_to_string(root.path().join("etc/resolv.conf")).unwrap(), "old\n");
        assert_eq!(fs::read_dir(root.path().join("run")).unwrap().count(), 0, "the script was in memory");
    }

    #[test]
    fn the_first_failing_command_ends_a_script() {
        let Some(root) = root() else { return };
        let (ended, lines) = ran(root.path(), &script("echo a\n(exit 3)\necho b"), &|| false);
        assert_eq!((ended.unwrap(), lines), (Ended::Code(3), vec!["a".to_owned()]));
        assert!(!root.path().join("etc/resolv.conf").exists());
    }

    #[test]
    fn nothing_that_a_program_started_outlives_it() {
        let Some(root) = root() else { return };
        let begun = Instant::now();
        let left = script("setsid sleep 600 &\nsleep 600 & echo started");
        let (ended, lines) = ran(root.path(), &left, &|| false);
        assert_eq!((ended.unwrap(), lines), (Ended::Code(0), vec!["started".to_owned()]));
        let asked = AtomicBool::new(false);
        let (ended, _) = ran(root.path(), &script("sleep 600 & sleep 600"), &|| asked.swap(true, Ordering::Relaxed));
        assert_eq!(ended.unwrap(), Ended::Stopped);
        assert!(begun.elapsed() < Duration::from_secs(300), "it waited for a process that was left behind");
    }

    #[test]
    fn what_cannot_start_is_named() {
        let Some(root) = root() else { return };
        let absent = Exec { program: ExecProgram::Command(vec!["nosuch".into()]), ..script("") };
        let elsewhere = Exec { directory: "/nowhere".into(), ..script("true") };
        for (spec, said) in
            [(absent, "nosuch"), (script("#!/usr/bin/nosuch -x\n"), "/usr/bin/nosuch -x"), (elsewhere, "/nowhere")]
        {
            let error = ran(root.path(), &spec, &|| false).0.unwrap_err();
            let text = format!("{error}: {}", std::error::Error::source(&error).unwrap());
            assert!(text.contains(said), "{text}");
        }
    }

    #[test]
    fn output_never_shows_a_secret_variable() {
        let Some(root) = root() else { return };
        let value = SecretText::new("hunter22");
        let variables = vec![ExecVariable { name: "TOKEN".into(), value, secret: true }];
        let (ended, lines) = ran(root.path(), &Exec { variables, ..script("set -x\necho $TOKEN") }, &|| false);
        assert_eq!(ended.unwrap(), Ended::Code(0));
        assert_eq!(lines, ["+ echo ***", "***"]);
    }
}
