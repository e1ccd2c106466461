//! Templates become typed action lists.
//!
//! Expressions stand only inside scalars of the parsed tree, so a value can never change the document's structure (no
//! YAML inside YAML). A scalar that is one lone expression keeps the expression's type. An undefined name in a template
//! is an error: it never becomes an empty string on a disk.

use std::collections::BTreeMap;

use landfall_api::{
    Action, ActionSpec, ActionStatus, DiskReceipt, DurationSpec, ErrorCode, Machine, Problem, SuccessOn, Template,
    WorkflowStatus, check_expressions, validate_rendered,
};
use minijinja::{Environment, UndefinedBehavior, context};
use serde_json::{Value, json};

use super::secret_ref::{self, Secrets};

/// The largest value that one scalar may become, bytes of its JSON: many times what a seed holds.
pub const MAX_RENDERED: usize = 256 << 10;

/// A template rendered for one machine: what a run of it pins.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What is done, in order.
    pub actions: Vec<Action>,
    /// What is done after a failure or a cancel.
    pub on_failure: Vec<Action>,
    /// How long the run may take in all, where the template says.
    pub timeout: Option<DurationSpec>,
    /// When it has succeeded, where the template says.
    pub success_on: Option<SuccessOn>,
}

impl Plan {
    /// The status of a run that has not begun.
    pub fn status(self, machine_generation: u64, expected_receipts: Vec<DiskReceipt>) -> WorkflowStatus {
        WorkflowStatus {
            actions: self.actions.into_iter().map(ActionStatus::pending).collect(),
            on_failure: self.on_failure.into_iter().map(ActionStatus::pending).collect(),
            timeout: self.timeout,
            success_on: self.success_on,
            machine_generation,
            expected_receipts,
            ..WorkflowStatus::default()
        }
    }
}

/// Renders the template's actions for a machine and checks the result, so that every error a list can have comes
/// before its first step.
///
/// # Errors
/// [`Problem`] with code `InvalidTemplate`; `subject` is the path of the field, such as
/// `Template/debian: spec.actions[0].writeImage.image.url`.
pub fn render(machine: &Machine, template: &Template, parameters: &BTreeMap<String, Value>) -> Result<Plan, Problem> {
    let name = &template.metadata.name;
    let (machine, parameters) = (machine_scope(machine), json!(resolve_parameters(template, parameters)?));
    if secret_ref::has_placeholder(&machine.to_string()) || secret_ref::has_placeholder(&parameters.to_string()) {
        let message = "a label, a fact or a parameter contains characters that are not allowed (U+FDD0 to U+FDD2)";
        return Err(Problem::new(ErrorCode::InvalidTemplate, message)
            .at(format!("Template/{name}: spec.actions"))
            .hint("remove them"));
    }
    let context = context! {
        machine => minijinja::Value::from(minijinja::value::Serde(machine)),
        params => minijinja::Value::from(minijinja::value::Serde(parameters)),
        secrets => minijinja::Value::from_object(Secrets),
    };
    let environment = environment();
    let list = |trees: &[Value], field: &str| {
        let one = |(index, tree): (usize, &Value)| {
            let path = format!("Template/{name}: spec.{field}[{index}]");
            let tree = render_tree(&environment, &context, tree, &path)?;
            if let Some(place) = secret_ref::misplaced(&tree) {
                let message = "a secret is not allowed here, because this field is logged and shown";
                return Err(Problem::new(ErrorCode::InvalidTemplate, message).at(format!("{path}.{place}")).hint(
                    format!("a secret may stand in {}", ActionSpec::secret_places().collect::<Vec<_>>().join(", ")),
                ));
            }
            typed_action(tree).map_err(|problem| rooted(problem, &path))
        };
        trees.iter().enumerate().map(one).collect::<Result<Vec<_>, Problem>>()
    };
    let spec = &template.spec;
    let plan = Plan {
        actions: list(&spec.actions, "actions")?,
        on_failure: list(&spec.on_failure, "onFailure")?,
        timeout: spec.timeout,
        success_on: spec.success_on,
    };
    validate_rendered(&plan.actions, &plan.on_failure, plan.success_on).map_err(|mut problem| {
        problem.subject = format!("Template/{name}: spec.{}", problem.subject);
        problem
    })?;
    Ok(plan)
}

