//! `runContainer`: the program of an OCI image, run in namespaces of its own, without a daemon.
//!
//! The worker fetches the image into memory and checks the disks; its own program, started again as the first process of the
//! container, puts the rest together ([`init`]). A container ends with its program, and with the worker, which the agent ends.
//! Nothing is kept: its root was in memory, and its mounts were in a namespace of its own.

mod capabilities;
mod config;
mod disks;
mod error;
mod init;
mod loopback;
mod memory;
mod mountinfo;
mod mounts;
mod plan;
mod start;
mod users;

pub use self::{init::init, plan::ARGUMENT};

use std::{collections::BTreeMap, path::Path};

use landfall_api::{ContainerNetwork, ErrorCode, Problem, RunContainer, RunContainerResult, message::ActionResult};
use landfall_disk::{CancelFlag, available_memory, container_image, go_architecture};

use self::config::{Config, Program};
use self::memory::Root;
use self::plan::Plan;
use self::start::{Ended, StartError};
use self::users::Found;
use crate::actions::files::{Attributes, Files};
use crate::actions::spool::unfetched;
use crate::actions::unpack::layers;
use crate::{Context, Failure};

/// Where its root is mounted meanwhile.
const ROOT: &str = "/run/container";
/// Docker's.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs it. Blocks until its program has ended.
pub(crate) fn perform(context: &Context<'_>, spec: &RunContainer) -> Result<ActionResult, Failure> {
    // A disk that must not be written is a reason before a download is; it is not held yet.
    drop(disks::lend_all(context, spec)?);
    let image =
        container_image(&spec.image, &spec.access, context.report, &CancelFlag::new()).map_err(|e| unfetched(&e))?;
    let bad = |reason: String| {
        let problem = Problem::new(ErrorCode::BadFormat, format!("the image cannot be run: {reason}"));
        Failure::last(problem.hint("name an image of programs for this machine").at(&spec.image))
    };
    let program = Config::program(&image.config, go_architecture()).map_err(bad)?;
    let most = memory::most(&image.layers, available_memory(), &spec.image)?;
    let root = Root::mount(Path::new(ROOT), most).map_err(|e| {
        let problem = Problem::new(ErrorCode::ProgramFailed, "cannot make the file system of the container in memory");
        Failure::last(problem.caused_by(&e).hint("the agent's kernel must have tmpfs, as Debian's has"))
    })?;
    let unpacked = layers(root.path(), &image.layers, spec.access.clone(), context.report);
    let tally = unpacked.map_err(|failure| root.or_full(failure, &spec.image))?;
    context.report.info(format_args!("{} entries with {} bytes are unpacked into memory", tally.entries, tally.bytes));
    let found = prepare_files(&root, spec, &program)?;
    // Once more, just before the program could write them.
    let lent = disks::lend_all(context, spec)?;
    let plan = Plan {
        root: root.path().into(),
        system: context.target.into(),
        mounts: spec.mounts.clone(),
        nodes: disks::nodes(spec, &lent, Path::new("/sys")),
        host_network: spec.network == ContainerNetwork::Host,
        words: words(spec, &program)?,
        env: variables(spec, &program, found.home.as_deref()),
        directory: directory(spec, &program)?,
        who: found.who,
        capabilities: capabilities::of(&spec.capabilities),
    };
    context.report.info(format_args!("running {}", plan.words.join(" ")));
    let ended = start::run(&plan);
    // Also after a failure: what the program wrote is on the disks then.
    disks::take_all_back(judge(ended, &spec.image), &lent, context.report)?;
    Ok(ActionResult::RunContainer(RunContainerResult { disks: lent.into_iter().map(|lent| lent.disk.id).collect() }))
}

/// Who it is by the image's files, and its own name servers where it has a network.
fn prepare_files(root: &Root<'_>, spec: &RunContainer, program: &Program) -> Result<Found, Failure> {
    let files = Files::of(root.path())?;
    let wanted = spec.user.as_deref().or(program.user.as_deref()).filter(|user| !user.is_empty()).unwrap_or("0");
    let text = |path| files.text(path).map(Option::unwrap_or_default);
    let found = users::find(wanted, &text("/etc/passwd")?, &text("/etc/group")?).map_err(|reason| {
        let hint = "state a user of the image, or a number, in the field user";
        Failure::last(Problem::new(ErrorCode::InvalidTemplate, reason).hint(hint).at(&spec.image))
    })?;
    if found.who.user != 0 && !spec.capabilities.is_empty() {
        let message = format!("only root can have capabilities in a container, and its user is {wanted}");
        let hint = "remove capabilities, or write user: \"0\"";
        return Err(Failure::last(Problem::new(ErrorCode::InvalidTemplate, message).hint(hint).at(&spec.image)));
    }
    if spec.network == ContainerNetwork::Host {
        // A machine without a lease has no such file.
        let servers = std::fs::read("/etc/resolv.conf").unwrap_or_default();
        files.put("/etc/resolv.conf", &servers, Attributes::of_root(0o644))?;
    }
    if !files.has("/etc/hosts") {
        files.put("/etc/hosts", b"127.0.0.1 localhost\n::1 localhost\n", Attributes::of_root(0o644))?;
    }
    Ok(found)
}

