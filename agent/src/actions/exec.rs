//! `exec`: runs a program of the installed system inside it.

use landfall_api::{ErrorCode, Exec, ExecProgram, ExecResult, Problem, message::ActionResult};

use super::installed_root::{InstalledRoot, may_act};
use super::{Machine, final_failure};
use crate::inside;
use crate::inside::{Ended, RunError, Setting, agent_as_init};
use crate::runner::{Failure, Job};

/// Runs it. What it prints goes to the log of this action.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &Exec) -> Result<ActionResult, Failure> {
    let root = InstalledRoot::open_whole(machine, job, spec.disk.as_ref())?;
    let disks: Vec<String> = root.disks.iter().map(|name| format!("/dev/{name}")).collect();
    let (first, all) = (disks.first().cloned().unwrap_or_default(), disks.join(" "));
    let also = [("LANDFALL_DISK", first.as_str()), ("LANDFALL_DISKS", &all), ("LANDFALL_ROOT_DEVICE", &root.device)];
    match &spec.program {
        ExecProgram::Command(words) => tracing::info!("running {} in {}", words.join(" "), root.device),
        ExecProgram::Script(text) => tracing::info!("running a script of {} bytes in {}", text.len(), root.device),
    }
    may_act(job)?;
    let index = job.action.action_index;
    let said = |line: String| tracing::info!(action_index = index, "| {line}");
    // A machine without a lease has no such file.
    let resolv_conf = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let setting = Setting { root: root.path(), bound: None, resolv_conf: &resolv_conf, init: agent_as_init };
    let ended = inside::run(&setting, spec, &also, said, &|| may_act(job).is_err());
    // The reason why it was stopped, if it was.
    may_act(job)?;
    let judged = ended.map_err(|e| not_run(&e, &root.device)).and_then(|ended| judge(ended, &root.device));
    // Also after a failure: what the program wrote is on the disk then.
    let closed = root.close();
    judged?;
    Ok(ActionResult::Exec(ExecResult { root_device: closed? }))
}

fn judge(ended: Ended, device: &str) -> Result<(), Failure> {
    if ended == Ended::Code(0) {
        return Ok(());
    }
    let hint = match ended {
        Ended::Code(126 | 127) => {
            "the program, or a command of it, does not exist in the installed system or cannot be executed here: install it in \
             the image, or correct its name"
        }
        Ended::Signal(9) | Ended::Code(137) => {
            "the machine may have had too little memory for it; its last lines of output may say more"
        }
        _ => "its last lines of output say why; correct the program or the template, then provision again",
    };
    let problem = Problem::new(ErrorCode::ProgramFailed, format!("the program {ended}")).hint(hint).at(device);
    // How often it may run again is the template's decision: by default it may not.
    Err(Failure { problem, retryable: true })
}

fn not_run(error: &RunError, device: &str) -> Failure {
    let problem = |code| Problem::new(code, error.to_string()).caused_by(error).at(device);
    match error {
        RunError::NoDirectory(_) => {
            let hint = "correct directory in the template, or make it with an earlier action";
            final_failure(problem(ErrorCode::ProgramFailed).hint(hint))
        }
        RunError::Enter(_) => {
            let hint = "check that the installed root is not full; the agent's kernel must have PID namespaces and devtmpfs, as \
                Debian's has";
            final_failure(problem(ErrorCode::ProgramFailed).hint(hint))
        }
        RunError::Follow(_) => Failure { problem: problem(ErrorCode::Internal), retryable: true },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exit_code_zero_is_success() {
        judge(Ended::Code(0), "/dev/vda1").unwrap();
        for (ended, said, hint) in [
            (Ended::Code(3), "exit code 3", "last lines"),
            (Ended::Code(127), "exit code 127", "does not exist"),
            (Ended::Signal(9), "signal SIGKILL", "memory"),
            (Ended::Code(137), "137 (SIGKILL)", "memory"),
            (Ended::Signal(11), "signal SIGSEGV", "last lines"),
        ] {
            let Failure { problem, .. } = judge(ended, "/dev/vda1").unwrap_err();
            assert_eq!((problem.code, problem.subject.as_str()), (ErrorCode::ProgramFailed, "/dev/vda1"));
            assert!(problem.message.contains(said) && problem.hint.contains(hint), "{problem}");
        }
    }
}
