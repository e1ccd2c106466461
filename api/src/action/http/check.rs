//! What the fields of `http` mean together.

use serde_json::{Map, Value};

use super::super::rules::{Rules, plain_text};
use crate::ImageUrl;
use crate::issue::{describe, has_expression, join};

/// What `result` is for the beginning of the body.
pub(super) const TEXT: &str = "text";
/// Header fields of one request.
const MAX_HEADERS: usize = 32;
/// The longest value, bytes: what usual servers take.
const MAX_VALUE: usize = 8 << 10;
/// Header fields that the agent states, and why none else can.
const OWN: [(&str, &str); 5] = [
    ("host", "it follows from the url"),
    ("content-length", "it follows from the body"),
    ("transfer-encoding", "it follows from the body"),
    ("connection", "the agent decides about its connections"),
    ("idempotency-key", "the agent sends one, by which the server recognises a repeat"),
];
const URL_HINT: &str = "write http://host/path or https://host/path";

pub(super) fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
    server_url(spec, path, rules);
    headers(spec, path, rules);
    body(spec, path, rules);
    statuses(spec.get("expectStatus"), &join(path, "expectStatus"), rules);
    if let Some(result) = plain_text(spec, "result") {
        let at = join(path, "result");
        if result != TEXT && !is_pointer(result) {
            let hint = "write text for the body's beginning, or a JSON pointer such as /state";
            rules.say(at, format!("\"{result}\" is neither text nor a JSON pointer"), hint);
        } else if plain_text(spec, "method") == Some("HEAD") {
            rules.say(at, "the answer to HEAD has no body", "write method: GET, or remove result");
        }
    }
    access(spec, path, rules);
}

/// The field `url`: a server's.
pub(in crate::action) fn server_url(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
    let Some(url) = plain_text(spec, "url") else { return };
    match ImageUrl::parse(url) {
        Ok(ImageUrl::Http) => {}
        // What it says repeats no password.
        Err(error) if url.contains('@') => rules.say(join(path, "url"), error.message, error.hint),
        _ => rules.say(join(path, "url"), format!("\"{url}\" is not a web server's URL"), URL_HINT),
    }
}

/// The field `access`, of a server that gets no credentials by it.
pub(in crate::action) fn access(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
    let (Some(access), at) = (spec.get("access"), join(path, "access")) else { return };
    if access.get("authorization").is_some_and(|stated| !stated.is_null()) {
        let hint = "write http with headers: { Authorization: \"Bearer {{ secrets.NAME.KEY }}\" }";
        return rules.say(join(&at, "authorization"), "a call has its credentials in its headers", hint);
    }
    rules.access(Some(access), &[], &at);
}

/// The statuses that are a success.
pub(in crate::action) fn statuses(stated: Option<&Value>, path: &str, rules: &mut Rules<'_>) {
    let all = stated.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (index, status) in all.iter().enumerate() {
        // 1xx are no answers yet.
        if status.as_u64().is_some_and(|status| !(200..=599).contains(&status)) {
            let message = format!("{status} is not the status of an answer");
            rules.say(format!("{path}[{index}]"), message, "write codes from 200 to 599");
        }
    }
}

fn headers(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
    let Some(headers) = spec.get("headers").and_then(Value::as_object) else { return };
    let path = &join(path, "headers");
    if headers.len() > MAX_HEADERS {
        let message = format!("there are {} headers; the limit is {MAX_HEADERS}", headers.len());
        rules.say(path, message, "send the rest in the body");
    }
    let mut seen: Vec<String> = Vec::new();
    for (name, value) in headers {
        let (at, lower) = (join(path, name), name.to_ascii_lowercase());
        if !is_token(name) {
            let hint = "use letters, digits and dashes, such as X-Site";
            rules.say(path, format!("{name:?} cannot be a header's name"), hint);
        } else if let Some((_, why)) = OWN.iter().find(|(own, _)| *own == lower) {
            rules.say(&at, format!("the header {name} cannot be stated: {why}"), "remove it");
        } else if seen.contains(&lower) {
            rules.say(&at, format!("the header {name} is stated twice"), "names of headers have no case; keep one");
        }
        seen.push(lower);
        let Some(text) = value.as_str() else { continue };
        if text.chars().any(char::is_control) {
            rules.say(
                &at,
                format!("the header {name} has several lines, or a character that HTTP does not allow"),
                "write one line; of a block (|) the last line break is part of the text",
            );
        } else if text.len() > MAX_VALUE {
            let message = format!("the header {name} has {} bytes; the limit is {MAX_VALUE}", text.len());
            rules.say(&at, message, "send it in the body");
        }
        unencrypted(spec, value, &at, rules);
    }
}

