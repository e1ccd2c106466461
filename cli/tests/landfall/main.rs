//! The real binary against a coordinator of canned documents: what people see, what programs get, and exit codes.

mod completion;
mod console;
mod contexts;
mod edit;
mod fake;
mod fleet;
mod hostile;
mod import;
mod pages;
mod story;
mod templates;
mod verbs;
mod watching;

use std::io::Write;
use std::process::{Command, Stdio};

use fake::{Fake, run_landfall};
use serde_json::Value;

const GOOD: &str = "\
apiVersion: landfall.dev/v1alpha1
kind: Machine
metadata: {name: node-2}
spec: {identity: {macs: [52:54:00:00:00:02]}}
";

#[test]
fn tables_are_aligned_and_have_no_colours_in_pipes() {
    let run = Fake::start().landfall(&["get", "machines"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let lines: Vec<&str> = run.out.lines().collect();
    assert!(lines[0].starts_with("NAME    PHASE   CONNECTED  WORKFLOW  AGE"), "{}", run.out);
    assert!(lines[1].starts_with("node-1  Failed  yes        node-1-a  "), "{}", run.out);
    assert!(!run.out.contains('\x1b'), "{:?}", run.out);
}

#[test]
fn json_and_yaml_are_the_documents_themselves() {
    let fake = Fake::start();
    let one: Value = serde_json::from_str(&fake.landfall(&["get", "machine", "node-1", "-o", "json"]).out).unwrap();
    assert_eq!(one["spec"], fake::machine()["spec"]);
    let list: Value = serde_json::from_str(&fake.landfall(&["get", "m", "-o", "json"]).out).unwrap();
    assert_eq!(list["items"][0]["metadata"]["name"], "node-1");
    let yaml = fake.landfall(&["get", "machine/node-1", "-o", "yaml"]).out;
    // What is shown can be applied again.
    let again = fake.landfall(&["apply", "-f", &fake.file("again.yaml", &yaml)]);
    assert_eq!((again.code, again.out.as_str()), (0, "machine/node-1 unchanged\n"), "{}{yaml}", again.err);
}

#[test]
fn exit_codes_are_the_documented_ones() {
    let fake = Fake::start();
    for (args, code) in [
        (&["get", "machine", "none"][..], 3),
        (&["get", "machnes"][..], 2),
        (&["frobnicate"][..], 2),
        (&["delete", "machines"][..], 2),
        (&["get", "machine", "Not A Name"][..], 2),
        (&["provision", "node-1", "-t", "mini", "--wait"][..], 1),
        (&["--help"][..], 0),
        (&["apply", "--help"][..], 0),
    ] {
        let run = fake.landfall(args);
        assert_eq!(run.code, code, "{args:?}\n{}{}", run.out, run.err);
    }
    let absent = run_landfall("unix:///nonexistent/api.sock", &["get", "machines"]);
    assert_eq!(absent.code, 5);
    assert!(absent.err.contains("hint: check that the coordinator is running"), "{}", absent.err);
    let https = run_landfall("https://127.0.0.1:1", &["get", "machines"]);
    assert_eq!(https.code, 2, "{}", https.err);
    assert!(https.err.contains("needs --cert with --key, or --token-file"), "{}", https.err);
}

#[test]
fn apply_says_what_became_of_each_document() {
    let fake = Fake::start();
    let file = fake.file("a.yaml", &format!("{GOOD}---\n{}", GOOD.replace("node-2", "node-3").replace(":02]", ":03]")));
    let run = fake.landfall(&["apply", "-f", &file]);
    assert_eq!((run.code, run.out.as_str()), (0, "machine/node-2 created\nmachine/node-3 created\n"), "{}", run.err);
    assert_eq!(*fake.seen.lock().unwrap(), ["try node-2", "try node-3", "apply node-2", "apply node-3"]);
}

#[test]
fn one_bad_document_prevents_the_whole_apply() {
    let fake = Fake::start();
    let bad =
        fake.file("bad.yaml", &format!("{GOOD}---\n{}", GOOD.replace("macs:", "mac:").replace("node-2", "node-3")));
    let run = fake.landfall(&["apply", "-f", &bad]);
    assert_eq!(run.code, 4);
    assert!(
        run.err.contains("bad.yaml:9 (document 2) spec.identity.mac: there is no field \"mac\" here"),
        "{}",
        run.err
    );
    assert!(run.err.contains("did you mean \"macs\"?"), "{}", run.err);
    assert!(run.err.contains("nothing was applied"), "{}", run.err);
    assert!(fake.seen.lock().unwrap().is_empty());
    // Refused by the coordinator's own check of the second: the first is not applied either.
    let taken =
        fake.file("taken.yaml", &format!("{GOOD}---\n{}", GOOD.replace("node-2", "taken").replace(":02]", ":09]")));
    let run = fake.landfall(&["apply", "-f", &taken]);
    assert_eq!(run.code, 4);
    assert!(run.err.contains("belongs to machine \"other\""), "{}", run.err);
    assert_eq!(*fake.seen.lock().unwrap(), ["try node-2"]);
}

#[test]
fn an_address_used_twice_is_refused_with_both_places() {
    let fake = Fake::start();
    let both = fake.file("both.yaml", &format!("{GOOD}---\n{}", GOOD.replace("node-2", "node-3")));
    let run = fake.landfall(&["apply", "-f", &both]);
    assert_eq!(run.code, 4);
    assert!(run.err.contains("also belongs to machine/node-2, at"), "{}", run.err);
}

#[test]
fn apply_reads_standard_input_and_directories() {
    let fake = Fake::start();
    let dir = fake.dir.path().join("d");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("m.yaml"), GOOD).unwrap();
    std::fs::write(dir.join("notes.txt"), "not a document").unwrap();
    let run = fake.landfall(&["apply", "-f", dir.to_str().unwrap()]);
    assert_eq!(run.out, "machine/node-2 created\n", "{}", run.err);
    let mut child = Command::new(env!("CARGO_BIN_EXE_landfall"))
        .args(["apply", "--dry-run", "-f", "-", "--server", &format!("unix://{}", fake.socket.display())])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(GOOD.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "machine/node-2 created (dry run)\n");
}

#[test]
fn describe_shows_the_problem_with_hint_and_log_lines() {
    let run = Fake::start().landfall(&["describe", "workflow", "node-1-a"]);
    assert_eq!(run.code, 0, "{}", run.err);
    for text in [
        "Phase:          Failed", "Truncated", "the image ended early", "connection reset", "check the image's server",
        "http://h/i", "Last log lines of write, failure 3:", "    | connection reset", "1.0 MiB/2.0 MiB", "Skipped",
        "attempt 1 began", "30s",
    ] {
        assert!(run.out.contains(text), "{text}\n{}", run.out);
    }
    let machine = Fake::start().landfall(&["describe", "machine/node-1"]);
    for text in ["Connected", "an agent is connected", "52:54:00:00:00:01", "Workflow node-1-a"] {
        assert!(machine.out.contains(text), "{text}\n{}", machine.out);
    }
}

#[test]
fn provision_sends_typed_parameters_and_reports_a_failure() {
    let fake = Fake::start();
    let run = fake.landfall(&["provision", "node-1", "-t", "mini", "-p", "n=42", "-p", "tag=42", "--force", "--wait"]);
    assert_eq!(run.code, 1);
    assert!(run.out.starts_with("workflow/node-1-a created\n"), "{}", run.out);
    assert!(run.out.contains("workflow/node-1-a failed after 30s"), "{}", run.out);
    assert!(run.err.contains("because: connection reset"), "{}", run.err);
    let seen = fake.seen();
    let body: Value = serde_json::from_str(seen[1].strip_prefix("provision node-1 ").unwrap()).unwrap();
    assert_eq!(body, serde_json::json!({"template": "mini", "parameters": {"n": 42, "tag": "42"}, "force": true}));
}

#[test]
fn events_and_logs_have_text_and_json_lines() {
    let fake = Fake::start();
    assert!(
        fake.landfall(&["events", "node-1-a"]).out.contains("2026-01-01 00:00:00  node-1-a  write   1        Started")
    );
    let json: Value = serde_json::from_str(&fake.landfall(&["events", "node-1-a", "-o", "json"]).out).unwrap();
    assert_eq!(json["reason"], "Started");
    assert_eq!(fake.landfall(&["logs", "node-1-a", "-f"]).out, "2026-01-01 00:00:00  INFO write: fetching\n");
    assert!(fake.landfall(&["logs", "machine/node-1"]).out.contains("fetching"));
}

#[test]
fn every_kind_is_explained_as_recorded() {
    for kind in landfall_api::Kind::ALL.map(landfall_api::Kind::singular) {
        let shown = run_landfall("unix:///nonexistent", &["explain", kind, "--recursive"]);
        assert_eq!(shown.code, 0, "{}", shown.err);
        landfall_golden::same(&format!("explain/{kind}.txt"), &shown.out);
    }
}

#[test]
fn explain_and_completion_need_no_coordinator() {
    let away = |args: &[&str]| run_landfall("unix:///nonexistent", args);
    let fields = away(&["explain", "machine.spec.identity"]);
    assert!(fields.out.contains("macs  <list of MAC address> (required)"), "{}{}", fields.out, fields.err);
    let deep = away(&["explain", "template.spec.actions.writeImage.image"]);
    assert!(deep.out.contains("digestWaived"), "{}{}", deep.out, deep.err);
    let slip = away(&["explain", "machine.spec.identiy"]);
    assert_eq!(slip.code, 2);
    assert!(slip.err.contains("did you mean identity?"), "{}", slip.err);
    for shell in ["bash", "zsh", "fish"] {
        assert!(away(&["completion", shell]).out.contains("landfall __complete"), "{shell}");
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_landfall"))
        .args(["explain", "workflow", "--recursive"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Closed before anything is read: every write fails.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
