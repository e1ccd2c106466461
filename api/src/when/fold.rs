//! What is left of a condition once all is known but the results of actions.

use std::{collections::BTreeSet, fmt};

use serde_json::Value;

use super::results::{RESULTS, SUCCEEDED};
use super::{Comparison, Node, Path, Step, When, WhenFault, names, truth, value};

/// What a condition comes to before its list begins.
#[derive(Debug, Clone, PartialEq)]
pub enum Folded {
    /// It holds, or it does not.
    Decided(bool),
    /// That depends on what actions come to: this much is left, with every other value in place.
    Depends(When),
}

/// An action that a condition names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamedAction {
    /// It is in the list under this name.
    Listed(String),
    /// It is not: its own condition did not hold.
    LeftOut,
}

impl When {
    /// Whether it depends on what actions come to.
    pub fn names_results(&self) -> bool {
        names(&self.0, RESULTS)
    }

    /// The actions whose results it names.
    pub fn results(&self) -> BTreeSet<&str> {
        let mut out = BTreeSet::new();
        named(&self.0, &mut out);
        out
    }

    /// Decides as much of it as `scope` knows (see [`When::holds`]). `action` says what an action's name stands for; `None`: for
    /// no action before this one.
    ///
    /// # Errors
    /// [`WhenFault`] for a value or an action that does not exist, and for what is left if it cannot be written as a condition.
    pub fn fold(&self, scope: &Value, action: &dyn Fn(&str) -> Option<NamedAction>) -> Result<Folded, WhenFault> {
        let left = match (Folding { scope, action }).condition(&self.0)? {
            Node::Literal(Value::Bool(decided)) => return Ok(Folded::Decided(decided)),
            left => Self(left),
        };
        left.is_written()?;
        Ok(Folded::Depends(left))
    }

    /// Both of them.
    ///
    /// # Errors
    /// [`WhenFault`] if they are too long together, or nested too deep.
    pub fn and(self, other: Self) -> Result<Self, WhenFault> {
        let both = Self(Node::And(Box::new(self.0), Box::new(other.0)));
        both.is_written()?;
        Ok(both)
    }

    /// What is left is carried as text.
    fn is_written(&self) -> Result<(), WhenFault> {
        let hint = "compare results with short texts and whole numbers, in few parts";
        let unfit = |what: &str| WhenFault::new(format!("with its values in place the condition {what}"), hint);
        match Self::parse(&self.to_string()) {
            Ok(read) if read == *self => Ok(()),
            Ok(_) => Err(unfit("compares a result with what is neither text nor whole number")),
            Err(fault) => Err(unfit(&format!("cannot be carried to the agent: {}", fault.message))),
        }
    }
}

fn named<'n>(node: &'n Node, out: &mut BTreeSet<&'n str>) {
    match node {
        Node::Literal(_) => {}
        Node::List(items) => items.iter().for_each(|item| named(item, out)),
        Node::Path(path) | Node::Defined(path) => {
            if let [Step::Field(root), Step::Field(action), ..] = path.steps.as_slice()
                && root == RESULTS
            {
                out.insert(action);
            }
        }
        Node::Not(inner) => named(inner, out),
        Node::And(left, right) | Node::Or(left, right) | Node::Compare(_, left, right) | Node::In(left, right) => {
            named(left, out);
            named(right, out);
        }
    }
}

struct Folding<'a> {
    scope: &'a Value,
    action: &'a dyn Fn(&str) -> Option<NamedAction>,
}

/// What a path to a result comes to.
enum Found {
    Later(Path),
    /// Of an action that is not in the list.
    Known(Option<Value>),
}

