//! What renders, what is refused, and what a list never holds.

use landfall_api::{ActionSpec, Document};

use super::*;

fn render(machine: &Machine, template: &Template, stated: &BTreeMap<String, Value>) -> Result<Plan, Problem> {
    super::render(machine, template, stated, &Fragments::new())
}

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
        "{{ [[1] * 9999] * 9999 }}", "{{ range(90000) | list }}", "x{{ range(90000) | list }}",
        "{{ (1,) * 100000000 }}", "{{ (\"a\"*100000)|replace(\"a\",\"b\"*100000) }}",
        "{{ ([[1]*10000]*10000)|string }}", "{{ lipsum(100000) }}",
    ] {
        let problem = render(&machine(), &template(json!({}), seed(json!({"hostname": text}))), &BTreeMap::new());
        let problem = problem.unwrap_err();
        assert_eq!(problem.code, ErrorCode::InvalidTemplate, "{problem}");
        assert!(problem.subject.ends_with("cloudInit.hostname"), "{problem}");
        assert!(problem.to_string().contains("is not taken"), "{problem}");
    }
}

/// Each copies 190 MB to count it, and becomes one number.
#[test]
fn the_work_of_all_expressions_together_is_bounded() {
    let long = format!("{{{{ (params.a{}) | length }}}}", " ~ params.a".repeat(60));
    let rendered = |count: usize| {
        let lines: Vec<&str> = std::iter::repeat_n(long.as_str(), count).collect();
        rendered_seed(json!({"userData": {"lines": lines}}), json!({"a": "x".repeat(100_000)}))
    };
    assert_eq!(free(&rendered(2).unwrap())["lines"], json!([6_100_000, 6_100_000]));
    let refused = rendered(3).unwrap_err();
    assert_eq!(refused.code, ErrorCode::InvalidTemplate, "{refused}");
    assert_eq!(refused.subject, "Template/t: spec.actions[0].cloudInit.userData.lines[2]");
    assert!(refused.message.contains("too much work"), "{refused}");
}

