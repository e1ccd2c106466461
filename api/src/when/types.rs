//! Names and types of a condition, before a machine and parameters are known.

use std::fmt;

use serde_json::Value;

use super::{Node, Path, Step, WhenFault, WhenScope, results::FieldKind};
use crate::facts::schema::{properties, resolved, schema_of};
use crate::{DiskFacts, DiskId, MachineFacts, ParameterType, issue::suggest};

/// What a part of a condition comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Not known before it is evaluated.
    Any,
    Text,
    Number,
    Boolean,
    List,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "any value",
            Self::Text => "text",
            Self::Number => "a number",
            Self::Boolean => "true or false",
            Self::List => "a list",
        })
    }
}

impl Kind {
    fn may_be(self, other: Self) -> bool {
        self == other || self == Self::Any || other == Self::Any
    }
}

/// What `machine` has.
const MACHINE: [&str; 5] = ["name", "uid", "labels", "macs", "facts"];

pub(super) fn faults(node: &Node, scope: &WhenScope<'_>) -> Vec<WhenFault> {
    let mut checker = Checker { scope, found: Vec::new() };
    checker.boolean(node);
    checker.found
}

struct Checker<'a> {
    scope: &'a WhenScope<'a>,
    found: Vec<WhenFault>,
}

impl Checker<'_> {
    fn say(&mut self, message: String, hint: impl Into<String>) {
        self.found.push(WhenFault::new(message, hint));
    }

    /// What stands where only true or false may.
    fn boolean(&mut self, node: &Node) {
        let kind = self.kind(node);
        if !kind.may_be(Kind::Boolean) {
            let what = if let Node::Path(path) = node { path.written.clone() } else { "a value".to_owned() };
            self.say(format!("{what} is {kind}, which is neither true nor false"), "compare it with something");
        }
    }

    fn kind(&mut self, node: &Node) -> Kind {
        match node {
            Node::Literal(Value::String(_)) => Kind::Text,
            Node::Literal(Value::Number(_)) => Kind::Number,
            Node::Literal(_) => Kind::Boolean,
            Node::List(items) => {
                items.iter().for_each(|item| {
                    self.kind(item);
                });
                Kind::List
            }
            Node::Path(path) => self.path(path),
            Node::Defined(path) => {
                self.path(path);
                Kind::Boolean
            }
            Node::Not(inner) => {
                self.boolean(inner);
                Kind::Boolean
            }
            Node::And(left, right) | Node::Or(left, right) => {
                self.boolean(left);
                self.boolean(right);
                Kind::Boolean
            }
            Node::Compare(how, left, right) => {
                let (left, right) = (self.kind(left), self.kind(right));
                let ordered = |kind: Kind| [Kind::Any, Kind::Text, Kind::Number].contains(&kind);
                if !left.may_be(right) {
                    let message = format!("{left} is compared with {right}");
                    self.say(message, "compare values of one type; text stands in quotes, a number without");
                } else if !(how.is_equality() || (ordered(left) && ordered(right))) {
                    self.say(format!("{left} and {right} have no order"), "compare two numbers or two texts");
                }
                Kind::Boolean
            }
            Node::In(left, right) => {
                self.kind(left);
                let right = self.kind(right);
                if !right.may_be(Kind::List) {
                    let hint = "write a list, such as [\"a\", \"b\"]";
                    self.say(format!("\"in\" needs a list on its right, not {right}"), hint);
                }
                Kind::Boolean
            }
        }
    }

    fn path(&mut self, path: &Path) -> Kind {
        let mut steps = path.steps.iter();
        let root = match steps.next() {
            Some(Step::Field(name)) => name.as_str(),
            _ => "",
        };
        let rest = steps.as_slice();
        match root {
            "machine" => self.machine(path, rest),
            "params" => self.parameter(path, rest),
            "disk" if self.scope.disk => self.disk(path, rest),
            "disk" => {
                let hint = "add forEach: { disks: { … } } to this item";
                self.say("\"disk\" is known only in a loop over disks".into(), hint);
                Kind::Any
            }
            "results" => self.result(path, rest),
            other => {
                let hint = "a condition may name machine (name, labels, macs, facts), params and results; text stands in quotes";
                self.say(format!("\"{other}\" is an unknown name"), hint);
                Kind::Any
            }
        }
    }

    fn machine(&mut self, path: &Path, rest: &[Step]) -> Kind {
        match rest {
            [Step::Field(field), below @ ..] => match (field.as_str(), below) {
                ("name" | "uid", []) | ("labels", [Step::Field(_)]) | ("macs", [Step::Item(_)]) => Kind::Text,
                ("macs", []) => Kind::List,
                ("labels", []) => Kind::Any,
                ("facts", below) => self.known(path, schema_of::<MachineFacts>(), below),
                (known, _) if MACHINE.contains(&known) => self.nothing(path, ""),
                (other, _) => {
                    let hint = suggest(other, &MACHINE, "machine has");
                    self.say(format!("{} is unknown", path.written), hint);
                    Kind::Any
                }
            },
            _ => self.nothing(path, "name one of its fields: name, uid, labels, macs, facts"),
        }
    }

    fn parameter(&mut self, path: &Path, rest: &[Step]) -> Kind {
        let [Step::Field(name), below @ ..] = rest else { return self.nothing(path, "name one parameter") };
        let Some(declared) = self.scope.parameters.get(name) else {
            let known: Vec<&str> = self.scope.parameters.keys().map(String::as_str).collect();
            let hint = match known.as_slice() {
                [] => format!("add it: spec.parameters.{name}: {{}}"),
                some => suggest(name, some, "The parameters are"),
            };
            self.say(format!("the template has no parameter \"{name}\""), hint);
            return Kind::Any;
        };
        let of = |kind: ParameterType| match kind {
            ParameterType::Text | ParameterType::Enum => Kind::Text,
            ParameterType::Integer => Kind::Number,
            ParameterType::Boolean => Kind::Boolean,
            ParameterType::List => Kind::List,
            ParameterType::Secret => Kind::Any,
        };
        match (declared.kind, below) {
            (Some(ParameterType::Secret), _) => {
                let message = format!("parameter \"{name}\" is a secret, which no condition may name");
                self.say(message, "conditions are shown; decide by another parameter");
                Kind::Any
            }
            (None, _) => Kind::Any,
            (Some(kind), []) => of(kind),
            (Some(ParameterType::List), [Step::Item(_)]) => declared.items.as_ref().map_or(Kind::Any, |i| of(i.kind)),
            (Some(ParameterType::List), _) => Kind::Any,
            (Some(kind), _) => self.nothing(path, &format!("parameter \"{name}\" is of type {kind}")),
        }
    }

    /// `results.ACTION.FIELD`
    fn result(&mut self, path: &Path, rest: &[Step]) -> Kind {
        let [Step::Field(action), Step::Field(field)] = rest else {
            return self.nothing(path, "name an action and one of its results, such as results.register.succeeded");
        };
        match self.scope.others.field(action, field) {
            Ok(FieldKind::Boolean) => Kind::Boolean,
            Ok(FieldKind::Number) => Kind::Number,
            Ok(FieldKind::Text) => Kind::Text,
            Err(fault) => {
                self.found.push(fault);
                Kind::Any
            }
        }
    }

    fn disk(&mut self, path: &Path, rest: &[Step]) -> Kind {
        let own = |field: &str| match field {
            "number" => Some(Kind::Number),
            _ => None,
        };
        match rest {
            [Step::Field(field)] if own(field).is_some() => own(field).unwrap_or(Kind::Any),
            // What names a disk stands beside its other facts.
            [Step::Field(field), ..] if properties(schema_of::<DiskId>()).any(|name| name == field) => {
                self.known(path, schema_of::<DiskId>(), rest)
            }
            _ => self.known(path, schema_of::<DiskFacts>(), rest),
        }
    }

    /// A path through facts, whose schema is known.
    fn known(&mut self, path: &Path, schema: &'static Value, steps: &[Step]) -> Kind {
        let mut at = schema;
        for step in steps {
            let below = match step {
                Step::Field(name) => at.get("properties").and_then(|fields| fields.get(name)),
                Step::Item(_) => at.get("items"),
            };
            let Some(below) = below else {
                let names: Vec<&str> = properties(at).map(String::as_str).collect();
                let hint = match step {
                    Step::Field(name) if !names.is_empty() => suggest(name, &names, "The fields are"),
                    _ => "landfall get machine NAME -o yaml shows the facts under status.facts".to_owned(),
                };
                self.say(format!("{} is unknown", path.written), hint);
                return Kind::Any;
            };
            at = resolved(schema, below);
        }
        match at.get("type") {
            Some(Value::String(kind)) => match kind.as_str() {
                "string" => Kind::Text,
                "integer" | "number" => Kind::Number,
                "boolean" => Kind::Boolean,
                "array" => Kind::List,
                "object" if properties(at).next().is_some() => {
                    let names: Vec<&str> = properties(at).map(String::as_str).collect();
                    self.nothing(path, &format!("name one of its fields: {}", names.join(", ")))
                }
                _ => Kind::Any,
            },
            _ => Kind::Any,
        }
    }

    fn nothing(&mut self, path: &Path, hint: &str) -> Kind {
        self.say(format!("{} is no value", path.written), hint);
        Kind::Any
    }
}
