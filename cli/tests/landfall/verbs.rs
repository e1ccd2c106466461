//! What each verb asks of the coordinator, what it says, and how it ends.

use std::io::Write as _;

use serde_json::Value;

use crate::fake::{Fake, run_landfall};

#[test]
fn each_verb_calls_its_route_and_says_what_was_done() {
    for (args, asked, said) in [
        (&["adopt", "node-1"][..], "adopt machines/node-1", "machine/node-1 adopted\n"),
        (&["adopt", "machine/node-1"], "adopt machines/node-1", "machine/node-1 adopted\n"),
        (&["detach", "node-1"], "detach machines/node-1", "machine/node-1 detached\n"),
        (&["revoke", "node-1"], "revoke machines/node-1", "machine/node-1 revoked\n"),
        (&["release", "node-1"], "release machines/node-1", "machine/node-1 released: it is cleared, and then free\n"),
        (&["cancel", "node-1-a"], "cancel workflows/node-1-a", "workflow/node-1-a cancelling\n"),
        (
            &["pause", "machine/node-1"],
            "pause workflows/node-1-a",
            "workflow/node-1-a pausing: the current action ends first\n",
        ),
        (&["resume", "node-1-a"], "resume workflows/node-1-a", "workflow/node-1-a resumed\n"),
        (&["confirm", "node-1-a"], "confirm workflows/node-1-a", "workflow/node-1-a confirmed\n"),
        (&["confirm", "machine/node-1"], "confirm workflows/node-1-a", "workflow/node-1-a confirmed\n"),
        (&["confirm", "--identity", "node-1"], "confirm machines/node-1", "machine/node-1 confirmed\n"),
        (&["retry", "node-1-a"], "retry workflows/node-1-a", "workflow/node-1-a created\n"),
        (
            &["deprovision", "node-1", "--force"],
            "deprovision machines/node-1 {\"force\":true}",
            "workflow/node-1-a created\n",
        ),
        (
            &["deprovision", "machine/node-1", "--power-off"],
            "deprovision machines/node-1 {\"force\":false,\"powerOff\":true}",
            "workflow/node-1-a created\n",
        ),
        (
            &["deprovision", "node-1", "--disk", "serial=A", "--level", "secure", "--fallback", "cryptographic,zero"],
            "deprovision machines/node-1 {\"force\":false,\"disks\":[{\"serial\":\"A\"}],\"level\":\"secure\",\
             \"fallback\":[\"cryptographic\",\"zero\"]}",
            "workflow/node-1-a created\n",
        ),
        (
            &["approve", "node-1", "--fingerprint", "3f:9a"],
            "approve machines/node-1 {\"fingerprint\":\"3f:9a\"}",
            "machine/node-1 approved\n",
        ),
        (
            &["delete", "m/node-1", "wf/node-1-a"],
            "delete machines/node-1",
            "machine/node-1 deleted\nworkflow/node-1-a deleted\n",
        ),
        (
            &["token", "create", "ci", "--role", "operator", "--ttl", "30d"],
            "token {\"name\":\"ci\",\"role\":\"operator\",\"ttl\":\"30d\"}",
            "lft-abc\n",
        ),
        (&["token", "delete", "ci"], "delete token ci", "token/ci deleted\n"),
    ] {
        let fake = Fake::start();
        let run = fake.landfall(args);
        assert_eq!((run.code, run.out.as_str()), (0, said), "{args:?} {}", run.err);
        assert!(fake.seen().contains(&asked.to_owned()), "{args:?} {:?}", fake.seen());
    }
    let held = Fake::start().landfall(&["confirm", "--all-held"]);
    assert_eq!((held.code, held.out.as_str()), (0, "no workflow waits for a confirmation\n"));
    let stays = Fake::start().landfall(&["detach", "node-1"]);
    assert!(stays.err.contains("the receipt on disk vda stays"), "{}", stays.err);
}

#[test]
fn a_verb_shows_what_came_of_it_in_every_form() {
    let fake = Fake::start();
    assert_eq!(fake.landfall(&["retry", "node-1-a", "-o", "name"]).out, "workflow/node-1-a\n");
    assert_eq!(fake.landfall(&["adopt", "node-1", "-o", "jsonpath={.status.phase}"]).out, "Failed\n");
    let json: Value = serde_json::from_str(&fake.landfall(&["pause", "node-1-a", "-o", "json"]).out).unwrap();
    assert_eq!(json["metadata"]["name"], "node-1-a");
}