fn body(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
    let at = join(path, "body");
    let Some(body) = spec.get("body").filter(|body| !body.is_null()) else { return };
    if !(body.is_string() || body.is_object() || body.is_array()) {
        let message = format!("a body is a text, a mapping or a list, not {}", describe(body));
        rules.say(&at, message, "put it in quotes");
    }
    if let Some(method @ ("GET" | "HEAD")) = plain_text(spec, "method") {
        rules.say(&at, format!("{method} has no body"), "write method: POST, or remove the body");
    }
    unencrypted(spec, body, &at, rules);
}

/// A secret in what goes to a server that is not behind TLS.
fn unencrypted(spec: &Map<String, Value>, value: &Value, path: &str, rules: &mut Rules<'_>) {
    let plain = spec.get("url").and_then(Value::as_str).is_some_and(|url| url.starts_with("http://"));
    if plain && names_secret(value) {
        let message = "http:// would send the secret unencrypted";
        rules.say(path, message, "call the server over https://");
    }
}

fn names_secret(value: &Value) -> bool {
    match value {
        Value::String(text) => has_expression(text) && text.contains("secrets."),
        Value::Array(items) => items.iter().any(names_secret),
        Value::Object(fields) => fields.values().any(names_secret),
        _ => false,
    }
}

/// RFC 9110, section 5.6.2.
fn is_token(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// RFC 6901: a `~` is `~0` or `~1`.
fn is_pointer(text: &str) -> bool {
    text.starts_with('/') && text.len() <= 256 && text.split('~').skip(1).all(|after| after.starts_with(['0', '1']))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{HttpMethod, HttpSpec, KeepBody, validate::tests::faults};

    #[test]
    fn a_header_has_a_bound() {
        let call = json!({"url": "https://h/a", "headers": {"X-A": "x".repeat(MAX_VALUE + 1)}});
        let found = faults(json!([{"name": "say", "http": call}]));
        assert_eq!(found.iter().map(|(path, _)| path).collect::<Vec<_>>(), ["spec.actions[0].http.headers.X-A"]);
    }

    #[test]
    fn defaults_are_stated_for_the_agent() {
        let spec = |value: Value| serde_json::from_value::<HttpSpec>(value).unwrap();
        let get = spec(json!({"url": "https://h/"}));
        let sent = get.clone().resolved(&get).unwrap();
        assert_eq!((sent.method, sent.headers.len(), sent.secret), (HttpMethod::Get, 0, false));
        let pinned = spec(json!({"url": "https://h/", "body": {"a": "REF"}, "result": "/x"}));
        let sent =
            spec(json!({"url": "https://h/", "body": {"a": "ge\"heim"}, "result": "/x"})).resolved(&pinned).unwrap();
        assert_eq!((sent.method, sent.secret, sent.keep.clone()), (HttpMethod::Post, true, KeepBody::At("/x".into())));
        assert_eq!(sent.body.as_ref().unwrap().expose(), r#"{"a":"ge\"heim"}"#);
        assert_eq!(sent.headers[0].1.expose(), "application/json");
        assert!(!format!("{sent:?}").contains("heim"));
        let own = spec(json!({"url": "https://h/", "body": "<a/>", "headers": {"content-type": "text/xml"}}));
        assert_eq!(own.clone().resolved(&own).unwrap().headers.len(), 1);
    }
}
