//! One program of an action, run inside an installed system until it ends.

use std::fs::OpenOptions;
use std::io::{PipeWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{io, thread};

use landfall_api::{Exec, ExecProgram};

use super::enter::{PRIVATE, Setting};
use super::output::{Hidden, lines};
use super::supervised::{Ended, RunError, supervise};

/// Debian's for root's login shell.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// For scripts without an interpreter: the first command that fails ends the script.
const SHELL: &str = "#!/bin/sh -e\n";

/// Runs the program of `spec`, with the variables `also` beside its own. `said` gets each line it prints, and `stop` is asked many
/// times a second. Nothing that the program started runs when this returns. Blocking.
///
/// # Errors
/// [`RunError`]
pub(crate) fn run(
    setting: &Setting<'_>, spec: &Exec, also: &[(&str, &str)], said: impl FnMut(String),
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Ended, RunError> {
    let (output, input) = io::pipe().map_err(RunError::Follow)?;
    let hidden = Hidden::new(spec.variables.iter().filter(|v| v.secret).map(|v| v.value.expose()));
    thread::scope(|scope| {
        let ready = |command: &mut Command| prepare(command, spec, also, input);
        let work = || supervise(setting, ready, stop);
        let thread = thread::Builder::new().name("exec".into()).spawn_scoped(scope, work).map_err(RunError::Follow)?;
        let read = lines(output, &hidden, said);
        let ended = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        read.map_err(RunError::Follow)?;
        Ok(ended)
    })
}

/// Inside: what the program starts with.
fn prepare(command: &mut Command, spec: &Exec, also: &[(&str, &str)], output: PipeWriter) -> Result<(), RunError> {
    let errors = output.try_clone().map_err(RunError::Follow)?;
    command
        .args(words(&spec.program)?)
        .env_clear()
        .envs([("PATH", PATH), ("HOME", "/root"), ("LANG", "C.UTF-8"), ("TERM", "dumb")])
        // No service manager runs in there: systemctl(1) changes files and starts nothing.
        .env("SYSTEMD_OFFLINE", "1")
        .envs(also.iter().copied())
        .envs(spec.variables.iter().map(|v| (&v.name, v.value.expose())))
        .current_dir(&spec.directory)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors);
    if !Path::new(&spec.directory).is_dir() {
        return Err(RunError::NoDirectory(spec.directory.clone()));
    }
    Ok(())
}

/// The program and its arguments. A script is put into memory first.
fn words(program: &ExecProgram) -> Result<Vec<String>, RunError> {
    match program {
        ExecProgram::Command(words) => Ok(words.clone()),
        ExecProgram::Script(text) => {
            let path = format!("{PRIVATE}/script");
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o700).open(&path).map_err(RunError::Follow)?;
            let first = if text.starts_with("#!") { "" } else { SHELL };
            file.write_all(first.as_bytes())
                .and_then(|()| file.write_all(text.as_bytes()))
                .map_err(RunError::Follow)?;
            Ok(vec![path])
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use landfall_api::{ExecVariable, SecretText};

    use super::super::testing::{root, shell_as_init, with_programs};
    use super::*;

    fn script(text: &str) -> Exec {
        Exec { program: ExecProgram::Script(text.into()), variables: Vec::new(), directory: "/".into(), disk: None }
    }

    fn ran(root: &Path, spec: &Exec, stop: &(dyn Fn() -> bool + Sync)) -> (Result<Ended, RunError>, Vec<String>) {
        with_programs(root, || {
            let mut lines = Vec::new();
            let also = [("LANDFALL_DISK", "/dev/vda")];
            let resolv_conf = "nameserver 192.0.2.1\n";
            let setting = Setting { root, bound: None, resolv_conf, init: shell_as_init };
            let ended = run(&setting, spec, &also, |line| lines.push(line), stop);
            (ended, lines)
        })
    }

    #[test]
    fn a_script_runs_inside_with_the_kernels_file_systems() {
        let Some(root) = root() else { return };
        fs::write(root.path().join("etc/resolv.conf"), "old\n").unwrap();
        let text = "test -c /dev/null; test -e /proc/self/stat; test -d /sys/kernel; test -w /run\n\
            echo $LANDFALL_DISK $A; cat /etc/resolv.conf; echo 2 >&2; echo made > /etc/made";
        let value = SecretText::new("plain");
        let variables = vec![ExecVariable { name: "A".into(), value, secret: false }];
        let (ended, lines) = ran(root.path(), &Exec { variables, ..script(text) }, &|| false);
        assert_eq!((ended.unwrap(), lines.join("|")), (Ended::Code(0), "/dev/vda plain|nameserver 192.0.2.1|2".into()));
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
    fn name_servers_are_found_in_every_kind_of_system() {
        use std::os::unix::fs::symlink;
        for link in [None, Some("../run/systemd/resolve/stub-resolv.conf"), Some("/run/landfall/resolv.conf")] {
            let Some(root) = root() else { return };
            let path = root.path().join("etc/resolv.conf");
            if let Some(link) = link {
                symlink(link, &path).unwrap();
            }
            let (ended, lines) = ran(root.path(), &script("cat /etc/resolv.conf"), &|| false);
            assert_eq!((ended.unwrap(), lines), (Ended::Code(0), vec!["nameserver 192.0.2.1".to_owned()]), "{link:?}");
            // Nothing is left of what a power cut may have left, either.
            let stays = link.is_some_and(|link| !link.starts_with("/run/landfall"));
            assert_eq!(fs::symlink_metadata(&path).is_ok(), stays, "{link:?}");
        }
    }

    #[test]
    fn what_a_program_writes_to_resolv_conf_stays() {
        let wrote = "own\n";
        for (before, text, after) in [
            (None, "true", None),
            (None, "echo own > /etc/resolv.conf", Some(wrote)),
            (None, "echo own > /etc/new; mv /etc/new /etc/resolv.conf", Some(wrote)),
            (None, "rm /etc/resolv.conf; echo own > /etc/resolv.conf", Some(wrote)),
            (None, "rm /etc/resolv.conf", None),
            (Some("old\n"), "true", Some("old\n")),
            (Some("old\n"), "echo own > /etc/resolv.conf", Some(wrote)),
            (Some("old\n"), "umount /etc/resolv.conf; rm /etc/resolv.conf; echo own > /etc/resolv.conf", Some(wrote)),
        ] {
            let Some(root) = root() else { return };
            let path = root.path().join("etc/resolv.conf");
            if let Some(before) = before {
                fs::write(&path, before).unwrap();
            }
            let (ended, lines) = ran(root.path(), &script(text), &|| false);
            assert_eq!(ended.unwrap(), Ended::Code(0), "{text}: {lines:?}");
            assert_eq!(fs::read_to_string(&path).ok().as_deref(), after, "{text}");
            assert!(!path.is_symlink(), "{text}");
        }
    }

    #[test]
    fn a_program_can_end_itself_by_a_signal() {
        let Some(root) = root() else { return };
        let (ended, lines) = ran(root.path(), &script("echo before; kill -TERM $$; echo after"), &|| false);
        let ended = ended.unwrap();
        assert!(ended == Ended::Code(143) && !lines.contains(&"after".to_owned()), "{ended} {lines:?}");
        assert_eq!(ended.to_string(), "ended with exit code 143 (SIGTERM)");
    }

    #[test]
    fn what_cannot_start_is_named() {
        let Some(root) = root() else { return };
        let absent = Exec { program: ExecProgram::Command(vec!["nosuch".into()]), ..script("") };
        let (ended, lines) = ran(root.path(), &absent, &|| false);
        assert!(ended.unwrap() == Ended::Code(127) && lines.join(" ").contains("nosuch"), "{lines:?}");
        let elsewhere = Exec { directory: "/nowhere".into(), ..script("true") };
        let error = ran(root.path(), &elsewhere, &|| false).0.unwrap_err();
        assert!(error.to_string().contains("/nowhere"), "{error}");
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
