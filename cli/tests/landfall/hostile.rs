//! Control characters in the reports of a hostile machine must not reach a person's terminal.

use serde_json::{Value, json};

use crate::fake::{self, Fake};

/// Clears the screen, goes back to a line's beginning, and ends a command of C1's.
pub(crate) const EVIL: &str = "\u{1b}[2J\r\u{7}\u{7f}\u{9b}31mevil\n\u{1b}]0;x";

pub(crate) fn machine() -> Value {
    let mut machine = fake::machine();
    machine["metadata"]["name"] = "evil".into();
    machine["spec"]["identity"]["serial"] = EVIL.into();
    machine["status"]["workflow"] = "evil-a".into();
    machine["status"]["agent"] = EVIL.into();
    machine["status"]["conditions"][0]["message"] = EVIL.into();
    machine["status"]["facts"] = json!({
        "smbios": {"uuid": EVIL, "serial": EVIL, "manufacturer": EVIL, "product": EVIL},
        "cpu": {"model": EVIL, "logical": 1, "architecture": EVIL}, "memoryBytes": 1,
        "disks": [], "nics": [], "firmware": {"mode": "bios", "version": EVIL}});
    machine
}

pub(crate) fn run() -> Value {
    let mut run = fake::run();
    run["metadata"]["name"] = "evil-a".into();
    run["spec"]["machine"] = "evil".into();
    for text in ["message", "hint", "subject"] {
        run["status"]["problem"][text] = EVIL.into();
    }
    run["status"]["problem"]["causes"] = json!([EVIL]);
    run["status"]["problem"]["lastLogLines"] = json!([EVIL]);
    run["status"]["actions"][0]["problem"] = json!({"code": "Truncated", "message": EVIL, "causes": [EVIL]});
    run["status"]["actions"][0]["logTail"] = json!([EVIL]);
    run
}

#[test]
fn no_output_for_people_contains_control_characters() {
    let fake = Fake::start();
    for args in [
        &["get", "machine", "evil", "-o", "wide"][..],
        &["get", "machine", "evil", "-o", "custom-columns=A:.status.agent"],
        &["get", "machine", "evil", "-o", "yaml"],
        &["describe", "machine", "evil"],
        &["describe", "workflow", "evil-a"],
        &["events", "workflow/evil-a"],
        &["logs", "evil-a"],
        &["provision", "evil", "-t", "mini", "--wait"],
        &["cancel", "evil-a"],
    ] {
        let run = fake.landfall(args);
        let text = format!("{}{}", run.out, run.err);
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{args:?} {text:?}");
        assert!(text.contains("evil"), "{args:?} {text:?}");
    }
    let described = fake.landfall(&["describe", "workflow", "evil-a"]).out;
    assert!(described.contains("    | \\x1b[2J\\x0d\\x07\\x7f\\x9b31mevil\n    | \\x1b]0;x\n"), "{described}");
    let json: Value = serde_json::from_str(&fake.landfall(&["get", "machine", "evil", "-o", "json"]).out).unwrap();
    assert_eq!(json["status"]["agent"], EVIL);
    let path = fake.landfall(&["get", "machine", "evil", "-o", "jsonpath={.status.agent}"]);
    assert_eq!(path.out, format!("{EVIL}\n"));
}