#[test]
fn what_is_destroyed_is_shown_before_the_request() {
    for args in [&["provision", "node-1", "-t", "mini", "--param", "release=11"][..], &["deprovision", "node-1"]] {
        let fake = Fake::start();
        let run = fake.landfall(args);
        assert_eq!((run.code, run.out.as_str()), (0, "workflow/node-1-a created\n"), "{}", run.err);
        for part in [
            "Action write: (partitions data are kept)", "Ablage, 1.0 GiB, model Ablage, serial Ablage, seen 5d ago",
            "an install: workflow Ablage", "XFS file system \"Ablage\"",
        ] {
            assert!(run.err.contains(part), "{part}: {}", run.err);
        }
        let asked = fake.seen();
        let template = r#"preview node-1 {"template":"mini","parameters":{"release":11},"disks":[]}"#;
        assert!(asked[0].starts_with("preview") && !asked[1].starts_with("preview"), "{asked:?}");
        assert!(args[0] == "deprovision" || asked[0] == template, "{asked:?}");
    }
}

#[test]
fn a_terminal_is_asked_before_anything_is_destroyed() {
    let Ok(found) = std::process::Command::new("script").arg("--version").output() else {
        eprintln!("SKIPPED: no script(1), which makes a terminal");
        return;
    };
    assert!(found.status.success());
    for (answer, flag, requested) in [("yes", "", true), ("y", "", false), ("", "--yes", true)] {
        let fake = Fake::start();
        let (landfall, socket) = (env!("CARGO_BIN_EXE_landfall"), fake.socket.display());
        let line = format!("{landfall} --server unix://{socket} deprovision node-1 {flag}");
        let mut script = std::process::Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).env("TERM", "dumb");
        script.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = script.spawn().unwrap();
        writeln!(child.stdin.take().unwrap(), "{answer}").unwrap();
        let said = String::from_utf8_lossy(&child.wait_with_output().unwrap().stdout).into_owned();
        let made = fake.seen().into_iter().find(|what| what.starts_with("deprovision"));
        assert_eq!(
            (made.is_some(), said.contains("Type yes")),
            (requested, flag.is_empty()),
            "{answer} {flag}: {said}"
        );
        // A request without a question holds for whatever is there.
        let compared = made.is_some_and(|what| what.contains(r#""expects":"sha256:seen""#));
        assert_eq!(compared, requested && flag.is_empty(), "{answer} {flag}: {:?}", fake.seen());
    }
}

#[test]
fn approval_without_a_fingerprint_needs_a_terminal() {
    let run = Fake::start().landfall(&["approve", "node-1"]);
    assert_eq!(run.code, 3, "{}", run.err);
    assert!(run.err.contains("no key of machine \"node-1\" waits for approval"), "{}", run.err);
}

#[test]
fn only_valid_selectors_are_sent_to_the_coordinator() {
    let fake = Fake::start();
    let run = fake.landfall(&["get", "machines", "-l", "rack = r7", "-o", "name"]);
    assert_eq!((run.code, run.out.as_str()), (0, "machine/node-1\n"), "{}", run.err);
    assert_eq!(fake.seen(), ["labels rack=r7"]);
    let none = fake.landfall(&["get", "machines", "-l", "rack in (r8, \"r 9\")"]);
    assert_eq!((none.code, none.out.as_str()), (0, ""));
    assert!(none.err.contains("There are no machines with rack in (r8,\"r 9\")."), "{}", none.err);
    let bad = fake.landfall(&["get", "machines", "-l", "a,,b"]);
    assert_eq!(bad.code, 2);
    assert!(bad.err.contains("column 3"), "{}", bad.err);
    assert_eq!(fake.landfall(&["get", "m/node-1", "-l", "a"]).code, 2);
    let deleted = fake.landfall(&["delete", "machines", "-l", "rack=r7"]);
    assert_eq!(deleted.out, "machine/node-1 deleted\n", "{}", deleted.err);
}

#[test]
fn each_end_of_a_wait_has_its_exit_code() {
    let wait = |args: &[&str]| {
        let mut all = vec!["wait"];
        all.extend(args);
        Fake::start().landfall(&all)
    };
    let reached = wait(&["machine/node-1", "--for=phase=Provisioned"]);
    assert_eq!((reached.code, reached.out.as_str()), (0, "machine/node-1 phase reached\n"), "{}", reached.err);
    assert_eq!(wait(&["machines", "--all", "--for=condition=Connected"]).out, "machine/node-1 condition met\n");
    assert_eq!(wait(&["machine/node-1", "--for=delete"]).out, "machine/node-1 deleted\n");
    // It is deleted before it is that.
    let gone = wait(&["machine/node-1", "--for=phase=Held"]);
    assert_eq!(gone.code, 1, "{}", gone.err);
    let over = wait(&["workflow/node-1-a", "--for=phase=Succeeded"]);
    assert_eq!(over.code, 1);
    assert!(over.err.contains("did not succeed") && over.err.contains("the image ended early"), "{}", over.err);
    let missing = wait(&["machine/nod-1", "--for=phase=Held"]);
    assert_eq!(missing.code, 3);
    assert!(missing.err.contains("did you mean node-1?"), "{}", missing.err);
    let late = wait(&["template/mini", "--for=delete", "--timeout", "1s"]);
    assert_eq!(late.code, 6, "{}", late.err);
    assert!(
        late.err.contains("timed out after 1 s while waiting for it to be deleted; not yet: template/mini"),
        "{}",
        late.err
    );
    assert_eq!(wait(&["machine/node-1", "--for=rain"]).code, 2);
    assert_eq!(wait(&["machines", "--for=delete"]).code, 2);
    assert_eq!(wait(&["machine/node-1", "--for=delete", "--timeout", "0s"]).code, 2);
}

#[test]
fn a_name_that_is_nearly_right_is_named() {
    let fake = Fake::start();
    for args in
        [&["get", "m", "nod-1"][..], &["describe", "machine/nod-1"], &["adopt", "nod-1"], &["delete", "m", "nod-1"]]
    {
        let run = fake.landfall(args);
        assert_eq!(run.code, 3, "{args:?}");
        assert!(run.err.contains("did you mean node-1"), "{args:?} {}", run.err);
        assert_eq!(run.err.matches("did you mean").count(), 1, "{args:?} {}", run.err);
    }
}

#[test]
fn a_machines_name_selects_its_newest_workflows_logs() {
    let fake = Fake::start();
    fake.landfall(&["logs", "machine/node-1", "-f", "--action", "write", "--tail", "20", "--since", "10m"]);
    let seen = fake.seen().join("");
    for part in ["\"action\": \"write\"", "\"tail\": \"20\"", "\"follow\": \"true\"", "\"since\": \"20"] {
        assert!(seen.contains(part), "{part} {seen}");
    }
}

#[test]
fn logs_follow_an_agent_from_coordinator_to_coordinator() {
    let fake = Fake::start();
    let run = fake.landfall(&["logs", "workflow/moved-a", "-f", "--tail", "2"]);
    let said: Vec<_> = run.out.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(said, ["gone", "one", "two", "three", "four"], "{}", run.err);
    let asked: Vec<_> = fake.seen().into_iter().filter(|seen| seen.starts_with("logs ")).collect();
    assert!(asked[0].contains("\"tail\": \"2\"") && !asked[0].contains("since"), "{asked:?}");
    assert!(asked[1..].iter().all(|asked| asked.contains("00:00:00Z") && !asked.contains("tail")), "{asked:?}");
    let follows: Vec<_> = asked.iter().map(|asked| asked.contains("\"follow\": \"true\"")).collect();
    assert_eq!(follows, [true, true, true, false]);
}

#[test]
fn a_backup_is_complete_private_and_never_overwrites() {
    use std::os::unix::fs::PermissionsExt;
    let fake = Fake::start();
    let file = fake.dir.path().join("b");
    let path = file.to_str().unwrap();
    let run = fake.landfall(&["backup", "-o", path]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "the whole store");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fake.landfall(&["backup", "-o", path]).code, 1);
    assert_eq!(fake.landfall(&["backup", "-o", path, "--overwrite"]).code, 0);
    assert_eq!(fake.landfall(&["backup", "-o", "-"]).out, "the whole store");
    let left: Vec<_> = std::fs::read_dir(fake.dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn site_lists_are_tables_or_json() {
    let fake = Fake::start();
    let audit = fake.landfall(&["audit", "--after", "0", "--limit", "2"]);
    assert!(
        audit.out.contains("admin/ann  unix  POST /machines/node-1/provision  machine/node-1  refused  Forbidden"),
        "{}",
        audit.out
    );
    assert!(audit.out.lines().count() == 3 && audit.out.contains("\n1         2026"), "{}", audit.out);
    let newest = fake.landfall(&["audit", "--limit", "1500", "-o", "json"]).out;
    let positions: Vec<u64> =
        newest.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()["position"].as_u64().unwrap()).collect();
    assert_eq!(positions, (502..=2001).collect::<Vec<u64>>());
    assert!(
        fake.landfall(&["token", "list"]).out.contains("ci    operator  ann"),
        "{}",
        fake.landfall(&["token", "list"]).out
    );
    assert!(!fake.landfall(&["token", "create", "ci", "--role", "viewer"]).err.contains("lft-abc"));
    let listed = fake.landfall(&["get", "sightings"]);
    assert!(listed.err.contains("The coordinator at https://gone:7443 does not answer"), "{}", listed.err);
    let sightings = listed.out;
    let row = "52:54:00:00:00:09  -        pxe     -     4         5d     5d    no machine has this address\\x1b[2J; describe";
    assert!(sightings.contains(row), "{sightings}");
    let macs = fake.landfall(&["get", "sightings", "-o", "jsonpath={.items[*].mac}"]).out;
    assert_eq!(macs, "52:54:00:00:00:09\n");
    let refused = fake.landfall(&["get", "sightings", "-w"]).err;
    assert!(refused.contains("sightings have no labels, and cannot be watched or sorted"), "{refused}");
    let history = fake.landfall(&["history", "machine", "node-1"]);
    assert!(history.out.contains("ann  Changed  metadata.labels.rack"), "{}", history.out);
    let line = fake.landfall(&["history", "machine/node-1", "-o", "json"]).out;
    assert_eq!(line.lines().count(), 2, "{line}");
    assert_eq!(fake.landfall(&["version", "-o", "json"]).out.matches("9.9.9").count(), 1);
    let away = run_landfall("unix:///nonexistent/api.sock", &["version"]);
    assert!(away.code == 5 && away.out.starts_with("landfall"), "{}", away.out);
    assert_eq!(run_landfall("unix:///nonexistent/api.sock", &["version", "--client"]).code, 0);
}

#[test]
fn get_shows_several_kinds_and_each_form() {
    let fake = Fake::start();
    let all = fake.landfall(&["get", "all"]).out;
    for word in ["machine/node-1", "workflow/node-1-a", "template/mini", "secret/root-key", "rule/dell"] {
        assert!(all.contains(word), "{word}\n{all}");
    }
    let get = |args: &[&str]| {
        let mut all = vec!["get"];
        all.extend(args);
        let run = fake.landfall(&all);
        assert_eq!(run.code, 0, "{args:?} {}", run.err);
        run.out
    };
    assert_eq!(get(&["wf/node-1-a", "m/node-1", "-o", "name"]), "machine/node-1\nworkflow/node-1-a\n");
    assert_eq!(
        get(&["m", "-o", "jsonpath={range .items[*]}{.metadata.name}={.status.phase}{'\\n'}{end}"]),
        "node-1=Failed\n"
    );
    assert_eq!(get(&["m", "node-1", "-o", "jsonpath={.spec.identity.macs[0]}"]), "52:54:00:00:00:01\n");
    assert_eq!(
        get(&["m", "-o", "custom-columns=NAME:.metadata.name,NONE:.x,RACK:.metadata.labels.rack"]),
        "NAME    NONE  RACK\nnode-1  -     r7\n"
    );
    assert!(get(&["m", "--show-labels", "--no-headers"]).trim_end().ends_with("rack=r7"));
    assert!(!get(&["m", "--no-headers"]).contains("NAME"));
    assert_eq!(get(&["m,wf", "--sort-by", ".metadata.name", "-o", "name"]), "machine/node-1\nworkflow/node-1-a\n");
    for bad in [&["get", "m", "-o", "jsn"][..], &["get", "m", "-o", "jsonpath={.a"], &["get", "m,wf", "x"], &["get"]] {
        assert_eq!(fake.landfall(bad).code, 2, "{bad:?}");
    }
}

#[test]
fn facts_diff_shows_what_two_machines_differ_in() {
    let fake = Fake::start();
    let diff = |other: &str, form: &str| {
        let run = fake.landfall(&["facts", "diff", "twin-1", other, "-o", form]);
        (run.code, run.out, run.err)
    };
    let table = "FACT              twin-1  twin-2\nfirmware.version  2.1     2.3\n";
    assert_eq!(diff("twin-2", "table"), (0, table.to_owned(), String::new()));
    let line = "{\"fact\":\"firmware.version\",\"one\":\"2.1\",\"other\":\"2.3\"}\n";
    assert_eq!(diff("twin-2", "json").1, line);
    let same = "The hardware of the two machines is the same.\n";
    assert_eq!(diff("twin-1", "table"), (0, String::new(), same.to_owned()));
    let (code, _, said) = diff("node-1", "table");
    assert!(code == 3 && said.contains("no facts of machine \"node-1\""), "{code} {said}");
}

#[test]
fn help_has_topics() {
    let away = |args: &[&str]| run_landfall("unix:///nonexistent", args);
    assert!(away(&["help", "exit-codes"]).out.contains("6  timed out while waiting"));
    assert!(away(&["exit-codes"]).out.contains("5  the coordinator cannot be reached"));
    assert!(away(&["help", "output"]).out.contains("{range .items[*]}"));
    assert!(away(&["help", "selectors"]).out.contains("rack notin (r7,r8)"));
}

#[test]
fn a_list_has_every_page_of_the_answer() {
    let run = Fake::start().landfall(&["get", "templates", "-l", "paged", "-o", "name"]);
    assert_eq!((run.code, run.out.as_str()), (0, "template/mini\ntemplate/second\n"), "{}", run.err);
}
