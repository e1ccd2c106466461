//! Actions that wait for other computers, or call them, as they are sent and as they end.

use std::time::Duration;

use landfall_api::message::{ActionKind, ActionResult, AssignedAction, Assignment, EventBody, KnownResult, Start};
use landfall_api::{
    ActionOutcome, Awaited, Http, HttpMethod, HttpResult, ImageAccess, KeepBody, SecretText, Wait, WaitResult, When,
};

use super::{action, assigned, assignment};

pub(crate) fn events() -> Vec<(&'static str, EventBody)> {
    let finished = |result| EventBody::Finished { result };
    let answered = HttpResult { status: 201, body: "{\"id\":7}".into(), cut: false };
    let waited = WaitResult { waited_ms: 30_002 };
    vec![
        ("skipped", EventBody::Skipped),
        ("finished-http", finished(ActionResult::Http(answered))),
        ("finished-wait", finished(ActionResult::Wait(waited))),
    ]
}

#[test]
fn an_assignment_of_every_call() {
    let header = |name: &str, value: &str| (name.to_owned(), SecretText::new(value));
    let call = Http {
        url: "https://inventory.example/machines/7".into(),
        method: HttpMethod::Put,
        headers: vec![header("Authorization", "Bearer t0ken"), header("Content-Type", "application/json")],
        body: Some(SecretText::new("{\"state\":\"installed\"}")),
        expect_status: vec![200, 201],
        keep: KeepBody::At("/id".into()),
        access: ImageAccess { proxy: Some("http://p:3128".into()), ..ImageAccess::default() },
        secret: true,
    };
    assigned("assignment-http", assignment(vec![action("say", 300, 3, ActionKind::Http(call))]));
    let access = ImageAccess::default();
    let url = Awaited::Url { url: "http://mirror.example/ready".into(), expect_status: vec![204], access };
    let until = |answer| Wait::Until { answer, interval: Duration::from_secs(5) };
    let tcp = Awaited::Tcp { host: "db.example".into(), port: 5432 };
    let waits = [Wait::For(Duration::from_secs(30)), until(url), until(tcp)];
    let waits = waits.map(|wait| action("wait", 3600, 1, ActionKind::Wait(wait)));
    assigned("assignment-wait", assignment(waits.into()));
}

#[test]
fn an_assignment_with_conditions() {
    let second = Duration::from_secs(1);
    let wait = |name: &str, when: Option<&str>| {
        let when = when.map(|text| When::parse(text).unwrap());
        AssignedAction { when, ..action(name, 300, 1, ActionKind::Wait(Wait::For(second))) }
    };
    let outcome = ActionOutcome { succeeded: true, status: Some(201), body: Some("ready".into()) };
    let later = wait("later", Some("results.call.status == 201 and results[\"my-wait\"].succeeded"));
    let whole = Assignment {
        start_index: 2,
        starts: vec![Start { index: 2, attempt: 1 }],
        results: vec![KnownResult { index: 0, outcome }, KnownResult { index: 1, outcome: ActionOutcome::left_out() }],
        ..assignment(vec![wait("call", None), wait("my-wait", None), later])
    };
    assigned("assignment-conditions", whole);
}
