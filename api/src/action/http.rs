//! `http`: its fields, what is sent to the agent, and what comes of it.

mod check;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

pub(super) use self::check::{access, server_url, statuses};
use super::kind::{ActionInfo, Declaration, Download};
use super::rules::Rules;
use crate::{AccessSpec, DurationSpec, ImageAccess, ImageSourceError, SecretText};

/// Calls a web server, such as an inventory or a chat. The answer's status decides whether the action succeeds.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpSpec {
    /// An http or https URL.
    pub url: String,
    /// Default: `POST` with a `body`, else `GET`.
    pub method: Option<HttpMethod>,
    /// Header fields. Their values may hold secrets, for a server behind https.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// What is sent: a text, or a mapping or list, which is sent as JSON. It may hold secrets, for a server behind https.
    pub body: Option<Value>,
    /// The statuses that are a success. Default: 200 to 299.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expect_status: Vec<u16>,
    /// What is kept of the answer's body, at most 1 KiB: `text`, its beginning; or a JSON pointer such as `/state`, the value
    /// there. It is shown with the action's result. Default: nothing.
    pub result: Option<String>,
    /// How the server is asked; without `authorization`, which is a header.
    pub access: Option<AccessSpec>,
}

words! {
    /// What a server is asked to do.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    HttpMethod {
        /// To show something.
        Get = "GET",
        /// As `GET`, without the body.
        Head = "HEAD",
        /// To take something in.
        Post = "POST",
        /// To store something under the URL.
        Put = "PUT",
        /// To change what is under the URL.
        Patch = "PATCH",
        /// To remove what is under the URL.
        Delete = "DELETE",
    }
}

impl HttpMethod {
    /// Whether it changes nothing at the server, so that a redirect may be followed.
    pub const fn only_reads(self) -> bool {
        matches!(self, Self::Get | Self::Head)
    }
}

/// `http` as an agent is sent it: every default stated, every secret in place.
#[derive(Debug, Clone, PartialEq)]
pub struct Http {
    /// `http:` or `https:`.
    pub url: String,
    /// What the server is asked to do.
    pub method: HttpMethod,
    /// Header fields, each name once; for the URL's own server alone.
    pub headers: Vec<(String, SecretText)>,
    /// What is sent.
    pub body: Option<SecretText>,
    /// The statuses that are a success; empty: 200 to 299.
    pub expect_status: Vec<u16>,
    /// What is kept of the answer's body.
    pub keep: KeepBody,
    /// How the server is asked.
    pub access: ImageAccess,
    /// Whether headers or body hold a secret: a server may repeat it, so nothing of a refusal's body is shown.
    pub secret: bool,
}

/// What is kept of an answer's body, at most [`HttpResult::MAX_BODY`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum KeepBody {
    /// Nothing.
    #[default]
    Nothing,
    /// Its beginning.
    Text,
    /// The value at this JSON pointer (RFC 6901).
    At(String),
}

/// What came of an `http`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpResult {
    /// The answer's status.
    pub status: u16,
    /// What was kept of its body; empty if nothing was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
    /// Whether there was more than was kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

impl HttpResult {
    /// The most that is kept of a body, bytes: an id, a state or a short answer, many times below what an event may hold.
    pub const MAX_BODY: usize = 1024;
}

/// The action's fields do not go together: `validate_actions` refuses them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableCall {
    /// The body cannot be sent.
    #[error("the field body is neither a text nor a mapping nor a list")]
    Body,
    /// `access`.
    #[error(transparent)]
    Access(#[from] ImageSourceError),
}

impl HttpSpec {
    /// What an agent is sent. `pinned`: the same action before any secret was put in.
    ///
    /// # Errors
    /// [`UnusableCall`] where the fields cannot be used.
    pub fn resolved(self, pinned: &Self) -> Result<Http, UnusableCall> {
        let secret = self != *pinned;
        let Self { url, method, headers, body, expect_status, result, access } = self;
        let mut headers: Vec<_> = headers.into_iter().map(|(name, value)| (name, SecretText::new(value))).collect();
        let (body, kind) = match body {
            None => (None, ""),
            Some(Value::String(text)) => (Some(text), "text/plain; charset=utf-8"),
            Some(tree @ (Value::Object(_) | Value::Array(_))) => (Some(tree.to_string()), "application/json"),
            Some(_) => return Err(UnusableCall::Body),
        };
        if body.is_some() && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            headers.push(("Content-Type".to_owned(), SecretText::new(kind)));
        }
        let method = method.unwrap_or(if body.is_some() { HttpMethod::Post } else { HttpMethod::Get });
        let keep = match result {
            None => KeepBody::Nothing,
            Some(text) if text == check::TEXT => KeepBody::Text,
            Some(pointer) => KeepBody::At(pointer),
        };
        let access = access.map(ImageAccess::try_from).transpose()?.unwrap_or_default();
        Ok(Http { url, method, headers, body: body.map(SecretText::new), expect_status, keep, access, secret })
    }
}

impl Declaration for HttpSpec {
    const INFO: ActionInfo = ActionInfo {
        // A connection may break; the server can recognise a repeat by its Idempotency-Key.
        attempts: 3,
        after_failure: true,
        secrets: &["headers", "body"],
        ..ActionInfo::new("Calls a web server.", DurationSpec::from_secs(5 * 60), 8)
    };

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        check::check(spec, path, rules);
    }

    fn downloads(&self) -> Vec<Download> {
        // A request may have an effect, so no server is asked beforehand.
        Vec::new()
    }
}
