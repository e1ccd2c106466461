//! `landfall template`, and `provision --dry-run`.

use serde_json::{Value, json};

use crate::fake::{Fake, run_landfall};

const TEMPLATE: &str = "\
apiVersion: landfall.dev/v1alpha1
kind: Template
metadata: {name: own}
spec:
  parameters: {n: {type: integer}, tag: {type: text}}
  actions:
    - {name: restart, reboot: {}}
";

/// What a rendering prints, as it was answered.
fn printed(out: &str) {
    let list: Value = serde_saphyr::from_str(out).unwrap();
    assert_eq!(
        list,
        json!({"machine": "node-1", "template": "mini", "actions": [{"name": "reboot", "reboot": {}}], "timeout": "2h"})
    );
}

/// The body of the only request of that name.
fn body(fake: &Fake, request: &str) -> Value {
    let seen = fake.seen().join("");
    serde_json::from_str(seen.strip_prefix(request).unwrap_or_else(|| panic!("{seen}"))).unwrap()
}

#[test]
fn validate_needs_no_coordinator_and_names_every_fault() {
    let fake = Fake::start();
    let bad = TEMPLATE.replace("integer}", "integer, min: 3, default: 2}").replace("reboot: {}", "rebot: {}");
    let (good, bad) = (fake.file("good.yaml", TEMPLATE), fake.file("bad.yaml", &bad));
    let away = |args: &[&str]| run_landfall("unix:///nonexistent", args);
    let run = away(&["template", "validate", &good]);
    assert_eq!((run.code, run.out.as_str()), (0, "template/own is valid\n"), "{}", run.err);
    let run = away(&["template", "validate", &good, &bad]);
    assert_eq!((run.code, run.out.as_str()), (4, ""), "{}", run.err);
    assert!(run.err.contains("bad.yaml:5 spec.parameters.n.default: the default is 2; min is 3"), "{}", run.err);
    assert!(run.err.contains("bad.yaml:7 spec.actions[0].rebot"), "{}", run.err);
    assert!(run.err.ends_with("3 problems\n"), "{}", run.err);
    let schema: Value = serde_json::from_str(&away(&["template", "schema"]).out).unwrap();
    assert_eq!(schema["title"], "Template");
}

#[test]
fn a_stored_template_or_a_file_is_rendered() {
    let fake = Fake::start();
    let run = fake.landfall(&["template", "render", "mini", "--machine", "node-1", "-p", "tag=7"]);
    assert_eq!(run.code, 0, "{}", run.err);
    printed(&run.out);
    assert_eq!(body(&fake, "render node-1 "), json!({"template": "mini", "parameters": {"tag": "7"}}));
    let fake = Fake::start();
    let file = fake.file("own.yaml", TEMPLATE);
    let run = fake.landfall(&["template", "render", &file, "-m", "node-1", "-p", "n=7", "-p", "tag=7", "-o", "json"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let body = body(&fake, "render node-1 ");
    assert_eq!(
        (&body["parameters"], &body["document"]["metadata"]["name"]),
        (&json!({"n": 7, "tag": "7"}), &json!("own"))
    );
    let two = fake.file("two.yaml", &format!("{TEMPLATE}---\n{}", TEMPLATE.replace("own", "other")));
    let run = fake.landfall(&["template", "render", &two, "-m", "node-1"]);
    assert_eq!(run.code, 1);
    assert!(run.err.contains("has 2 templates"), "{}", run.err);
}

#[test]
fn a_dry_run_prints_the_list_and_starts_nothing() {
    let fake = Fake::start();
    let run = fake.landfall(&["provision", "node-1", "-t", "mini", "--dry-run"]);
    assert_eq!(run.code, 0, "{}", run.err);
    printed(&run.out);
    assert_eq!(body(&fake, "dry node-1 ")["template"], "mini");
    assert_eq!(fake.landfall(&["provision", "node-1", "-t", "mini", "--dry-run", "--wait"]).code, 2);
}

#[test]
fn an_older_coordinator_is_named_and_starts_nothing() {
    let fake = Fake::start();
    let dry = fake.landfall(&["provision", "aged", "-t", "mini", "--dry-run"]);
    let provision = fake.landfall(&["provision", "aged", "-t", "mini", "--yes"]);
    for run in [dry, provision] {
        assert_eq!(run.code, 4, "{}", run.err);
        assert!(run.err.contains("this coordinator is older than this landfall"), "{}", run.err);
        assert!(run.err.contains("upgrade the coordinator first"), "{}", run.err);
    }
    assert_eq!(fake.seen(), Vec::<String>::new());
}

#[test]
fn a_dry_run_shows_what_the_machine_said() {
    let fake = Fake::start();
    let dry = |machine: &str| fake.landfall(&["provision", machine, "-t", "mini", "--dry-run"]);
    let passed = dry("idle");
    assert!(passed.code == 0 && passed.out.contains("machineCheck: passed"), "{} {}", passed.out, passed.err);
    let failed = dry("wrong");
    assert_eq!(failed.code, 4, "{}", failed.err);
    for part in ["NoDiskMatches", "action data would fail", "plug it in"] {
        assert!(failed.err.contains(part), "{part}: {}", failed.err);
    }
    let unasked = dry("away");
    assert!(unasked.code == 0 && unasked.err.contains("no agent of the machine is connected"), "{}", unasked.err);
}