impl Folding<'_> {
    /// What stands where only true or false may.
    fn condition(&self, node: &Node) -> Result<Node, WhenFault> {
        if !names(node, RESULTS) {
            return Ok(literal(truth(node, self.scope)?));
        }
        Ok(match node {
            Node::And(left, right) => match self.condition(left)? {
                Node::Literal(Value::Bool(false)) => literal(false),
                Node::Literal(_) => self.condition(right)?,
                left => match self.condition(right)? {
                    Node::Literal(Value::Bool(true)) => left,
                    Node::Literal(_) => literal(false),
                    right => Node::And(Box::new(left), Box::new(right)),
                },
            },
            Node::Or(left, right) => match self.condition(left)? {
                Node::Literal(Value::Bool(true)) => literal(true),
                Node::Literal(_) => self.condition(right)?,
                left => match self.condition(right)? {
                    Node::Literal(Value::Bool(false)) => left,
                    Node::Literal(_) => literal(true),
                    right => Node::Or(Box::new(left), Box::new(right)),
                },
            },
            Node::Not(inner) => match self.condition(inner)? {
                Node::Literal(Value::Bool(decided)) => literal(!decided),
                left => Node::Not(Box::new(left)),
            },
            Node::Defined(path) => match self.result(path)? {
                Found::Later(path) => Node::Defined(path),
                Found::Known(value) => literal(value.is_some()),
            },
            Node::Compare(how, left, right) => {
                self.decided(Node::Compare(*how, Box::new(self.operand(left)?), Box::new(self.operand(right)?)))?
            }
            Node::In(left, right) => {
                self.decided(Node::In(Box::new(self.operand(left)?), Box::new(self.operand(right)?)))?
            }
            Node::Path(_) | Node::Literal(_) | Node::List(_) => self.decided(self.operand(node)?)?,
        })
    }

    /// What is compared.
    fn operand(&self, node: &Node) -> Result<Node, WhenFault> {
        if !names(node, RESULTS) {
            return value(node, self.scope).map(in_place);
        }
        match node {
            Node::Path(path) => match self.result(path)? {
                Found::Later(path) => Ok(Node::Path(path)),
                Found::Known(Some(value)) => Ok(in_place(value)),
                // Of what is not in the list, only whether it was done is known.
                Found::Known(None) => {
                    let message = format!("{} is not defined, because that action is not in the list", path.written);
                    Err(WhenFault::new(message, format!("write {} is defined and …", path.written)))
                }
            },
            Node::List(items) => Ok(Node::List(items.iter().map(|item| self.operand(item)).collect::<Result<_, _>>()?)),
            condition => self.condition(condition),
        }
    }

    /// Now that its parts are: whether anything is left to be found out.
    fn decided(&self, node: Node) -> Result<Node, WhenFault> {
        if names(&node, RESULTS) { Ok(node) } else { Ok(literal(truth(&node, &Value::Null)?)) }
    }

    fn result(&self, path: &Path) -> Result<Found, WhenFault> {
        let [Step::Field(_), Step::Field(name), rest @ ..] = path.steps.as_slice() else {
            let hint = "name an action and one of its fields, such as results.register.status";
            return Err(WhenFault::new(format!("{} is no value", path.written), hint));
        };
        match (self.action)(name) {
            None => {
                let message = format!("no action before this one is called \"{name}\"");
                Err(WhenFault::new(message, "name an earlier action of the same template"))
            }
            Some(NamedAction::LeftOut) => {
                let is_done = matches!(rest, [Step::Field(field)] if field == SUCCEEDED);
                Ok(Found::Known(is_done.then_some(Value::Bool(false))))
            }
            Some(NamedAction::Listed(listed)) => {
                let steps: Vec<Step> = [RESULTS, &listed]
                    .map(|step| Step::Field(step.to_owned()))
                    .into_iter()
                    .chain(rest.iter().cloned())
                    .collect();
                Ok(Found::Later(Path { written: Written(&steps).to_string(), steps }))
            }
        }
    }
}

/// A value as the parser reads it: a list is one of literals.
fn in_place(value: Value) -> Node {
    match value {
        Value::Array(items) => Node::List(items.into_iter().map(in_place).collect()),
        scalar => Node::Literal(scalar),
    }
}

const fn literal(decided: bool) -> Node {
    Node::Literal(Value::Bool(decided))
}

/// As [`When::parse`] reads it, with no more parentheses than it needs.
impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, &self.0, Level::Any)
    }
}

/// What may stand somewhere without parentheses, loosest first.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Level {
    Any,
    All,
    Negated,
    Operand,
}

fn write(f: &mut fmt::Formatter<'_>, node: &Node, at: Level) -> fmt::Result {
    let own = match node {
        Node::Or(..) => Level::Any,
        Node::And(..) => Level::All,
        Node::Not(_) | Node::Defined(_) | Node::Compare(..) | Node::In(..) => Level::Negated,
        Node::Literal(_) | Node::List(_) | Node::Path(_) => Level::Operand,
    };
    if own < at {
        f.write_str("(")?;
        write(f, node, Level::Any)?;
        return f.write_str(")");
    }
    let two = |f: &mut fmt::Formatter<'_>, left: &Node, word: &str, right: &Node, levels: (Level, Level)| {
        write(f, left, levels.0)?;
        write!(f, " {word} ")?;
        write(f, right, levels.1)
    };
    match node {
        Node::Or(left, right) => two(f, left, "or", right, (Level::Any, Level::All)),
        Node::And(left, right) => two(f, left, "and", right, (Level::All, Level::Negated)),
        Node::Not(inner) => {
            f.write_str("not ")?;
            write(f, inner, Level::Negated)
        }
        Node::Defined(path) => write!(f, "{} is defined", Written(&path.steps)),
        Node::Compare(how, left, right) => two(f, left, how.sign(), right, (Level::Operand, Level::Operand)),
        Node::In(left, right) => two(f, left, "in", right, (Level::Operand, Level::Operand)),
        Node::Literal(Value::String(text)) => quoted(f, text),
        Node::Literal(value) => write!(f, "{value}"),
        Node::List(items) => {
            f.write_str("[")?;
            for (n, item) in items.iter().enumerate() {
                f.write_str(if n > 0 { ", " } else { "" })?;
                write(f, item, Level::Operand)?;
            }
            f.write_str("]")
        }
        Node::Path(path) => write!(f, "{}", Written(&path.steps)),
    }
}

fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    write!(f, "\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The steps of a path.
struct Written<'a>(&'a [Step]);

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, step) in self.0.iter().enumerate() {
            match step {
                Step::Field(name) if n == 0 => f.write_str(name)?,
                Step::Field(name)
                    if !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') =>
                {
                    write!(f, ".{name}")?;
                }
                Step::Field(name) => {
                    f.write_str("[")?;
                    quoted(f, name)?;
                    f.write_str("]")?;
                }
                Step::Item(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

impl Comparison {
    const fn sign(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}
