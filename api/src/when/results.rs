//! What a condition may name of the actions of its list: an earlier one, and what each kind of action says of itself.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::WhenFault;
use crate::{issue::suggest, message::ActionResult, stages::stages};

/// Where paths to results of actions begin.
pub(super) const RESULTS: &str = "results";
/// Of every action: whether it was done, and not left out by its own condition.
pub(super) const SUCCEEDED: &str = "succeeded";
const STATUS: &str = "status";
const BODY: &str = "body";

/// What an action came to, as far as conditions can name it.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActionOutcome {
    /// Whether it was done; false: its condition did not hold.
    pub succeeded: bool,
    /// Of `http`: the answer's status.
    pub status: Option<u16>,
    /// Of `http` with `result`: what was kept of the answer's body.
    pub body: Option<String>,
}

impl ActionOutcome {
    /// Of an action that was done.
    pub fn of(result: &ActionResult) -> Self {
        match result {
            ActionResult::Http(answer) => {
                Self { succeeded: true, status: Some(answer.status), body: Some(answer.body.clone()) }
            }
            _ => Self::done(),
        }
    }

    /// Of an action that was done, and of which no more can be said.
    pub fn done() -> Self {
        Self { succeeded: true, ..Self::default() }
    }

    /// Of an action whose condition did not hold.
    pub fn left_out() -> Self {
        Self::default()
    }
}

/// What a condition over these results is evaluated with.
pub fn results_scope<'a>(outcomes: impl IntoIterator<Item = (&'a str, &'a ActionOutcome)>) -> Value {
    let one = |(name, outcome): (&str, &ActionOutcome)| {
        let value = json!({ SUCCEEDED: outcome.succeeded, STATUS: outcome.status, BODY: outcome.body });
        (name.to_owned(), value)
    };
    json!({ RESULTS: outcomes.into_iter().map(one).collect::<Map<String, Value>>() })
}

/// The other actions of a list, as a condition of one of them sees them.
#[derive(Debug, Default)]
pub struct Others(BTreeMap<String, Standing>);

#[derive(Debug)]
enum Standing {
    /// Its fields may be named. Whether it is an `http`, and one that keeps something of the body.
    Earlier {
        http: bool,
        body: bool,
    },
    Later,
    Itself,
    /// In another branch of the same stage.
    Beside,
    /// One action for each of several disks.
    Repeated,
    /// The list of another template.
    Included,
}

/// The type of a field.
pub(super) enum FieldKind {
    Boolean,
    Number,
    Text,
}

impl Others {
    /// As the item at `index` sees them. `items` are a template's, or the actions of a rendered list.
    pub fn seen_from(items: &[Value], index: usize) -> Self {
        let branch = |item: &Value| item.get("branch").and_then(Value::as_str).map(str::to_owned);
        let branches: Vec<_> = items.iter().map(branch).collect();
        let stages = stages(branches.iter().map(Option::as_deref));
        let own = stages.iter().find(|stage| stage.span().contains(&index));
        let beside = |other: usize| {
            own.is_some_and(|stage| {
                stage.span().contains(&other)
                    && !stage.lanes.iter().any(|lane| lane.contains(&other) && lane.contains(&index))
            })
        };
        let standing = |(n, item): (usize, &Value)| {
            let name = item.get("name")?.as_str()?.to_owned();
            let standing = if n == index {
                Standing::Itself
            } else if beside(n) {
                Standing::Beside
            } else if n > index {
                Standing::Later
            } else if item.get("forEach").is_some() {
                Standing::Repeated
            } else if item.get("include").is_some() {
                Standing::Included
            } else {
                let body = item.pointer("/http/result").is_some_and(|kept| !kept.is_null());
                Standing::Earlier { http: item.get("http").is_some(), body }
            };
            Some((name, standing))
        };
        // Of two with one name, which is a fault of its own, the first is meant.
        let mut others = BTreeMap::new();
        for (name, standing) in items.iter().enumerate().filter_map(standing) {
            others.entry(name).or_insert(standing);
        }
        Self(others)
    }

    /// The type of `results.ACTION.FIELD`.
    pub(super) fn field(&self, action: &str, field: &str) -> Result<FieldKind, WhenFault> {
        let fault = |message: String, hint: String| Err(WhenFault::new(message, hint));
        let (http, body) = match self.0.get(action) {
            Some(Standing::Earlier { http, body }) => (*http, *body),
            None => {
                let earlier = |(name, standing): (&'_ String, &Standing)| {
                    matches!(standing, Standing::Earlier { .. }).then_some(name.as_str().to_owned())
                };
                let known: Vec<String> = self.0.iter().filter_map(earlier).collect();
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                let hint = match known.as_slice() {
                    [] => "name an action that stands before this one".to_owned(),
                    some => suggest(action, some, "The actions before this one are"),
                };
                return fault(format!("no action of this list is called \"{action}\""), hint);
            }
            Some(Standing::Itself) => {
                let hint = "name an action that stands before this one";
                return fault(format!("the condition of \"{action}\" names its own result"), hint.into());
            }
            Some(Standing::Later) => {
                let hint = "move this action behind it, or name an earlier one";
                return fault(format!("action \"{action}\" comes later, and has no result yet"), hint.into());
            }
            Some(Standing::Beside) => {
                let hint = "put this action into the same branch, or behind all the branches";
                return fault(format!("action \"{action}\" runs at the same time, in another branch"), hint.into());
            }
            Some(Standing::Repeated) => {
                let hint = "name an action that is not repeated";
                return fault(format!("\"{action}\" stands for one action for each disk"), hint.into());
            }
            Some(Standing::Included) => {
                let hint = "state the condition in that template, or decide by machine or params";
                return fault(format!("\"{action}\" stands for the list of another template"), hint.into());
            }
        };
        match field {
            SUCCEEDED => Ok(FieldKind::Boolean),
            STATUS if http => Ok(FieldKind::Number),
            BODY if http && body => Ok(FieldKind::Text),
            BODY if http => {
                let hint = format!("add result: text, or a JSON pointer, to action \"{action}\"");
                fault(format!("action \"{action}\" keeps nothing of the answer's body"), hint)
            }
            STATUS | BODY => {
                let hint = format!("write results.{action}.{SUCCEEDED}, or name an action http");
                fault(format!("only http has the result {field}, and \"{action}\" is none"), hint)
            }
            other => {
                let fields: &[&str] = if http { &[SUCCEEDED, STATUS, BODY] } else { &[SUCCEEDED] };
                fault(format!("an action has no result \"{other}\""), suggest(other, fields, "The results are"))
            }
        }
    }
}
