//! Commands for several machines: whom they ask, what they say, and when they end.
//!
//! The fleet has the machines `n1`, `n2` and so on. The workflow of `n2` fails, and `n3` is refused; every other succeeds.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::fake::{self, Fake, Seen, Words, problem};

fn machine(name: &str) -> Value {
    let mut machine = fake::machine();
    machine["metadata"]["name"] = name.into();
    machine["status"]["workflow"] = format!("{name}-a").into();
    machine
}

fn run(name: &str, phase: &str) -> Value {
    let mut run = fake::run();
    run["metadata"]["name"] = format!("{name}-a").into();
    run["spec"]["machine"] = name.into();
    run["status"]["phase"] = phase.into();
    if phase != "Failed" {
        run["status"]["problem"] = Value::Null;
    }
    run
}

fn ended(name: &str) -> Value {
    run(name, if name == "n2" { "Failed" } else { "Succeeded" })
}

/// The documents of the fleet where a request is about it. Workflows that were requested have ended; `n1-a` and `n4-a` wait.
pub(crate) fn list(plural: &str, query: &Words, seen: &Seen) -> Option<Response> {
    let fleet = |count: usize| (1..=count).map(|n| format!("n{n}")).collect::<Vec<_>>();
    let answer = |items: Vec<Value>| Json(json!({"items": items, "metadata": {"resourceVersion": 6}})).into_response();
    if let Some(count) = query.get("labelSelector").and_then(|labels| labels.strip_prefix("fleet=")) {
        return Some(answer(fleet(count.parse().unwrap()).iter().map(|name| machine(name)).collect()));
    }
    let requests: Vec<String> = seen.lock().unwrap().clone();
    let started: Vec<String> = fleet(12)
        .into_iter()
        .filter(|name| requests.iter().any(|s| s.starts_with(&format!("provision {name} "))))
        .collect();
    let named = query.get("name").map(String::as_str);
    if query.contains_key("watch") {
        let lines = started
            .iter()
            .map(|name| format!("{}\n", json!({"type": "ADDED", "resourceVersion": 7, "object": ended(name)})));
        return (plural == "workflows" && !started.is_empty()).then(|| lines.collect::<String>().into_response());
    }
    match (plural, named) {
        ("workflows", Some(name)) => {
            let of = name.strip_suffix("-a").filter(|of| started.iter().any(|name| name == of))?;
            Some(answer(vec![ended(of)]))
        }
        ("machines", Some(name)) if started.iter().any(|started| started == name) => Some(answer(vec![machine(name)])),
        ("workflows", None) => {
            let waiting = [run("n1", "Pending"), ended("n2"), run("n4", "Running"), fake::run()];
            Some(answer(waiting.to_vec())).filter(|_| requests.iter().any(|s| s == "waiting"))
        }
        _ => None,
    }
}

pub(crate) fn provision(name: &str) -> Option<Response> {
    match name {
        "n3" => Some(problem(StatusCode::CONFLICT, "Conflict", "machine \"n3\" is in maintenance")),
        name if name.starts_with('n') && !name.starts_with("node") => Some(Json(run(name, "Pending")).into_response()),
        _ => None,
    }
}

/// The machines for which a workflow was requested.
fn requested(fake: &Fake) -> Vec<String> {
    let of = |line: String| Some(line.strip_prefix("provision ")?.split_once(' ')?.0.to_owned());
    let mut requested: Vec<String> = fake.seen().into_iter().filter_map(of).collect();
    requested.sort();
    requested
}

#[test]
fn a_selector_requests_a_workflow_for_each_machine() {
    let fake = Fake::start();
    let done = fake.landfall(&["provision", "-l", "fleet=4", "-t", "mini"]);
    assert_eq!(requested(&fake), ["n1", "n2", "n3", "n4"]);
    let created = "workflow/n1-a created\nworkflow/n2-a created\nworkflow/n4-a created\n";
    let mut lines: Vec<&str> = done.out.lines().collect();
    lines.sort_unstable();
    assert_eq!((done.code, lines), (1, created.lines().collect()), "{}", done.err);
    for part in ["machine/n3:", "is in maintenance", "1 of 4 failed", "on machine n2", "netboots"] {
        assert!(done.err.contains(part), "{part}: {}", done.err);
    }
}

