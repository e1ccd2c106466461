//! Templates become typed action lists.
//!
//! Expressions stand only inside scalars of the parsed tree, so a value can never change the document's structure (no
//! YAML inside YAML). A scalar that is one lone expression keeps the expression's type. Whatever a template names that is
//! not there is an error: an undefined value never becomes an empty string on somebody's disk.

use std::collections::BTreeMap;

use landfall_api::{Action, ErrorCode, Machine, Problem, Template, validate_actions};
use minijinja::{Environment, UndefinedBehavior};
use serde_json::{Value, json};

/// Renders the template's actions for a machine and checks the result, so that every error a list can have comes
/// before its first step.
///
/// # Errors
/// [`Problem`] with code `InvalidTemplate`; `subject` is the path of the field, such as
/// `Template/debian: spec.actions[0].writeImage.image.url`.
pub fn render(
    machine: &Machine,
    template: &Template,
    parameters: &BTreeMap<String, Value>,
) -> Result<Vec<Action>, Problem> {
    let root = format!("Template/{}: spec.actions", template.metadata.name);
    let context = minijinja::Value::from(minijinja::value::Serde(
        json!({ "machine": machine_scope(machine), "params": resolve_parameters(template, parameters)? }),
    ));
    let environment = environment();
    let mut actions = Vec::with_capacity(template.spec.actions.len());
    for (index, tree) in template.spec.actions.iter().enumerate() {
        let path = format!("{root}[{index}]");
        let tree = render_tree(&environment, &context, tree, &path)?;
        actions.push(typed_action(tree).map_err(|problem| rooted(problem, &path))?);
    }
    validate_actions(&actions).map_err(|mut problem| {
        problem.subject = format!("Template/{}: spec.{}", template.metadata.name, problem.subject);
        problem
    })?;
    Ok(actions)
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
    if text.contains("{%") || text.contains("{#") {
        return Err(problem("statements and comments are not taken here".into())
            .hint("write an expression in {{ … }}, or text without {% and {#"));
    }
    if !text.contains("{{") {
        return Ok(Value::String(text.to_owned()));
    }
    let in_scope = "in scope are machine.name, machine.uid, machine.labels, machine.macs, machine.facts and params";
    let failed = |error: minijinja::Error| problem(format!("\"{text}\" does not render: {error}")).hint(in_scope);
    let Some(expression) = lone_expression(text) else {
        return environment.render_str(text, context).map(Value::String).map_err(failed);
    };
    let value = environment.compile_expression(expression).and_then(|e| e.eval(context)).map_err(failed)?;
    if value.is_undefined() {
        return Err(problem(format!("\"{text}\" names nothing that exists")).hint(in_scope));
    }
    serde_json::to_value(&value).map_err(|error| problem(format!("\"{text}\" is not a plain value: {error}")))
}

/// The inside of `{{ … }}` if the whole scalar is that one expression.
fn lone_expression(text: &str) -> Option<&str> {
    let inside = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    (!inside.contains("{{") && !inside.contains("}}")).then(|| inside.trim())
}

#[cfg(test)]
mod tests {
    use landfall_api::{ActionSpec, Document};

    use super::*;

    fn machine() -> Machine {
        let tree = json!({
            "apiVersion": landfall_api::API_VERSION, "kind": "Machine",
            "metadata": {"name": "node-1", "labels": {"rack": "r7"}},
            "spec": {"identity": {"macs": ["52:54:00:00:00:01"]}},
        });
        match Document::from_value(tree).unwrap() {
            Document::Machine(machine) => *machine,
            other => panic!("{other:?}"),
        }
    }

    fn template(parameters: Value, actions: Value) -> Template {
        let tree = json!({
            "apiVersion": landfall_api::API_VERSION, "kind": "Template", "metadata": {"name": "t"},
            "spec": {"parameters": parameters, "actions": actions},
        });
        match Document::from_value(tree).unwrap() {
            Document::Template(template) => *template,
            other => panic!("{other:?}"),
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
        let actions = render(&machine(), &template(Value::Object(declared), seed(fields)), &stated)?;
        match actions.into_iter().next().unwrap().spec {
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
    fn what_is_not_there_is_an_error_that_names_the_field() {
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
    fn parameters_are_required_defaulted_and_never_unknown() {
        let template = template(
            json!({"h": {}, "d": {"default": "dflt"}}),
            seed(json!({"hostname": "{{ params.h }}{{ params.d }}"})),
        );
        let render =
            |stated: Value| render(&machine(), &template, &stated.as_object().unwrap().clone().into_iter().collect());
        assert!(render(json!({})).unwrap_err().message.contains("\"h\" is required"));
        assert!(render(json!({"h": "a", "x": 1})).unwrap_err().message.contains("\"x\" is not declared"));
        let ActionSpec::CloudInit(spec) = &render(json!({"h": "a"})).unwrap()[0].spec else { panic!() };
        assert_eq!(spec.hostname.as_deref(), Some("adflt"));
    }
}
