//! Expressions become values.
//!
//! They stand only inside scalars of the parsed tree, so a value can never change the document's structure (no YAML inside
//! YAML). A scalar that is one lone expression keeps the expression's type. An undefined name in a template is an error: it
//! never becomes an empty string on a disk.

use std::cell::Cell;

use landfall_api::{ErrorCode, Problem, check_expressions};
use minijinja::{Environment, UndefinedBehavior, syntax::SyntaxConfig};
use serde_json::Value;

use super::secret_ref;

/// The largest value that one scalar may become, bytes of its JSON: many times what a seed holds.
pub const MAX_RENDERED: usize = 256 << 10;

/// The largest list with everything that it leaves out, bytes of its JSON, and the most that is rendered for one: half of
/// the largest document, since a status holds the list and what comes of it.
const MAX_LIST: usize = 512 << 10;

/// What the expressions of one list may copy while they are evaluated, bytes: about a second's work. The renderer's own fuel
/// counts steps; here no loop and no function is taken, so steps are few, and it is a step's values that are large.
const MAX_WORK: u64 = 2 << 30;

/// What expressions see.
pub(super) struct Scope {
    pub(super) values: minijinja::Value,
    /// Bytes of its JSON.
    pub(super) bytes: usize,
}

/// What may still be rendered for one list, and evaluated for it.
#[derive(Debug)]
pub(super) struct Room {
    bytes: Cell<usize>,
    work: Cell<u64>,
}

impl Room {
    /// For a list of which nothing is rendered.
    pub(super) const fn whole() -> Self {
        Self { bytes: Cell::new(MAX_LIST), work: Cell::new(MAX_WORK) }
    }

    /// Takes what expressions of so many parts copy at most: each part all that they see, and a `~` also what stands before it.
    ///
    /// # Errors
    /// [`Problem`] with code `InvalidTemplate` if that is not left.
    fn evaluate(&self, parts: usize, scope: &Scope, path: &str) -> Result<(), Problem> {
        let work = (parts.saturating_mul(parts) / 8).saturating_add(1).saturating_mul(scope.bytes);
        let left = self.work.get().checked_sub(u64::try_from(work).unwrap_or(u64::MAX)).ok_or_else(|| {
            let message = format!(
                "the list's expressions take too much work: there are many long ones, and they see {} KiB of parameters \
                 and facts",
                scope.bytes >> 10
            );
            Problem::new(ErrorCode::InvalidTemplate, message)
                .at(path)
                .hint("divide long expressions, or give large texts by URL (writeFile.url) and not as parameters")
        })?;
        self.work.set(left);
        Ok(())
    }

    /// Takes so many bytes of it.
    ///
    /// # Errors
    /// [`Problem`] with code `InvalidTemplate` if it does not have them.
    pub(super) fn take(&self, bytes: usize, path: &str) -> Result<(), Problem> {
        let left = self.bytes.get().checked_sub(bytes).ok_or_else(|| {
            let message = format!(
                "the list, with the parameters of the lists that it includes, takes more than {} KiB",
                MAX_LIST >> 10
            );
            Problem::new(ErrorCode::InvalidTemplate, message)
                .at(path)
                .hint("fetch large texts from a URL (writeFile.url), or split the template")
        })?;
        self.bytes.set(left);
        Ok(())
    }
}

/// Where expressions are evaluated: an undefined name is an error.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    // A script or a key ends as its author wrote it.
    let syntax = SyntaxConfig::builder().keep_trailing_newline(true).build();
    // The usual delimiters are always valid.
    environment.set_syntax(syntax.unwrap_or_default());
    environment
}

