//! Calls of a web server that stands in for a BMC: a switchable power strip, a rack controller, a lab's own service.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use crate::HttpMethod;
use crate::issue::{Issue, join};

/// What a web server is asked to do for a machine's power. Paths, headers and bodies may hold `{{ machine.name }}`, headers and bodies
/// also `{{ username }}` and `{{ password }}` of the Secret; no other expression.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Webhook {
    /// Switches the machine on.
    pub on: WebhookCall,
    /// Switches it off at once.
    pub off: WebhookCall,
    /// Reads whether it has power.
    pub status: WebhookStatus,
    /// Asks its system to shut down. Default: a workflow switches it off after 90 s.
    pub shutdown: Option<WebhookCall>,
    /// Has its next start netboot; called before it is switched on. Default: the firmware's own order must have the network first.
    pub netboot: Option<WebhookCall>,
    /// Header fields of every call. With an `Authorization` here name and password are not sent otherwise; default: as HTTP's Basic.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// One call. It has succeeded if the answer's status is from 200 to 299.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebhookCall {
    /// The path, behind that of `address`; it begins with `/`.
    pub path: String,
    /// Default: `POST`.
    pub method: Option<HttpMethod>,
    /// What is sent: a text, or a mapping or list, which is sent as JSON.
    pub body: Option<Value>,
}

/// A `GET`, and what its answer says of the power.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebhookStatus {
    /// The path, behind that of `address`; it begins with `/`.
    pub path: String,
    /// Where in the answer the power stands: a JSON pointer such as `/state`. Default: the answer is one text.
    pub at: Option<String>,
    /// What stands there when the machine has power, such as `on` or `true`; nothing besides.
    pub on: String,
    /// What stands there when it has none. Anything else says nothing of the power.
    pub off: String,
}

/// Headers of one webhook; more than any service asks for.
const MAX_HEADERS: usize = 16;

impl Webhook {
    /// What is wrong with it; `at` is where it stands.
    pub(crate) fn check(&self, at: &str, issues: &mut Vec<Issue>) {
        let mut texts: Vec<(String, &str)> = Vec::new();
        let calls = [("on", Some(&self.on)), ("off", Some(&self.off)), ("shutdown", self.shutdown.as_ref())];
        for (name, call) in calls.into_iter().chain([("netboot", self.netboot.as_ref())]) {
            let Some(call) = call else { continue };
            let at = join(at, name);
            path(&call.path, &at, issues);
            texts.push((join(&at, "path"), &call.path));
            call.body.iter().for_each(|body| texts_of(body, &join(&at, "body"), &mut texts));
        }
        let status = join(at, "status");
        path(&self.status.path, &status, issues);
        texts.push((join(&status, "path"), &self.status.path));
        if self.status.at.as_ref().is_some_and(|pointer| !pointer.starts_with('/')) {
            issues.push(Issue::new(join(&status, "at"), "it is no JSON pointer", "write one such as /state"));
        }
        if self.status.on == self.status.off {
            let hint = "write what the answer has when the machine has no power";
            issues.push(Issue::new(join(&status, "off"), "it is the same as on", hint));
        }
        for (name, value) in &self.headers {
            let at = join(&join(at, "headers"), name);
            if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
                issues.push(Issue::new(&at, format!("\"{name}\" is no header"), "write one such as Authorization"));
            }
            if OF_THE_CLIENT.contains(&name.to_ascii_lowercase().as_str()) {
                issues.push(Issue::new(&at, format!("{name} is not stated"), "remove it"));
            }
            if value.contains(['\r', '\n']) {
                issues.push(Issue::new(&at, "the value has a line break", "write it in one line"));
            }
            texts.push((at, value));
        }
        if self.headers.len() > MAX_HEADERS {
            let message = format!("there are {}; the limit is {MAX_HEADERS}", self.headers.len());
            issues.push(Issue::new(join(at, "headers"), message, "leave out those that the service does not need"));
        }
        for (at, text) in texts {
            let is_path = at.ends_with(".path");
            // Servers and proxies log paths.
            let known = |name: &str| {
                let known = [Self::MACHINE, Self::USERNAME, Self::PASSWORD];
                let may = if is_path { &known[..1] } else { &known };
                may.contains(&name).then(String::new)
            };
            if let Err(what) = Self::filled(text, known) {
                let hint = if is_path { "write {{ machine.name }}, and passwords in a header or a body" } else { HINT };
                issues.push(Issue::new(at, what, hint));
            }
        }
    }

    /// The expression that is the machine's name.
    pub const MACHINE: &'static str = "machine.name";
    /// The expression that is the name of the Secret's account.
    pub const USERNAME: &'static str = "username";
    /// The expression that is its password.
    pub const PASSWORD: &'static str = "password";

    /// A text with each expression replaced by its value. There is nothing to compare or to choose by: what may be asked of a password
    /// is its place alone.
    ///
    /// # Errors
    /// What is wrong with the first expression that has no value.
    pub fn filled(text: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, String> {
        let (mut out, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("{{") {
            let (name, behind) = after.split_once("}}").ok_or("an expression is not closed by }}")?;
            let value = value(name.trim()).ok_or_else(|| format!("the expression {{{{{name}}}}} has no value here"))?;
            out.push_str(before);
            out.push_str(&value);
            rest = behind;
        }
        out.push_str(rest);
        Ok(out)
    }
}

const HINT: &str = "write {{ machine.name }}, {{ username }} or {{ password }}";
/// Headers that say where a request goes and where it ends: they are the client's.
const OF_THE_CLIENT: [&str; 4] = ["host", "content-length", "transfer-encoding", "connection"];

/// The texts of a tree, each with where the tree stands.
fn texts_of<'t>(tree: &'t Value, at: &str, texts: &mut Vec<(String, &'t str)>) {
    match tree {
        Value::String(text) => texts.push((at.to_owned(), text)),
        Value::Array(items) => items.iter().for_each(|item| texts_of(item, at, texts)),
        Value::Object(fields) => fields.values().for_each(|field| texts_of(field, at, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn path(path: &str, at: &str, issues: &mut Vec<Issue>) {
    if !path.starts_with('/') {
        let hint = "write it behind the path of spec.bmc.address, such as /outlets/7/on";
        issues.push(Issue::new(join(at, "path"), format!("\"{path}\" does not begin with /"), hint));
    }
}

impl WebhookStatus {
    /// Whether the answer says that the machine has power; absent: it says neither.
    pub fn says(&self, answer: &str) -> Option<bool> {
        let text = match &self.at {
            None => answer.trim().to_owned(),
            Some(pointer) => match serde_json::from_str::<Value>(answer).ok()?.pointer(pointer)? {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            },
        };
        [(true, &self.on), (false, &self.off)].into_iter().find(|(_, word)| **word == text).map(|(is_on, _)| is_on)
    }
}
