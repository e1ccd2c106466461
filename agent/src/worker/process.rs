//! The worker's process: started inside the tools layer, followed, and ended.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, thread};

use landfall_api::ToolsManifest;
use landfall_api::message::{LogLevel, WorkerReport};
use landfall_proto::worker;

use super::relay::{Done, RelayError, relay};
use crate::inside::{Ended, Hidden, PATH, RunError, Setting, lines, supervise};
use crate::runner::Failure;

/// How a worker is started.
pub(super) struct Worker<'a> {
    /// Where the tools layer is mounted.
    pub(super) root: &'a Path,
    /// What it finds as `/target`.
    pub(super) target: Option<&'a Path>,
    /// What no line that it prints may show.
    pub(super) hidden: &'a Hidden,
    /// The text at its /etc/resolv.conf.
    pub(super) resolv_conf: &'a str,
    /// The command that starts it in the words after it.
    pub(super) init: fn() -> Command,
}

/// There is no result.
pub(super) enum Silent {
    /// The worker ended, or was ended, without one.
    Ended(RelayError, Ended),
    /// It could not be run.
    NotRun(RunError),
}

impl From<RunError> for Silent {
    fn from(error: RunError) -> Self {
        Self::NotRun(error)
    }
}

impl Worker<'_> {
    /// Runs it for one job; what came of the action. `hear` gets its reports and, as log lines, what it and its programs print.
    /// Nothing that it started runs when this returns. Blocking.
    ///
    /// # Errors
    /// [`Silent`]
    pub(super) fn run(
        &self, job: &worker::Job, hear: impl Fn(WorkerReport) + Sync, stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Result<Done, Failure>, Silent> {
        let hear = &hear;
        let (jobs_read, jobs_write) = io::pipe().map_err(RunError::Follow)?;
        let (reports_read, reports_write) = io::pipe().map_err(RunError::Follow)?;
        let (errors_read, errors_write) = io::pipe().map_err(RunError::Follow)?;
        // Its last word was heard, or it speaks nonsense.
        let over = AtomicBool::new(false);
        let stop = || over.load(Ordering::Acquire) || stop();
        let bound = self.target.map(|target| (target, Path::new(ToolsManifest::TARGET)));
        let setting = Setting { root: self.root, bound, resolv_conf: self.resolv_conf, init: self.init };
        let prepare = |command: &mut Command| {
            command
                .arg(Path::new("/").join(ToolsManifest::WORKER))
                .env_clear()
                .envs([("PATH", PATH), ("HOME", "/run"), ("TMPDIR", "/run"), ("LANG", "C.UTF-8"), ("TERM", "dumb")])
                .current_dir("/")
                .stdin(Stdio::from(jobs_read))
                .stdout(Stdio::from(reports_write))
                .stderr(Stdio::from(errors_write));
            Ok(())
        };
        thread::scope(|scope| {
            let started = |name: &str| thread::Builder::new().name(name.into());
            let runs = started("worker").spawn_scoped(scope, || supervise(&setting, prepare, &stop));
            let runs = runs.map_err(RunError::Follow)?;
            let printed =
                |line: String| hear(WorkerReport::Log { level: LogLevel::Info, message: format!("| {line}") });
            let prints = started("worker-log").spawn_scoped(scope, move || lines(errors_read, self.hidden, printed));
            let outcome = match &prints {
                Ok(_) => relay(reports_read, jobs_write, job, hear),
                Err(_) => Err(RelayError::NoResult),
            };
            // One that ends by itself is left to: how it ended is the reason.
            let ends = prints.is_ok() && matches!(outcome, Err(RelayError::NoResult | RelayError::Job(_)));
            over.store(!ends, Ordering::Release);
            let ended = runs.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            let printed = prints.map_err(RunError::Follow)?.join();
            printed.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(RunError::Follow)?;
            outcome.map_err(|error| Silent::Ended(error, ended))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    use std::sync::Mutex;

    use landfall_api::message::ActionResult;
    use landfall_proto::PROTOCOL;

    use super::*;
    use crate::inside::testing::{root, shell_as_init, with_programs};
    use crate::worker::relay::tests::{bytes, ready};

    #[test]
    fn a_worker_prints_no_secret() {
        let Some(root) = root() else { return };
        let (_, lines) = ran(root.path(), "cat /first; echo the key is passphrase >&2; cat /last", "");
        assert_eq!(lines, ["| the key is ***"]);
    }

    type Ran = (Result<Result<Done, Failure>, Silent>, Vec<String>);

    /// A worker that is a script, stopped once it prints `stop_at`. It finds `first` and `last` in its root: reports as bytes.
    fn ran(root: &Path, script: &str, stop_at: &str) -> Ran {
        let program = root.join(ToolsManifest::WORKER);
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(root.join("first"), bytes(&[ready(PROTOCOL)])).unwrap();
        fs::write(root.join("last"), bytes(&[WorkerReport::Finished(ActionResult::Hold)])).unwrap();
        let job = worker::Job { disks_json: "[]".into(), uefi: true, ..worker::Job::default() };
        let target = root.join("system");
        for directory in [&target, &root.join(ToolsManifest::TARGET)] {
            fs::create_dir_all(directory).unwrap();
        }
        fs::write(target.join("seen"), "").unwrap();
        with_programs(root, || {
            let (lines, stop) = (Mutex::new(Vec::new()), AtomicBool::new(false));
            let hidden = &Hidden::new(["passphrase"]);
            let worker = Worker { root, target: Some(&target), hidden, resolv_conf: "", init: shell_as_init };
            let hear = |report| {
                if let WorkerReport::Log { message, .. } = report {
                    stop.fetch_or(message == stop_at, Ordering::Relaxed);
                    lines.lock().unwrap().push(message);
                }
            };
            let outcome = worker.run(&job, hear, &|| stop.load(Ordering::Relaxed));
            (outcome, lines.into_inner().unwrap())
        })
    }

    fn silent(ran: Ran) -> (RelayError, Ended) {
        match ran.0 {
            Err(Silent::Ended(error, ended)) => (error, ended),
            Err(Silent::NotRun(error)) => panic!("{error}"),
            Ok(outcome) => panic!("{outcome:?}"),
        }
    }

    #[test]
    fn a_worker_gets_its_job_and_the_target() {
        let Some(root) = root() else { return };
        // The job: its length, then disks_json (field 2, text) and uefi (field 3).
        let script = "cat /first; test -e /target/seen || exit 3; head -c 7 | wc -c >&2; cat /last";
        let (outcome, lines) = ran(root.path(), script, "");
        assert!(matches!(outcome, Ok(Ok(Done::Action(ActionResult::Hold)))));
        assert_eq!(lines, ["| 7"]);
    }

    #[test]
    fn a_worker_that_dies_tells_how() {
        let Some(root) = root() else { return };
        for (script, end) in [("cat /first; kill -9 $$", Ended::Code(137)), ("cat /first; exit 7", Ended::Code(7))] {
            let (error, ended) = silent(ran(root.path(), script, ""));
            assert!(
                matches!(error, RelayError::NoResult | RelayError::Job(_)) && ended == end,
                "{script}: {error} {ended}"
            );
        }
        // The first line of its error, before it even began.
        let (_, lines) = ran(root.path(), "exec /nosuch", "");
        assert!(lines.iter().any(|line| line.contains("nosuch")), "{lines:?}");
    }

    #[test]
    fn a_worker_that_speaks_nonsense_is_ended() {
        let Some(root) = root() else { return };
        let script = "cat /first; echo Segmentation fault and much more text than the letter S announces by its own value of 83; sleep 3600";
        let (error, ended) = silent(ran(root.path(), script, ""));
        assert!(matches!(error, RelayError::Garbage(_)) && ended == Ended::Stopped, "{error} {ended}");
    }

    #[test]
    fn a_stopped_worker_leaves_no_process() {
        let Some(root) = root() else { return };
        let system = root.path().join("system");
        fs::create_dir(&system).unwrap();
        nix::unistd::mkfifo(&system.join("held"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut held = fs::File::options()
            .read(true)
            .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
            .open(system.join("held"))
            .unwrap();
        let script = "exec 9>/target/held; setsid sleep 3600 </dev/null >/dev/null 2>&1 & cat /first; echo begun >&2; sleep 3600";
        let (_, ended) = silent(ran(root.path(), script, "| begun"));
        assert_eq!(ended, Ended::Stopped);
        // The end, and not "try again": no process has the other end open.
        assert_eq!(held.read(&mut [0]).unwrap(), 0);
    }
}