/// A tree with every expression replaced by its value, and references in place of secrets; `path` is where it stands. All
/// of its texts, and the names of its fields, are taken from the room.
///
/// # Errors
/// [`Problem`] with code `InvalidTemplate` for the first that has no value, and for one that no room is left for.
pub(super) fn render_tree(
    environment: &Environment<'_>, scope: &Scope, tree: &Value, path: &str, room: &Room,
) -> Result<Value, Problem> {
    match tree {
        Value::String(text) => render_scalar(environment, scope, text, path, room),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, item)| render_tree(environment, scope, item, &format!("{path}[{index}]"), room))
            .collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, field)| {
                room.take(key.len(), path)?;
                Ok((key.clone(), render_tree(environment, scope, field, &format!("{path}.{key}"), room)?))
            })
            .collect::<Result<serde_json::Map<_, _>, Problem>>()
            .map(Value::Object),
        scalar => {
            room.take(size_of::<u64>(), path)?;
            Ok(scalar.clone())
        }
    }
}

fn render_scalar(
    environment: &Environment<'_>, scope: &Scope, text: &str, path: &str, room: &Room,
) -> Result<Value, Problem> {
    let problem = |message: String| Problem::new(ErrorCode::InvalidTemplate, message).at(path);
    // Templates that were stored before expressions were checked come here unchecked.
    let named = landfall_api::with_secret_names(text);
    let parts = check_expressions(&named).map_err(|error| problem(error.to_string()).hint(error.hint()))?;
    if secret_ref::has_placeholder(text) {
        return Err(
            problem("it contains characters that are not allowed (U+FDD0 to U+FDD2)".into()).hint("remove them")
        );
    }
    if !text.contains("{{") {
        room.take(text.len(), path)?;
        return Ok(Value::String(text.to_owned()));
    }
    room.evaluate(parts, scope, path)?;
    let in_scope = "in scope are machine.name, machine.uid, machine.labels, machine.macs, machine.facts, params and secrets; in a loop disk";
    let pinned =
        |value: Value| pin(value).map_err(|what| problem(format!("cannot pin \"{text}\": {what}")).hint(in_scope));
    let text = &named;
    let failed = |error: minijinja::Error| problem(format!("cannot render \"{text}\": {error}")).hint(in_scope);
    let Some(expression) = lone_expression(text) else {
        let mut out = Bounded(Vec::new());
        let written = |t: minijinja::Template<'_, '_>| t.render_captured_to(&scope.values, &mut out).map(drop);
        environment.template_from_str(text).and_then(written).map_err(failed)?;
        room.take(out.0.len(), path)?;
        let rendered = String::from_utf8(out.0).map(Value::String).map_err(|error| problem(error.to_string()))?;
        return pinned(rendered);
    };
    let value = environment.compile_expression(expression).and_then(|e| e.eval(&scope.values)).map_err(failed)?;
    if value.is_undefined() {
        return Err(problem(format!("\"{text}\" is not defined")).hint(in_scope));
    }
    let plain = |error: serde_json::Error| problem(format!("\"{text}\" is not a plain value: {error}"));
    let mut out = Bounded(Vec::new());
    serde_json::to_writer(&mut out, &value).map_err(plain)?;
    room.take(out.0.len(), path)?;
    serde_json::from_slice(&out.0).map_err(plain).and_then(pinned)
}

/// What an expression came to, with references in place of the secrets it named.
fn pin(value: Value) -> Result<Value, &'static str> {
    Ok(match value {
        Value::String(text) => Value::String(secret_ref::pinned(&text)?),
        Value::Array(items) => Value::Array(items.into_iter().map(pin).collect::<Result<_, _>>()?),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, field)| match secret_ref::has_placeholder(&name) {
                true => Err("a secret must not be the name of a field"),
                false => Ok((name, pin(field)?)),
            })
            .collect::<Result<serde_json::Map<_, _>, _>>()?
            .into(),
        other => other,
    })
}

/// An expression of a few characters can stand for gigabytes: what it becomes is written no further than allowed.
struct Bounded(Vec<u8>);

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_RENDERED {
            return Err(std::io::Error::other(format!("its value has more than {MAX_RENDERED} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The inside of `{{ … }}` if the whole scalar is that one expression.
fn lone_expression(text: &str) -> Option<&str> {
    let inside = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    (!inside.contains("{{") && !inside.contains("}}")).then(|| inside.trim())
}
