//! `when`: the condition under which an item of a list is part of it, or an action of it is done.
//!
//! A small language of its own, typed and without side effects: paths, literals, comparisons, `in`, `is defined`, `and`,
//! `or`, `not` and parentheses. There are no functions and no filters, so a condition costs no more than the values it names.

mod fold;
mod parse;
mod results;
mod types;

use std::{cmp::Ordering, collections::BTreeMap};

use serde_json::Value;

pub use self::fold::{Folded, NamedAction};
pub use self::results::{ActionOutcome, Others, results_scope};
use crate::{Parameter, issue::describe};

/// A condition that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct When(Node);

/// Why a condition is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhenFault {
    /// What is wrong, with what was written.
    pub message: String,
    /// What to write.
    pub hint: String,
}

impl WhenFault {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

/// A part of a condition.
#[derive(Debug, Clone, PartialEq)]
enum Node {
    Literal(Value),
    List(Vec<Node>),
    Path(Path),
    Defined(Path),
    Not(Box<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    Compare(Comparison, Box<Node>, Box<Node>),
    In(Box<Node>, Box<Node>),
}

/// How two values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }

    const fn is_equality(self) -> bool {
        matches!(self, Self::Equal | Self::NotEqual)
    }
}

/// Where a value is, such as `machine.labels["rack"]` or `machine.macs[0]`.
#[derive(Debug, Clone, PartialEq)]
struct Path {
    written: String,
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Item(usize),
}

/// What a condition may name.
#[derive(Debug)]
pub struct WhenScope<'a> {
    /// The template's parameters.
    pub parameters: &'a BTreeMap<String, Parameter>,
    /// Whether it is in a loop over disks.
    pub disk: bool,
    /// The other actions of its list.
    pub others: &'a Others,
}

impl When {
    /// Reads a condition.
    ///
    /// # Errors
    /// [`WhenFault`] naming the first part that does not fit.
    pub fn parse(text: &str) -> Result<Self, WhenFault> {
        parse::parse(text).map(Self)
    }

    /// What is wrong with its names and types; empty if nothing is.
    pub fn faults(&self, scope: &WhenScope<'_>) -> Vec<WhenFault> {
        types::faults(&self.0, scope)
    }

    /// Whether it names `disk`: otherwise it says the same of every copy in a loop.
    pub fn names_disk(&self) -> bool {
        names(&self.0, "disk")
    }

    /// Whether it holds. `scope` has what paths name: `machine`, `params`, and in a loop `disk`. Only as much is looked at
    /// as decides: of `a or b` where `a` holds, `b` is not.
    ///
    /// # Errors
    /// [`WhenFault`] for a value that does not exist, and for values that cannot be compared.
    pub fn holds(&self, scope: &Value) -> Result<bool, WhenFault> {
        truth(&self.0, scope)
    }
}

impl Path {
    fn find<'v>(&self, scope: &'v Value) -> Option<&'v Value> {
        let found = self.steps.iter().try_fold(scope, |at, step| match step {
            Step::Field(name) => at.get(name),
            Step::Item(index) => at.get(index),
        });
        found.filter(|value| !value.is_null())
    }
}

/// Whether a path begins with that word.
fn names(node: &Node, root: &str) -> bool {
    match node {
        Node::Literal(_) => false,
        Node::List(items) => items.iter().any(|item| names(item, root)),
        Node::Path(path) | Node::Defined(path) => {
            matches!(path.steps.first(), Some(Step::Field(name)) if name == root)
        }
        Node::Not(inner) => names(inner, root),
        Node::And(left, right) | Node::Or(left, right) | Node::Compare(_, left, right) | Node::In(left, right) => {
            names(left, root) || names(right, root)
        }
    }
}

fn truth(node: &Node, scope: &Value) -> Result<bool, WhenFault> {
    Ok(match node {
        Node::Defined(path) => path.find(scope).is_some(),
        Node::Not(inner) => !truth(inner, scope)?,
        Node::And(left, right) => truth(left, scope)? && truth(right, scope)?,
        Node::Or(left, right) => truth(left, scope)? || truth(right, scope)?,
        Node::Compare(how, left, right) => compare(*how, &value(left, scope)?, &value(right, scope)?)?,
        Node::In(left, right) => match value(right, scope)? {
            Value::Array(items) => {
                let wanted = value(left, scope)?;
                items.iter().any(|item| equal(item, &wanted))
            }
            other => {
                let message = format!("\"in\" needs a list on its right, not {}", describe(&other));
                return Err(WhenFault::new(message, "write a list, such as [\"a\", \"b\"]"));
            }
        },
        Node::Literal(_) | Node::List(_) | Node::Path(_) => match value(node, scope)? {
            Value::Bool(truth) => truth,
            other => {
                let message = format!("{} is neither true nor false", describe(&other));
                return Err(WhenFault::new(message, "compare it with something"));
            }
        },
    })
}

fn value(node: &Node, scope: &Value) -> Result<Value, WhenFault> {
    match node {
        Node::Literal(literal) => Ok(literal.clone()),
        Node::List(items) => items.iter().map(|item| value(item, scope)).collect(),
        Node::Path(path) => path.find(scope).cloned().ok_or_else(|| {
            let message = format!("{} is not defined", path.written);
            WhenFault::new(message, format!("write {} is defined and …, or give it a value", path.written))
        }),
        condition => truth(condition, scope).map(Value::Bool),
    }
}

/// Numbers by their value, so that 1 is 1.0.
fn equal(left: &Value, right: &Value) -> bool {
    match order(left, right) {
        Some(order) => order.is_eq(),
        None => left == right,
    }
}

fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) => match (left.as_i128(), right.as_i128()) {
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
        },
        _ => None,
    }
}

fn compare(how: Comparison, left: &Value, right: &Value) -> Result<bool, WhenFault> {
    match order(left, right) {
        Some(order) => Ok(how.holds(order)),
        None if how.is_equality() => Ok((left == right) == (how == Comparison::Equal)),
        None => {
            let (left, right) = (describe(left), describe(right));
            Err(WhenFault::new(format!("{left} and {right} have no order"), "compare two numbers or two texts"))
        }
    }
}

#[cfg(test)]
mod tests;
