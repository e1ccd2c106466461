//! Actions that wait for other computers, or call them, as they are sent and as they end.

use landfall_api::{
    Http, HttpMethod, HttpResult, ImageAccess, KeepBody, SecretText,
    message::{ActionKind, ActionResult, EventBody},
};

use super::{action, assigned, assignment};

pub(crate) fn events() -> Vec<(&'static str, EventBody)> {
    let finished = |result| EventBody::Finished { result };
    let answered = HttpResult { status: 201, body: "{\"id\":7}".into(), cut: false };
    vec![("finished-http", finished(ActionResult::Http(answered)))]
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
}