fn typed_action(tree: Value) -> Result<Action, Problem> {
    serde_path_to_error::deserialize(tree).map_err(|error| {
        let path = error.path().to_string();
        Problem::new(ErrorCode::InvalidTemplate, error.into_inner().to_string())
            .at(if path == "." { String::new() } else { path })
            .hint("landfall explain templates lists the fields")
    })
}

/// Puts the path of the list or action before the path inside it, and gives the problem the template's code.
fn rooted(mut problem: Problem, root: &str) -> Problem {
    problem.code = ErrorCode::InvalidTemplate;
    problem.subject = match problem.subject.as_str() {
        "" => root.to_owned(),
        inner => format!("{root}.{inner}"),
    };
    problem
}

/// What expressions see as `machine`. Nothing secret is in it.
fn machine_scope(machine: &Machine) -> Value {
    let facts = machine.status.as_ref().and_then(|status| status.facts.as_ref());
    json!({
        "name": machine.metadata.name,
        "uid": machine.metadata.uid,
        "labels": machine.metadata.labels,
        "macs": machine.spec.identity.macs,
        "facts": facts,
    })
}

/// The stated parameters over the declared defaults.
fn resolve_parameters(
    template: &Template,
    stated: &BTreeMap<String, Value>,
) -> Result<BTreeMap<String, Value>, Problem> {
    let name = &template.metadata.name;
    let declared = &template.spec.parameters;
    let known = || match declared.keys().cloned().collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => format!("Template/{name} takes no parameters"),
        list => format!("Template/{name} takes: {list}"),
    };
    let problem = |message: String| {
        Problem::new(ErrorCode::InvalidTemplate, message).at(format!("Template/{name}: spec.parameters")).hint(known())
    };
    if let Some(unknown) = stated.keys().find(|key| !declared.contains_key(*key)) {
        return Err(problem(format!("parameter \"{unknown}\" is not declared")));
    }
    declared
        .iter()
        .map(|(key, parameter)| match stated.get(key).or(parameter.default.as_ref()) {
            Some(value) => Ok((key.clone(), value.clone())),
            None => Err(problem(format!("parameter \"{key}\" is required and was not stated"))),
        })
        .collect()
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment
}

fn render_tree(
    environment: &Environment<'_>,
    context: &minijinja::Value,
    tree: &Value,
    path: &str,
) -> Result<Value, Problem> {
    match tree {
        Value::String(text) => render_scalar(environment, context, text, path),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, item)| render_tree(environment, context, item, &format!("{path}[{index}]")))
            .collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, field)| Ok((key.clone(), render_tree(environment, context, field, &format!("{path}.{key}"))?)))
            .collect::<Result<serde_json::Map<_, _>, Problem>>()
            .map(Value::Object),
        scalar => Ok(scalar.clone()),
    }
}

