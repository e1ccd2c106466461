//! Completion as the shells ask for it, and the manual pages.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::fake::{Fake, command, finished, run_landfall};

#[test]
fn names_are_the_coordinators_and_silence_where_it_is_away() {
    let fake = Fake::start();
    let complete = |words: &[&str]| {
        let mut args = vec!["__complete", "--"];
        args.extend(words);
        fake.landfall(&args).out
    };
    assert_eq!(complete(&["provision", "no"]), "node-1\tmachine\n");
    assert_eq!(complete(&["describe", "wf/"]), "wf/node-1-a\tworkflow\n");
    assert_eq!(complete(&["cancel", "machine/"]), "machine/node-1\tmachine\n");
    assert_eq!(complete(&["provision", "node-1", "--template=m"]), "--template=mini\ttemplate\n");
    assert_eq!(complete(&["apply", "-f", ""]), ":files\n");
    let away = run_landfall("unix:///nonexistent/api.sock", &["__complete", "--", "provision", ""]);
    assert_eq!((away.code, away.out.as_str(), away.err.as_str()), (0, "", ""));
}

/// Names that wait for a token command: of a context, and of the line that is being typed.
#[test]
fn completion_never_waits_for_or_runs_an_incomplete_token_command() {
    let fake = Fake::start();
    let dir = fake.dir.path();
    std::fs::create_dir_all(dir.join("landfall")).unwrap();
    let ran = dir.join("ran");
    let config = |command: &str| {
        let text =
            format!("current: lab\ncontexts:\n  lab: {{server: '{}', tokenCommand: '{command}'}}\n", fake.server());
        let file = dir.join("landfall/config.yaml");
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    let complete = |words: &[&str]| {
        let mut landfall = command("");
        landfall.env_remove("LANDFALL_SERVER").env("XDG_CONFIG_HOME", dir).args(["__complete", "--"]).args(words);
        // Open and silent, as a terminal is: a command that reads it waits for ever.
        let mut child = landfall.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let silent = child.stdin.take();
        let output = child.wait_with_output().unwrap();
        drop(silent);
        String::from_utf8(output.stdout).unwrap()
    };
    config("cat; echo abc");
    assert_eq!(complete(&["provision", ""]), "node-1\tmachine\n");
    config("exec sleep 3600");
    let begun = Instant::now();
    assert_eq!(complete(&["provision", ""]), "");
    assert!(begun.elapsed() < Duration::from_secs(600));
    config("echo abc");
    let typed = format!("touch {}; echo abc", ran.display());
    assert_eq!(complete(&["--token-command", &typed, "provision", ""]), "");
    assert!(!ran.exists());
}

#[test]
fn the_bash_script_completes_in_bash() {
    let fake = Fake::start();
    let script = fake.file("landfall.bash", &fake.landfall(&["completion", "bash"]).out);
    let landfall = env!("CARGO_BIN_EXE_landfall");
    let complete = |line: &[&str]| {
        let words = line.iter().map(|w| format!("'{w}'")).collect::<Vec<_>>().join(" ");
        let text = format!(
            "landfall() {{ '{landfall}' \"$@\"; }}; source '{script}'; compopt() {{ :; }}; COMP_WORDS=(landfall {words}); \
             COMP_CWORD={}; _landfall; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            line.len()
        );
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", &text]).env("LANDFALL_SERVER", fake.server()).env("HOME", "/nonexistent");
        let run = finished(&mut bash);
        assert_eq!(run.err, "");
        run.out
    };
    assert_eq!(complete(&["provision", ""]), "node-1\n");
    assert_eq!(complete(&["pro"]), "provision\n");
    assert_eq!(complete(&["events", "x", "--output", "=", "js"]), "json\n");
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("man");
    let run = finished(command("unix:///nonexistent").args(["man", "--out", out.to_str().unwrap()]));
    assert_eq!(run.code, 0, "{}", run.err);
    for page in ["landfall", "landfall-get", "landfall-edit", "landfall-token-create", "landfall-context-set"] {
        let text = std::fs::read_to_string(out.join(format!("{page}.1"))).unwrap_or_default();
        assert!(text.contains(".TH") && text.len() > 300, "{page}");
    }
    assert!(!out.join("landfall-__complete.1").exists());
    let whole = std::fs::read_to_string(out.join("landfall.1")).unwrap();
    assert!(whole.contains("Exit codes"), "{whole}");
}