/// The user-data of a seed, which is a mapping.
fn free(spec: &landfall_api::CloudInitSpec) -> &BTreeMap<String, Value> {
    match &spec.user_data {
        Some(landfall_api::UserDataSpec::Config(config)) => config,
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
    let plan = render(&machine(), &template(Value::Object(declared), seed(fields)), &stated)?;
    match plan.actions.into_iter().next().unwrap().spec {
        ActionSpec::CloudInit(spec) => Ok(spec),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_expression_inside_text_is_text() {
    let spec = rendered_seed(json!({"hostname": "{{ machine.name }}-{{ machine.labels.rack }}"}), json!({})).unwrap();
    assert_eq!(spec.hostname.as_deref(), Some("node-1-r7"));
}

#[test]
fn a_text_with_an_expression_keeps_its_last_newline() {
    for (text, rendered) in
        [("at {{ machine.name }}\n\n", "at node-1\n\n"), ("x {{ machine.name }}\r\n", "x node-1\r\n")]
    {
        let spec = rendered_seed(json!({"userData": {"x": text}}), json!({})).unwrap();
        assert_eq!(free(&spec)["x"], rendered);
    }
}

#[test]
fn a_lone_expression_keeps_its_type() {
    let user_data =
        json!({"a": "{{ params.on }}", "b": "{{ params.list }}", "c": "{{ params.n + 1 }}", "d": "x{{ params.n }}"});
    let spec = rendered_seed(json!({"userData": user_data}), json!({"on": true, "list": [1, "two"], "n": 41})).unwrap();
    assert_eq!(free(&spec)["a"], json!(true));
    assert_eq!(free(&spec)["b"], json!([1, "two"]));
    assert_eq!(free(&spec)["c"], json!(42));
    assert_eq!(free(&spec)["d"], json!("x41"));
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
fn a_parameters_user_data_is_judged_once_it_is_known() {
    let given = |text: &str| rendered_seed(json!({"userData": "{{ params.text }}"}), json!({"text": text}));
    assert_eq!(given("#!/bin/sh\n").unwrap().user_data, Some(landfall_api::UserDataSpec::Text("#!/bin/sh\n".into())));
    let problem = given("echo hello\n").unwrap_err();
    assert!(problem.subject.ends_with("cloudInit.userData") && problem.message.contains("begins with"), "{problem}");
    // What another renderer is to see stays for it.
    let spec = rendered_seed(
        json!({"userData": "## template: jinja\n#cloud-config\nfqdn: {{ '{{' }} v1.name }}\n{{ '{' }}% if x %}"}),
        json!({}),
    );
    let text = "## template: jinja\n#cloud-config\nfqdn: {{ v1.name }}\n{% if x %}";
    assert_eq!(spec.unwrap().user_data, Some(landfall_api::UserDataSpec::Text(text.into())));
}

#[test]
fn a_secret_is_pinned_only_as_a_reference() {
    let user_data = json!({
        "a": "{{ secrets.db.pw }}", "b": "u:{{ secrets.my-db.pw }}@{{ machine.name }}",
        "c": "{{ [secrets.db.pw, 1] }}", "d": "{{ secrets['db'].pw ~ '!' }}", "e": "{{ secrets.db['pw'] }}",
    });
    let spec = rendered_seed(json!({"userData": user_data}), json!({})).unwrap();
    assert_eq!(free(&spec)["a"], "{{ secrets.db.pw }}");
    assert_eq!(free(&spec)["b"], "u:{{ secrets.my-db.pw }}@node-1");
    assert_eq!(free(&spec)["c"], json!(["{{ secrets.db.pw }}", 1]));
    assert_eq!(free(&spec)["d"], "{{ secrets.db.pw }}!");
    assert_eq!(free(&spec)["e"], "{{ secrets.db.pw }}");
}

#[test]
fn altered_secret_references_are_refused() {
    for text in [
        "{{ secrets.db }}", "{{ secrets }}", "{{ secrets.db.pw.x }}", "{{ secrets.db.pw | upper }}",
        "{{ secrets.db.pw | string | reverse }}", "{{ (secrets.db.pw | string)[:4] }}", "{{ secrets.DB.pw }}",
        "{{ secrets.db['p w'] }}", "{{ {secrets.db.pw: 1} }}", "{{ secrets.db.pw | length }}", "x {{ secrets.db }} y",
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
fn a_secret_parameter_is_pinned_as_a_reference() {
    let declared = json!({"pw": {"type": "secret", "default": "db.pw"}});
    let put = |fields: Value| template(declared.clone(), seed(fields));
    let rendered = |template: &Template, stated: Value| {
        render(&machine(), template, &stated.as_object().unwrap().clone().into_iter().collect())
    };
    let private = put(json!({"userData": {"a": "{{ params.pw }}", "b": "x-{{ params.pw }}"}}));
    for (stated, pinned) in [(json!({}), "db.pw"), (json!({"pw": "my-db.pw2"}), "my-db.pw2")] {
        let plan = rendered(&private, stated).unwrap();
        let ActionSpec::CloudInit(spec) = &plan.actions[0].spec else { panic!() };
        assert_eq!(free(spec)["a"], format!("{{{{ secrets.{pinned} }}}}"));
        assert_eq!(free(spec)["b"], format!("x-{{{{ secrets.{pinned} }}}}"));
    }
    let shown = rendered(&put(json!({"hostname": "{{ params.pw }}"})), json!({})).unwrap_err();
    assert_eq!(shown.subject, "Template/t: spec.actions[0].cloudInit.hostname");
    let altered = rendered(&put(json!({"userData": {"a": "{{ params.pw | upper }}"}})), json!({}));
    assert!(altered.is_err(), "{altered:?}");
    let stated = rendered(&private, json!({"pw": "hunter2"})).unwrap_err();
    assert!(!stated.to_string().contains("hunter2"), "{stated}");
    assert_eq!(stated.subject, "Template/t: spec.parameters.pw");
}

#[test]
fn a_stated_value_keeps_its_parameters_rules() {
    let template = template(json!({"n": {"type": "integer", "max": 8}}), seed(json!({"hostname": "h{{ params.n }}"})));
    let render = |n: Value| render(&machine(), &template, &BTreeMap::from([("n".to_owned(), n)]));
    assert!(render(json!(8)).is_ok());
    let refused = render(json!(9)).unwrap_err();
    assert_eq!(
        (refused.subject.as_str(), refused.message.as_str()),
        ("Template/t: spec.parameters.n", "parameter \"n\" is 9; max is 8")
    );
    assert_eq!(refused.hint, "write a whole number: at most 8");
}

#[test]
fn parameters_are_required_defaulted_and_never_unknown() {
    let template =
        template(json!({"h": {}, "d": {"default": "dflt"}}), seed(json!({"hostname": "{{ params.h }}{{ params.d }}"})));
    let render =
        |stated: Value| render(&machine(), &template, &stated.as_object().unwrap().clone().into_iter().collect());
    assert!(render(json!({})).unwrap_err().message.contains("\"h\" is required"));
    assert!(render(json!({"h": "a", "x": 1})).unwrap_err().message.contains("\"x\" is not declared"));
    let ActionSpec::CloudInit(spec) = &render(json!({"h": "a"})).unwrap().actions[0].spec else { panic!() };
    assert_eq!(spec.hostname.as_deref(), Some("adflt"));
}