fn render_scalar(
    environment: &Environment<'_>,
    context: &minijinja::Value,
    text: &str,
    path: &str,
) -> Result<Value, Problem> {
    let problem = |message: String| Problem::new(ErrorCode::InvalidTemplate, message).at(path);
    // Templates that were stored before expressions were checked come here unchecked.
    let named = landfall_api::with_secret_names(text);
    check_expressions(&named).map_err(|error| problem(error.to_string()).hint(error.hint()))?;
    if secret_ref::has_placeholder(text) {
        return Err(problem("it contains characters that are not allowed (U+FDD0 to U+FDD2)".into()).hint(
            "remove \
            them",
        ));
    }
    if !text.contains("{{") {
        return Ok(Value::String(text.to_owned()));
    }
    let in_scope =
        "in scope are machine.name, machine.uid, machine.labels, machine.macs, machine.facts, params and secrets";
    let pinned =
        |value: Value| pin(value).map_err(|what| problem(format!("cannot pin \"{text}\": {what}")).hint(in_scope));
    let text = &named;
    let failed = |error: minijinja::Error| problem(format!("cannot render \"{text}\": {error}")).hint(in_scope);
    let Some(expression) = lone_expression(text) else {
        let mut out = Bounded(Vec::new());
        let written = |t: minijinja::Template<'_, '_>| t.render_captured_to(context, &mut out).map(drop);
        environment.template_from_str(text).and_then(written).map_err(failed)?;
        let rendered = String::from_utf8(out.0).map(Value::String).map_err(|error| problem(error.to_string()))?;
        return pinned(rendered);
    };
    let value = environment.compile_expression(expression).and_then(|e| e.eval(context)).map_err(failed)?;
    if value.is_undefined() {
        return Err(problem(format!("\"{text}\" is not defined")).hint(in_scope));
    }
    let plain = |error: serde_json::Error| problem(format!("\"{text}\" is not a plain value: {error}"));
    let mut out = Bounded(Vec::new());
    serde_json::to_writer(&mut out, &value).map_err(plain)?;
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

#[cfg(test)]
mod tests {
    use landfall_api::Document;

    use super::*;

    fn machine() -> Machine {
        let tree = json!({
            "apiVersion": landfall_api::API_VERSION, "kind": "Machine",
            "metadata": {"name": "node-1", "labels": {"rack": "r7"}},
            "spec": {"identity": {"macs": ["52:54:00:00:00:01"]}},
        });
        match Document::from_value(tree).unwrap() {
            Document::Machine(machine) => machine.into_inner(),
            other => panic!("{other:?}"),
        }
    }

    fn template(parameters: Value, actions: Value) -> Template {
        let tree = json!({
            "apiVersion": landfall_api::API_VERSION, "kind": "Template", "metadata": {"name": "t"},
            "spec": {"parameters": parameters, "actions": actions},
        });
        match Document::from_value(tree).unwrap() {
            Document::Template(template) => template.into_inner(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_expression_with_a_huge_value_is_refused_early() {
        for text in [
            "{{ [[1] * 9999] * 9999 }}",
            "{{ range(90000) | list }}",
            "x{{ range(90000) | list }}",
            "{{ (1,) * 100000000 }}",
            "{{ (\"a\"*100000)|replace(\"a\",\"b\"*100000) }}",
            "{{ ([[1]*10000]*10000)|string }}",
            "{{ lipsum(100000) }}",
        ] {
            let problem = render(&machine(), &template(json!({}), seed(json!({"hostname": text}))), &BTreeMap::new());
            let problem = problem.unwrap_err();
            assert_eq!(problem.code, ErrorCode::InvalidTemplate, "{problem}");
            assert!(problem.subject.ends_with("cloudInit.hostname"), "{problem}");
            assert!(problem.to_string().contains("is not taken"), "{problem}");
        }
    }

    fn seed(mut fields: Value) -> Value {
        fields["disk"] = json!({});
        json!([{"name": "seed", "cloudInit": fields}])
    }

    fn rendered_seed(fields: Value, parameters: Value) -> Result<landfall_api::CloudInitSpec, Problem> {
        let stated = parameters.as_object().unwrap().clone().into_iter().collect();
        let declared: serde_json::Map<_, _> =
            parameters.as_object().unwrap().keys().map(|key| (key.clone(), json!({}))).collect();
        let plan = render(&machine(), &template(Value::Object(declared), seed(fields)), &stated)?;
        match plan.actions.into_iter().next().unwrap().spec {
            ActionSpec::CloudInit(spec) => Ok(spec),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_expression_inside_text_is_text() {
        let spec =
            rendered_seed(json!({"hostname": "{{ machine.name }}-{{ machine.labels.rack }}"}), json!({})).unwrap();
        assert_eq!(spec.hostname.as_deref(), Some("node-1-r7"));
    }

    #[test]
    fn a_lone_expression_keeps_its_type() {
        let user_data = json!({"a": "{{ params.on }}", "b": "{{ params.list }}", "c": "{{ params.n + 1 }}", "d": "x{{ params.n }}"});
        let spec =
            rendered_seed(json!({"userData": user_data}), json!({"on": true, "list": [1, "two"], "n": 41})).unwrap();
        assert_eq!(spec.user_data["a"], json!(true));
        assert_eq!(spec.user_data["b"], json!([1, "two"]));
        assert_eq!(spec.user_data["c"], json!(42));
        assert_eq!(spec.user_data["d"], json!("x41"));
    }

    #[test]
    fn a_value_never_changes_the_structure() {
        let evil = "x\nusers: [{name: root}]\n# {{ machine.name }}";
        let spec = rendered_seed(json!({"hostname": "{{ params.h }}"}), json!({"h": evil})).unwrap();
        assert_eq!(spec.hostname.as_deref(), Some(evil), "neither parsed nor rendered again");
    }

    #[test]
    fn an_undefined_name_is_an_error_that_names_the_field() {
        for text in ["{{ machine.nmae }}", "a {{ params.x }} b", "{{ machine.labels.none }}", "{{ nothing }}"] {
            let problem = rendered_seed(json!({"hostname": text}), json!({})).unwrap_err();
            assert_eq!(problem.code, ErrorCode::InvalidTemplate);
            assert_eq!(problem.subject, "Template/t: spec.actions[0].cloudInit.hostname", "{text}");
        }
        for text in ["{{ machine.name", "{% for x in range(9) %}", "{# no #}"] {
            assert!(rendered_seed(json!({"hostname": text}), json!({})).is_err(), "{text}");
        }
    }

    #[test]
    fn a_secret_is_pinned_only_as_a_reference() {
        let user_data = json!({
            "a": "{{ secrets.db.pw }}", "b": "u:{{ secrets.my-db.pw }}@{{ machine.name }}",
            "c": "{{ [secrets.db.pw, 1] }}", "d": "{{ secrets['db'].pw ~ '!' }}", "e": "{{ secrets.db['pw'] }}",
        });
        let spec = rendered_seed(json!({"userData": user_data}), json!({})).unwrap();
        assert_eq!(spec.user_data["a"], "{{ secrets.db.pw }}");
        assert_eq!(spec.user_data["b"], "u:{{ secrets.my-db.pw }}@node-1");
        assert_eq!(spec.user_data["c"], json!(["{{ secrets.db.pw }}", 1]));
        assert_eq!(spec.user_data["d"], "{{ secrets.db.pw }}!");
        assert_eq!(spec.user_data["e"], "{{ secrets.db.pw }}");
    }

    #[test]
    fn altered_secret_references_are_refused() {
        for text in [
            "{{ secrets.db }}",
            "{{ secrets }}",
            "{{ secrets.db.pw.x }}",
            "{{ secrets.db.pw | upper }}",
            "{{ secrets.db.pw | string | reverse }}",
            "{{ (secrets.db.pw | string)[:4] }}",
            "{{ secrets.DB.pw }}",
            "{{ secrets.db['p w'] }}",
            "{{ {secrets.db.pw: 1} }}",
            "{{ secrets.db.pw | length }}",
            "x {{ secrets.db }} y",
        ] {
            let refused = rendered_seed(json!({"userData": {"a": text}}), json!({}));
            assert!(refused.is_err(), "{text}: {refused:?}");
        }
    }

    #[test]
    fn only_templates_name_secrets_and_only_in_private_fields() {
        let forged = ["{{ secrets.db.pw }}", "\u{fdd0}db\u{fdd1}pw\u{fdd2}"];
        for value in forged {
            let refused = rendered_seed(json!({"userData": {"a": "{{ params.p }}"}}), json!({"p": value})).unwrap_err();
            assert_eq!(refused.code, ErrorCode::InvalidTemplate, "{refused}");
        }
        let shown = rendered_seed(json!({"hostname": "{{ secrets.db.pw }}"}), json!({})).unwrap_err();
        assert_eq!(shown.subject, "Template/t: spec.actions[0].cloudInit.hostname");
        let image = json!({"url": "http://h/{{ secrets.db.pw }}", "digest": format!("sha256:{}", "0a".repeat(32))});
        let in_url = template(json!({}), json!([{"name": "w", "writeImage": {"image": image}}]));
        let refused = render(&machine(), &in_url, &BTreeMap::new()).unwrap_err();
        assert_eq!(refused.subject, "Template/t: spec.actions[0].writeImage.image.url");
    }

    #[test]
    fn parameters_are_required_defaulted_and_never_unknown() {
        let template = template(
            json!({"h": {}, "d": {"default": "dflt"}}),
            seed(json!({"hostname": "{{ params.h }}{{ params.d }}"})),
        );
        let render =
            |stated: Value| render(&machine(), &template, &stated.as_object().unwrap().clone().into_iter().collect());
        assert!(render(json!({})).unwrap_err().message.contains("\"h\" is required"));
        assert!(render(json!({"h": "a", "x": 1})).unwrap_err().message.contains("\"x\" is not declared"));
        let ActionSpec::CloudInit(spec) = &render(json!({"h": "a"})).unwrap().actions[0].spec else { panic!() };
        assert_eq!(spec.hostname.as_deref(), Some("adflt"));
    }
}