#[test]
fn a_wait_for_several_says_how_each_ended() {
    // Few are followed by their names, many as a kind.
    for count in [4, 12] {
        let fake = Fake::start();
        let done = fake.landfall(&["provision", "-l", &format!("fleet={count}"), "-t", "mini", "--wait"]);
        assert_eq!(requested(&fake).len(), count);
        let succeeded = done.out.lines().filter(|line| line.contains("succeeded after")).count();
        assert_eq!((done.code, succeeded), (1, count - 2), "{} {}", done.out, done.err);
        assert!(done.out.contains("workflow/n2-a failed after"), "{}", done.out);
        for part in ["machine/n3:", "the image ended early", &format!("2 of {count} failed")] {
            assert!(done.err.contains(part), "{part}: {}", done.err);
        }
    }
}

#[test]
fn too_many_failures_begin_no_other_machine() {
    let fake = Fake::start();
    let one_by_one = ["--wait", "--max-parallel", "1", "--max-failures", "1"];
    let done = fake.landfall(&[&["provision", "-l", "fleet=4", "-t", "mini"][..], &one_by_one].concat());
    assert_eq!((done.code, requested(&fake)), (1, vec!["n1".to_owned(), "n2".to_owned()]));
    assert!(done.err.contains("1 of 4 failed; 2 were not begun"), "{}", done.err);
}

#[test]
fn cancel_with_labels_takes_workflows_that_have_not_ended() {
    let fake = Fake::start();
    let none = fake.landfall(&["cancel", "-l", "fleet=2"]);
    assert!(none.code == 2 && none.err.contains("has a workflow that has not ended"), "{}", none.err);
    fake.seen.lock().unwrap().push("waiting".into());
    let done = fake.landfall(&["cancel", "-l", "fleet=4"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let mut asked: Vec<_> = fake.seen().into_iter().filter(|line| line.starts_with("cancel")).collect();
    asked.sort();
    assert_eq!(asked, ["cancel workflows/n1-a", "cancel workflows/n4-a"]);
}

#[test]
fn a_dry_run_of_several_shows_every_refusal() {
    let fake = Fake::start();
    let done = fake.landfall(&["provision", "idle", "wrong", "aged", "-t", "mini", "--dry-run"]);
    assert!(done.code == 1 && done.err.contains("2 of 3 failed"), "{} {}", done.code, done.err);
    assert!(done.err.contains("action data would fail") && done.err.contains("no such route"), "{}", done.err);
    assert!(done.out.contains("machine/idle:") && done.out.contains("machine/wrong:"), "{}", done.out);
}

#[test]
fn several_documents_for_programs_are_separate() {
    let of = |form: &str| Fake::start().landfall(&["provision", "-l", "fleet=2", "-t", "mini", "-o", form]).out;
    let lines = of("json");
    let names: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(names.len(), 2, "{lines}");
    assert_eq!(of("yaml").matches("---\n").count(), 2);
    assert_eq!(of("custom-columns=NAME:.metadata.name").lines().count(), 2);
}

#[test]
fn names_and_labels_together_are_refused() {
    for args in [
        &["provision", "n1", "-l", "fleet=2", "-t", "mini"][..],
        &["deprovision", "n1", "-l", "fleet=2"],
        &["cancel", "n1-a", "-l", "fleet=2"],
        &["provision", "-t", "mini"],
        &["deprovision"],
        &["cancel"],
        &["provision", "-l", "rack=none", "-t", "mini"],
        &["provision", "-l", "", "-t", "mini", "--yes"],
        &["cancel", "-l", ""],
    ] {
        let fake = Fake::start();
        let run = fake.landfall(args);
        assert_eq!(run.code, 2, "{args:?} {}", run.err);
        assert!(!args.contains(&"") || run.err.contains("the selector is empty"), "{args:?} {}", run.err);
        assert_eq!(requested(&fake), Vec::<String>::new());
    }
}