fn words(spec: &RunContainer, program: &Program) -> Result<Vec<String>, Failure> {
    let words = program.words(spec.command.as_deref(), spec.args.as_deref());
    let fault = match &words[..] {
        [] => "the image names no program, and command is not stated",
        words if words.iter().any(|word| word.contains('\0')) => {
            "the image's program has a NUL character in its arguments"
        }
        _ => return Ok(words),
    };
    let hint = "state the program in the field command";
    Err(Failure::last(Problem::new(ErrorCode::InvalidTemplate, fault).hint(hint).at(&spec.image)))
}

/// The image's, then the template's; each name once.
fn variables(spec: &RunContainer, program: &Program, home: Option<&str>) -> Vec<(String, String)> {
    let usual = [("PATH", PATH), ("HOME", home.unwrap_or("/"))];
    let stated = spec.variables.iter().map(|variable| (variable.name.as_str(), variable.value.expose()));
    let all: BTreeMap<&str, &str> = usual.into_iter().chain(program.variables()).chain(stated).collect();
    all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn directory(spec: &RunContainer, program: &Program) -> Result<String, Failure> {
    let stated = spec.directory.as_deref().or(program.working_dir.as_deref()).filter(|path| !path.is_empty());
    let directory = stated.unwrap_or("/");
    if directory.starts_with('/') && !directory.contains('\0') {
        return Ok(directory.to_owned());
    }
    let message = format!("the image's working directory {directory:?} is no absolute path");
    let hint = "state one in the field directory";
    Err(Failure::last(Problem::new(ErrorCode::InvalidTemplate, message).hint(hint).at(&spec.image)))
}

fn judge(ended: Result<Ended, StartError>, image: &str) -> Result<(), Failure> {
    let problem = |message: String| Problem::new(ErrorCode::ProgramFailed, message).at(image);
    let ended = match ended {
        Ok(Ended::Code(0)) => return Ok(()),
        Ok(ended) => ended,
        Err(StartError::Refused(reason)) => {
            let hint = "correct the field or the image that it names; the agent's kernel must have namespaces, as Debian's has";
            return Err(Failure::last(problem(format!("the container was not started: {reason}")).hint(hint)));
        }
        Err(error @ StartError::Start(_)) => {
            let hint = "the agent's kernel must have PID namespaces, as Debian's has";
            return Err(Failure::passing(problem(error.to_string()).hint(hint)));
        }
    };
    let hint = match ended {
        Ended::Code(126 | 127) => {
            "the program, or a command of it, does not exist in the image or cannot be executed here: correct its name, or the image"
        }
        Ended::Signal(9) | Ended::Code(137) => {
            "the machine may have had too little memory for it; its last lines of output may say more"
        }
        _ => "its last lines of output say why; correct the image or the template, then provision again",
    };
    // How often it may run again is the template's decision: by default it may not.
    Err(Failure::passing(problem(format!("the container's program {ended}")).hint(hint)))
}

#[cfg(test)]
mod tests {
    use landfall_api::{ExecVariable, SecretText};

    use super::*;
    use crate::testing::container;

    #[test]
    fn a_templates_variables_win() {
        let variable =
            |name: &str, value: &str| ExecVariable { name: name.into(), value: SecretText::new(value), secret: false };
        let spec = RunContainer { variables: vec![variable("A", "t"), variable("B", "t")], ..container() };
        let env = ["A=i", "C=i", "PATH=/own"].map(str::to_owned).to_vec();
        let program = Program { env: Some(env), ..Program::default() };
        let all = variables(&spec, &program, Some("/home/anna"));
        let all: Vec<String> = all.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(all, ["A=t", "B=t", "C=i", "HOME=/home/anna", "PATH=/own"]);
    }

    #[test]
    fn every_end_but_exit_code_zero_is_a_failure() {
        judge(Ok(Ended::Code(0)), "i").unwrap();
        for (ended, said, hint) in [
            (Ok(Ended::Code(3)), "exit code 3", "last lines"),
            (Ok(Ended::Code(127)), "exit code 127", "does not exist"),
            (Ok(Ended::Code(137)), "137 (SIGKILL)", "memory"),
            (Ok(Ended::Signal(9)), "signal SIGKILL", "memory"),
            (Err(StartError::Refused("cannot x".into())), "not started: cannot x", "namespaces"),
        ] {
            let Failure { problem, .. } = judge(ended, "i").unwrap_err();
            assert_eq!((problem.code, problem.subject.as_str()), (ErrorCode::ProgramFailed, "i"));
            assert!(problem.message.contains(said) && problem.hint.contains(hint), "{problem}");
        }
    }

    #[test]
    fn an_image_without_program_or_directory_is_named() {
        let nothing = Program::default();
        assert!(words(&container(), &nothing).unwrap_err().problem.message.contains("names no program"));
        let relative = Program { working_dir: Some("work".into()), ..Program::default() };
        assert!(directory(&container(), &relative).unwrap_err().problem.message.contains("work"));
        assert_eq!(directory(&container(), &nothing).unwrap(), "/");
    }
}
