//! Rules of a template: its parameters, its lists, and the names in its expressions.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Lists;
use crate::action::Rules;
use crate::expression::check_expressions;
use crate::issue::{Issue, has_expression, join, suggest};
use crate::nearest::nearest;
use crate::{ActionSpec, ErrorCode, Others, Parameter, ParameterType, Template, When, WhenScope};

/// The most parameters of one template: more than any person states.
const MAX_PARAMETERS: usize = 64;

pub(super) fn template(template: &Template, issues: &mut Vec<Issue>) {
    let spec = &template.spec;
    if spec.parameters.len() > MAX_PARAMETERS {
        let message = format!("there are {} parameters; the limit is {MAX_PARAMETERS}", spec.parameters.len());
        issues.push(Issue::new("spec.parameters", message, "combine some of them into a list or a mapping"));
    }
    let mut found = Vec::new();
    if spec.fragment {
        for (field, stated) in spec.of_whole_lists() {
            if stated {
                let message = format!("{field} is not allowed in a fragment");
                found.push(Issue::new(join("spec", field), message, "state it in the template that includes this one"));
            }
        }
    }
    for (name, parameter) in &spec.parameters {
        let path = join("spec.parameters", name);
        let identifier = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !identifier {
            let message = format!("\"{name}\" cannot be a parameter's name");
            let hint = "use letters, digits and \"_\", so that expressions can name it";
            issues.push(Issue::new(&path, message, hint));
        }
        parameter.faults(&path, &mut found);
    }
    let (actions, on_failure) = (spec.actions.as_slice(), spec.on_failure.as_slice());
    let lists = Lists {
        template: &template.metadata.name,
        fragment: spec.fragment,
        expressions: true,
        actions,
        on_failure,
        success_on: spec.success_on,
    };
    Rules::new(&mut found).lists(&lists, "spec");
    for (list, name) in [(actions, "actions"), (on_failure, "onFailure")] {
        for (i, action) in list.iter().enumerate() {
            let root = format!("spec.{name}[{i}]");
            let disk = action.get("forEach").is_some();
            if let Some(text) = action.get("when").and_then(Value::as_str) {
                let others = Others::seen_from(list, i);
                let scope = WhenScope { parameters: &spec.parameters, disk, others: &others };
                let faults = match When::parse(text) {
                    Ok(when) => when.faults(&scope),
                    Err(fault) => vec![fault],
                };
                let at = join(&root, "when");
                found.extend(faults.into_iter().map(|fault| Issue::new(&at, fault.message, fault.hint)));
            }
            Names { parameters: &spec.parameters, disk, root: &root, issues: &mut found }.tree(action, &root);
        }
    }
    issues.extend(found.into_iter().map(|issue| issue.coded(ErrorCode::InvalidTemplate)));
}

/// Checks that every expression of one action parses, uses only existing names, and names secrets only where they may
/// stand.
struct Names<'a> {
    parameters: &'a BTreeMap<String, Parameter>,
    /// Whether it is in a loop over disks.
    disk: bool,
    /// The action's path.
    root: &'a str,
    issues: &'a mut Vec<Issue>,
}

impl Names<'_> {
    fn tree(&mut self, tree: &Value, path: &str) {
        match tree {
            Value::String(text) if has_expression(text) => self.scalar(text, path),
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(i, v)| self.tree(v, &format!("{path}[{i}]")));
            }
            Value::Object(map) => {
                // A condition has a language of its own.
                let is_item = path == self.root;
                let others = map.iter().filter(|(key, _)| !is_item || *key != "when");
                others.for_each(|(key, value)| self.tree(value, &join(path, key)));
            }
            _ => {}
        }
    }

    fn say(&mut self, path: &str, message: String, hint: impl Into<String>) {
        self.issues.push(Issue::new(path, message, hint));
    }

    fn scalar(&mut self, text: &str, path: &str) {
        let text = crate::with_secret_names(text);
        // Before the parser, which folds constants however large they become.
        if let Err(error) = check_expressions(&text) {
            return self.say(path, error.to_string(), error.hint());
        }
        let environment = minijinja::Environment::new();
        let template = match environment.template_from_str(&text) {
            Ok(template) => template,
            Err(error) => {
                let message = format!("the expression does not parse: {}", error.detail().unwrap_or("syntax error"));
                return self.say(path, message, "write {{ params.name }} or {{ machine.name }}");
            }
        };
        let mut names: Vec<String> = template.undeclared_variables(true).into_iter().collect();
        names.sort();
        for name in names {
            let (root, rest) = name.split_once('.').unwrap_or((&name, ""));
            match root {
                "machine" => {}
                "disk" if self.disk => {}
                "disk" => {
                    let hint = "add forEach: { disks: { … } } to this item, or name a parameter";
                    self.say(path, "\"disk\" is known only in a loop over disks".into(), hint);
                }
                // Which secrets exist, and for which machines, is known when a workflow begins.
                "secrets" if rest.is_empty() || rest.contains('.') || text.contains(&format!("{name}[")) => {
                    self.secret("a secret", path);
                }
                "secrets" => {
                    let hint = format!("write {{{{ {name}.KEY }}}}, with one of the keys of its document");
                    self.say(path, format!("{name} is a whole secret document, and not one of its values"), hint);
                }
                "params" => self.parameter(rest.split('.').next().unwrap_or_default(), path),
                other => {
                    let known = "expressions may name machine (name, labels, macs, facts), params and secrets";
                    let hint = match nearest(other, &["machine", "params", "secrets"]) {
                        Some(name) => format!("did you mean \"{name}\"? {known}"),
                        None => known.to_owned(),
                    };
                    self.say(path, format!("\"{other}\" is an unknown name"), hint);
                }
            }
        }
    }

    fn parameter(&mut self, name: &str, path: &str) {
        match self.parameters.get(name) {
            Some(declared) if declared.kind == Some(ParameterType::Secret) => {
                self.secret(&format!("parameter \"{name}\" is a secret, which"), path);
            }
            None if !name.is_empty() => {
                let known: Vec<&str> = self.parameters.keys().map(String::as_str).collect();
                let hint = match known.as_slice() {
                    [] => format!("add it: spec.parameters.{name}: {{}}"),
                    some => suggest(name, some, "The parameters are"),
                };
                self.say(path, format!("the template has no parameter \"{name}\""), hint);
            }
            _ => {}
        }
    }

    /// A secret in any other field would be logged or shown.
    fn secret(&mut self, what: &str, path: &str) {
        let place = path.strip_prefix(self.root).unwrap_or(path).trim_start_matches('.');
        // The included template says where its parameter stands.
        if !ActionSpec::may_hold_secret(place) && !place.starts_with("include.parameters.") {
            let message = format!("{what} is not allowed here, because this field is logged and shown");
            let places = ActionSpec::secret_places().collect::<Vec<_>>().join(", ");
            self.say(path, message, format!("a secret may stand in {places}"));
        }
    }
}
