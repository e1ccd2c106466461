//! `http`: calls a web server. No header and no body that is sent is ever logged, reported or part of a failure.

use landfall_api::{ErrorCode, Http, HttpResult, KeepBody, Problem, message::ActionResult};
use landfall_disk::{Call, CallAnswer, CallError};
use serde_json::Value;

use super::{final_failure, installed_root::may_act};
use crate::runner::{Failure, Job};
use crate::thread::on_thread;

/// The largest JSON document of which a value is kept, bytes.
const MAX_JSON: usize = 64 << 10;
/// How much of a refusal's body goes into the failure, bytes: a sentence or two.
const MAX_REASON: usize = 256;

/// Calls it once. What the server did of an attempt that was stopped or broke off is unknown; the server recognises a
/// repeat by the `Idempotency-Key`, which is the same for every attempt.
pub(super) async fn perform(job: Job, spec: Http) -> Result<ActionResult, Failure> {
    let name = format!("action-{}", job.action.action_index);
    let cannot = |e: std::io::Error| {
        let problem = Problem::new(ErrorCode::Internal, format!("cannot start a thread for the action: {e}"));
        Failure { problem, retryable: true }
    };
    on_thread(&name, move || call(&job, spec)).await.map_err(cannot)?.map(ActionResult::Http)
}

fn call(job: &Job, mut spec: Http) -> Result<HttpResult, Failure> {
    may_act(job)?;
    let (method, url) = (spec.method.as_str(), spec.url.clone());
    job.doing.begin(method, &url);
    tracing::info!("{method} {url}");
    let key = format!("{}-{}", job.action.workflow_uid, job.action.action_index);
    spec.headers.push(("Idempotency-Key".to_owned(), landfall_api::SecretText::new(key)));
    let most = match spec.keep {
        KeepBody::At(_) => MAX_JSON,
        KeepBody::Text => HttpResult::MAX_BODY,
        KeepBody::Nothing if spec.secret => 0,
        KeepBody::Nothing => MAX_REASON,
    };
    let request = Call {
        method: spec.method,
        url: &spec.url,
        headers: &spec.headers,
        body: spec.body.as_ref(),
        access: &spec.access,
        expected: &spec.expect_status,
        most,
        within: None,
    };
    let answer = request.make(&job.cancel).map_err(|error| no_answer(&error, &url))?;
    if !is_success(&spec.expect_status, answer.status) {
        return Err(refused(&spec, &answer));
    }
    tracing::info!("{url} answered {}", answer.status);
    kept(&spec, &answer)
}

/// Whether a status is one of those that were asked for; of none, whether it is 200 to 299.
pub(super) fn is_success(expected: &[u16], status: u16) -> bool {
    if expected.is_empty() { (200..300).contains(&status) } else { expected.contains(&status) }
}

fn no_answer(error: &CallError, url: &str) -> Failure {
    let (code, hint) = match error {
        CallError::Unusable { .. } => {
            (ErrorCode::InvalidTemplate, "correct the field, or the secret in it, in the template")
        }
        CallError::NoAnswer { .. } => {
            (ErrorCode::SourceUnreachable, "check that the machine reaches the server: its address, port and name")
        }
        CallError::Refused { .. } => (
            ErrorCode::SourceUnreachable,
            "of a private authority write its certificate into access.caCertificates; of a redirect call its target",
        ),
        CallError::Cancelled => (ErrorCode::Cancelled, ""),
    };
    let problem = Problem::new(code, error.to_string()).hint(hint).at(url);
    Failure { problem, retryable: error.retryable() }
}

/// Another attempt may help where the server is busy or broken, and not where it understood and refuses.
fn refused(spec: &Http, answer: &CallAnswer) -> Failure {
    let (method, url, status) = (spec.method.as_str(), &spec.url, answer.status);
    let wanted = match spec.expect_status.as_slice() {
        [] => "200 to 299".to_owned(),
        some => some.iter().map(u16::to_string).collect::<Vec<_>>().join(", "),
    };
    let message = format!("{method} {url} answered {status}, and {wanted} is expected");
    let mut problem = Problem::new(ErrorCode::SourceUnreachable, message).at(url).hint(match status {
        401 | 403 => "check the credentials in headers",
        300..=399 => "a redirect is followed for GET and HEAD alone: call its target",
        _ => "read the server's log, and correct the request; or add the status to expectStatus",
    });
    // A server may well repeat what it was sent.
    let (said, _) = cut(&String::from_utf8_lossy(&answer.body), MAX_REASON);
    if !spec.secret && !said.trim().is_empty() {
        problem.causes.push(format!("the server says: {}", said.trim().escape_debug()));
    }
    Failure { problem, retryable: status >= 500 || matches!(status, 408 | 429) }
}

fn kept(spec: &Http, answer: &CallAnswer) -> Result<HttpResult, Failure> {
    let status = answer.status;
    let (body, was_cut) = match &spec.keep {
        KeepBody::Nothing => (String::new(), false),
        KeepBody::Text => {
            let (text, was_cut) = cut(&String::from_utf8_lossy(&answer.body), HttpResult::MAX_BODY);
            (text, was_cut || answer.cut)
        }
        KeepBody::At(pointer) => {
            // The parser's own words could repeat what the server was sent.
            let bad = |what: String| {
                let message = format!("{} answered {status}, but {what}", spec.url);
                let hint = "correct result in the template: text, or a JSON pointer to what the answer has";
                final_failure(Problem::new(ErrorCode::BadFormat, message).hint(hint).at(&spec.url))
            };
            if answer.cut {
                return Err(bad(format!("its body is larger than {} KiB", MAX_JSON >> 10)));
            }
            let tree: Value = serde_json::from_slice(&answer.body).map_err(|_| bad("its body is not JSON".into()))?;
            let found = tree.pointer(pointer).ok_or_else(|| bad(format!("its body has nothing at {pointer}")))?;
            match found {
                Value::String(text) => cut(text, HttpResult::MAX_BODY),
                other => cut(&other.to_string(), HttpResult::MAX_BODY),
            }
        }
    };
    Ok(HttpResult { status, body, cut: was_cut })
}

/// No more than so many bytes, and whether there were more.
fn cut(text: &str, most: usize) -> (String, bool) {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    (text.get(..end).unwrap_or_default().to_owned(), end < text.len())
}

#[cfg(test)]
mod tests;
