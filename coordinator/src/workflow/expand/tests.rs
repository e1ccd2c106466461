//! Lists in lists, and loops over disks.

use landfall_api::{API_VERSION, Document};

use super::*;
use crate::workflow::render;

fn document(kind: &str, name: &str, spec: Value, status: Value) -> Document {
    let tree =
        json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec, "status": status});
    Document::from_value(tree).unwrap()
}

fn template(name: &str, spec: Value) -> Shared<Template> {
    match document("Template", name, spec, json!({})) {
        Document::Template(template) => template,
        other => panic!("{other:?}"),
    }
}

/// A machine whose facts name these disks; without any it has no facts.
fn machine(disks: Value) -> Machine {
    let facts = json!({"smbios": {"uuid": "", "serial": "", "manufacturer": "", "product": ""},
        "cpu": {"model": "", "logical": 1, "architecture": "x86_64"}, "memoryBytes": 1, "disks": disks, "nics": [],
        "firmware": {"mode": "uefi"}});
    let mut status = json!({"phase": "Available", "conditions": []});
    if disks.is_array() {
        status["facts"] = facts;
    }
    match document("Machine", "m1", json!({"identity": {"macs": ["52:54:00:00:00:01"]}}), status) {
        Document::Machine(machine) => machine.into_inner(),
        other => panic!("{other:?}"),
    }
}

fn disk(name: &str, serial: &str, transport: &str) -> Value {
    json!({"id": {"name": name, "serial": serial, "path": format!("pci-{name}"), "sizeBytes": 8}, "transport": transport,
        "rotational": false, "logicalSectorBytes": 512, "physicalSectorBytes": 512, "readOnly": false})
}

fn disks() -> Value {
    json!([
        disk("vda", "S0", "virtio"),
        disk("nvme0n1", "S1", "nvme"),
        disk("nvme1n1", "S1", "nvme"),
        disk("sdb", "U", "usb")
    ])
}

/// The rendered actions, or what was refused: where and why.
fn rendered(machine: &Machine, spec: Value, others: &[(&str, Value)]) -> Result<Value, (String, String)> {
    let fragments: Fragments =
        others.iter().map(|(name, spec)| ((*name).to_owned(), template(name, spec.clone()))).collect();
    match render(machine, &template("main", spec), &BTreeMap::new(), &fragments) {
        Ok(plan) => Ok(json!(plan.actions)),
        Err(problem) => {
            assert_eq!(problem.code, ErrorCode::InvalidTemplate, "{problem}");
            Err((problem.subject, problem.message))
        }
    }
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().filter_map(|action| action["name"].as_str()).collect()
}

fn hold(name: &str, message: &str) -> Value {
    json!({"name": name, "hold": {"message": message}})
}

#[test]
fn an_included_list_gets_its_own_parameters_and_names() {
    let inner = json!({"parameters": {"who": {}, "n": {"default": 1}}, "actions": [hold("ask", "{{ params.who }} {{ params.n }}")]});
    let middle = json!({"parameters": {"who": {}}, "actions": [
        {"name": "deep", "include": {"template": "inner", "parameters": {"who": "{{ params.who }}!"}}}, hold("own", "x")]});
    let main = json!({"actions": [
        {"name": "a", "branch": "one", "include": {"template": "middle", "parameters": {"who": "{{ machine.name }}"}}},
        hold("last", "y")]});
    let list = rendered(&machine(Value::Null), main, &[("inner", inner), ("middle", middle)]).unwrap();
    assert_eq!(names(&list), ["a-deep-ask", "a-own", "last"]);
    assert_eq!(list[0]["hold"]["message"], "m1! 1");
    assert_eq!(
        (&list[0]["branch"], &list[1]["branch"], &list[2]["branch"]),
        (&json!("one"), &json!("one"), &Value::Null)
    );
}

#[test]
fn a_secret_goes_only_to_a_parameter_of_type_secret() {
    let fragment = |kind: Value| {
        json!({"parameters": {"key": kind}, "actions": [
            {"name": "f", "writeFile": {"disk": {"serial": "S0"}, "path": "/k", "content": "{{ params.key }}"}}]})
    };
    let main = |value: &str| {
        json!({"parameters": {"own": {"type": "secret", "default": "db.pw"}}, "actions": [
        {"name": "a", "include": {"template": "f", "parameters": {"key": value}}}]})
    };
    for value in ["{{ secrets.db.pw }}", "{{ params.own }}", "db.pw"] {
        let list = rendered(&machine(Value::Null), main(value), &[("f", fragment(json!({"type": "secret"})))]).unwrap();
        assert_eq!(list[0]["writeFile"]["content"], "{{ secrets.db.pw }}", "{value}");
    }
    for (value, kind) in [("{{ params.own }}", json!({})), ("x{{ params.own }}", json!({"type": "secret"}))] {
        let (subject, message) = rendered(&machine(Value::Null), main(value), &[("f", fragment(kind))]).unwrap_err();
        assert_eq!((subject.as_str(), message.contains("gets a secret")), ("Template/f: spec.parameters.key", true));
    }
}

#[test]
fn an_included_list_keeps_its_branches_apart() {
    let branched = |name: &str| json!({"name": name, "branch": "x", "hold": {"message": "x"}});
    let others = [("f", json!({"actions": [branched("one"), branched("two")]}))];
    let include = |name: &str| json!({"name": name, "include": {"template": "f"}});
    let branches = |list: &Value| {
        let names = list.as_array().unwrap().iter().map(|action| action["branch"].as_str().unwrap_or("-").to_owned());
        names.collect::<Vec<_>>()
    };
    let two = json!({"actions": [include("a"), include("b"), branched("own")]});
    let list = rendered(&machine(Value::Null), two, &others).unwrap();
    assert_eq!(branches(&list), ["a-x", "a-x", "b-x", "b-x", "x"]);
    let mut each = include("a");
    each["forEach"] = json!({"disks": {"transport": "nvme"}});
    let (subject, message) = rendered(&machine(disks()), json!({"actions": [each]}), &others).unwrap_err();
    assert_eq!(subject, "Template/f: spec.actions[0].branch");
    assert_eq!(message, "the list is repeated, one copy after another, and this action names a branch");
    let plain = [("f", json!({"actions": [hold("one", "x")]}))];
    let list = rendered(&machine(disks()), json!({"actions": [each]}), &plain).unwrap();
    assert_eq!(branches(&list), ["-", "-"]);
    each["branch"] = "d".into();
    let list = rendered(&machine(disks()), json!({"actions": [each]}), &plain).unwrap();
    assert_eq!(branches(&list), ["d-1", "d-2"]);
    // A list inside a branch cannot leave it by way of another include.
    let inner = json!({"name": "in", "branch": "y", "include": {"template": "f"}});
    let nested = [("g", json!({"actions": [inner]})), plain[0].clone()];
    let outer = json!({"actions": [{"name": "out", "branch": "z", "include": {"template": "g"}}]});
    assert_eq!(rendered(&machine(Value::Null), outer, &nested).unwrap_err().0, "Template/g: spec.actions[0].branch");
}

#[test]
fn circles_and_unfit_templates_are_refused_by_name() {
    let include = |name: &str| json!({"actions": [{"name": "i", "include": {"template": name}}]});
    let others = [
        ("a", include("b")),
        ("b", include("c")),
        ("c", include("a")),
        (
            "bad",
            json!({"actions": [hold("h", "x")],
        "onFailure": [{"name": "off", "powerOff": {}}]}),
        ),
        ("branched", json!({"actions": [{"name": "h", "branch": "x", "hold": {"message": "x"}}]})),
    ];
    let refused = |spec: Value| rendered(&machine(Value::Null), spec, &others).unwrap_err();
    let (subject, message) = refused(include("a"));
    assert_eq!(subject, "Template/c: spec.actions[0].include.template");
    assert_eq!(message, "templates include each other in a circle: main → a → b → c → a");
    assert!(refused(include("none")).1.contains("no template \"none\""));
    assert!(refused(include("bad")).1.contains("it has onFailure"));
    let branch = json!({"actions": [{"name": "i", "branch": "y", "include": {"template": "branched"}}]});
    assert_eq!(refused(branch).0, "Template/branched: spec.actions[0].branch");
    assert!(refused(json!({"fragment": true, "actions": [hold("h", "x")]})).1.contains("is a fragment"));
    let unknown = json!({"actions": [{"name": "i", "include": {"template": "branched", "parameters": {"x": 1}}}]});
    assert!(refused(unknown).1.contains("\"x\" is not declared"));
    let fragments: Fragments =
        others.iter().map(|(name, spec)| ((*name).to_owned(), template(name, spec.clone()))).collect();
    let circle = refuse_circles(&template("d", include("a")), &fragments).unwrap_err();
    assert_eq!(circle.message, "templates include each other in a circle: a → b → c → a");
    refuse_circles(&template("c", include("branched")), &fragments).unwrap();
}

#[test]
fn includes_that_multiply_end_at_a_bound() {
    let many = |name: &str| {
        let item = |n: usize| json!({"name": format!("i{n}"), "include": {"template": name}});
        json!({"actions": (0..40).map(item).collect::<Vec<_>>()})
    };
    let none =
        json!({"name": "h", "forEach": {"disks": {"serial": "no"}, "allowNone": true}, "hold": {"message": "x"}});
    let others = [("a", many("b")), ("b", json!({"actions": vec![none; 40]}))];
    assert!(rendered(&machine(json!([])), many("a"), &others).unwrap_err().1.contains("more than 1024 items"));
}

const TOO_LARGE: &str = "the list, with the parameters of the lists that it includes, takes more than 512 KiB";

#[test]
fn a_list_above_512_kib_is_refused_as_it_renders() {
    let big = json!({"default": "x".repeat(100 << 10)});
    let fields: serde_json::Map<_, _> = (0..6).map(|n| (format!("f{n}"), json!("{{ params.big }}"))).collect();
    let seed = |fields: Value| {
        json!({"parameters": {"big": big}, "actions": [
        {"name": "seed", "cloudInit": {"disk": {"serial": "S0"}, "userData": fields}}]})
    };
    let (subject, message) = rendered(&machine(Value::Null), seed(json!(fields)), &[]).unwrap_err();
    assert_eq!(subject, "Template/main: spec.actions[0].cloudInit.userData.f5", "it stops there");
    assert_eq!(message, TOO_LARGE);
    let four: serde_json::Map<_, _> = fields.into_iter().take(4).collect();
    assert!(rendered(&machine(Value::Null), seed(json!(four)), &[]).is_ok());
    // As JSON each character takes two bytes.
    let fields = json!({"a": "x{{ params.big }}", "b": "x{{ params.big }}", "c": "x{{ params.big }}"});
    let mut quotes = seed(fields);
    quotes["parameters"]["big"]["default"] = "\"".repeat(100 << 10).into();
    assert_eq!(rendered(&machine(Value::Null), quotes, &[]).unwrap_err().0, "Template/main: spec.actions");
}

#[test]
fn what_is_left_out_counts_as_part_of_the_list() {
    let when = format!("machine.name == '{}'", "x".repeat(1000));
    let items: Vec<_> =
        (0..60).map(|n| json!({"name": format!("h{n}"), "when": when, "hold": {"message": "x"}})).collect();
    let include = |n: usize| json!({"name": format!("i{n}"), "include": {"template": "f"}});
    let main = json!({"actions": (0..10).map(include).collect::<Vec<_>>()});
    let refused = rendered(&machine(Value::Null), main, &[("f", json!({"actions": items}))]).unwrap_err();
    assert_eq!(refused.1, TOO_LARGE);
}

#[test]
fn rendering_stops_after_64_actions() {
    let fragment = json!({"actions": (0..40).map(|n| hold(&format!("h{n}"), "x")).collect::<Vec<_>>()});
    let main =
        json!({"actions": [{"name": "a", "include": {"template": "f"}}, {"name": "b", "include": {"template": "f"}}]});
    let (subject, message) = rendered(&machine(Value::Null), main, &[("f", fragment)]).unwrap_err();
    assert_eq!(subject, "Template/f: spec.actions[24]");
    assert_eq!(message, "there are more than 64 actions, which is the limit");
}

#[test]
fn a_loop_makes_one_action_for_each_matching_disk() {
    let image = json!({"url": "http://h/{{ disk.number }}", "digestWaived": true});
    let item = json!({"name": "w", "branch": "d", "forEach": {"disks": {"transport": "in nvme,virtio"}},
        "writeImage": {"disk": "{{ disk.selector }}", "image": image}});
    let list = rendered(&machine(disks()), json!({"actions": [item]}), &[]).unwrap();
    assert_eq!(names(&list), ["w-1", "w-2", "w-3"]);
    let branches: Vec<_> = list.as_array().unwrap().iter().map(|action| action["branch"].as_str()).collect();
    assert_eq!(branches, [Some("d-1"), Some("d-2"), Some("d-3")]);
    let selectors: Vec<_> =
        list.as_array().unwrap().iter().map(|action| action["writeImage"]["disk"].clone()).collect();
    // Two disks have one serial number: their paths differ.
    assert_eq!(
        selectors,
        [json!({"serial": "= S0"}), json!({"path": "= pci-nvme0n1"}), json!({"path": "= pci-nvme1n1"})]
    );
    assert_eq!(list[2]["writeImage"]["image"]["url"], "http://h/3");
    let facts = machine(disks()).status.unwrap().facts.unwrap().disks.clone();
    for (n, selector) in selectors.iter().enumerate() {
        let selector: DiskSelector = serde_json::from_value(selector.clone()).unwrap();
        let fits: Vec<_> = facts.iter().filter(|disk| selector.mismatches(disk).unwrap().is_empty()).collect();
        assert_eq!(fits, [&facts[n]]);
    }
}

#[test]
fn no_two_actions_of_a_list_write_one_disk() {
    let write = |name: &str, disk: Value| json!({"name": name, "writeImage": {"disk": disk, "image": {"url": "http://h/i", "digestWaived": true}}});
    let mut data = write("data", json!("{{ disk.selector }}"));
    data["forEach"] = json!({"disks": {"transport": "in nvme,virtio"}});
    let both = json!({"actions": [write("os", json!({"serial": "S0"})), data.clone()]});
    let (subject, message) = rendered(&machine(disks()), both.clone(), &[]).unwrap_err();
    assert_eq!(subject, "Template/main: spec.actions");
    assert_eq!(message, "actions \"os\" and \"data-1\" would both write disk vda");
    data["forEach"] = json!({"disks": {"transport": "nvme"}});
    let apart = json!({"actions": [write("os", json!({"serial": "S0"})), data.clone()]});
    assert_eq!(names(&rendered(&machine(disks()), apart, &[]).unwrap()), ["os", "data-1", "data-2"]);
    let layout = json!({"name": "disks", "storage": {"disks": [
        {"select": [{"path": "= pci-nvme0n1"}, {"serial": "S0"}], "partitions": [{"name": "p"}]}]}});
    let (_, message) =
        rendered(&machine(disks()), json!({"actions": [layout, write("os", json!({"serial": "S0"}))]}), &[])
            .unwrap_err();
    assert_eq!(message, "actions \"disks\" and \"os\" would both write disk vda");
    let unknown = json!({"actions": [write("os", json!({"serial": "S0"})), write("again", json!({"serial": "S*"}))]});
    assert!(rendered(&machine(Value::Null), unknown, &[]).is_ok(), "nothing is known of its disks");
    data["forEach"] = json!({"disks": "{{ params.which }}"});
    let empty = json!({"parameters": {"which": {"default": {}}}, "actions": [data]});
    assert!(rendered(&machine(disks()), empty, &[]).unwrap_err().1.contains("would match every disk"));
}

#[test]
fn a_loop_without_branch_repeats_in_order_also_an_include() {
    let fragment =
        json!({"parameters": {"message": {}}, "fragment": true, "actions": [hold("ask", "{{ params.message }}")]});
    let item = json!({"name": "i", "forEach": {"disks": {"transport": "usb"}},
        "include": {"template": "f", "parameters": {"message": "{{ disk.name }} {{ disk.sizeBytes }} {{ disk.wwn }}."}}});
    let list = rendered(&machine(disks()), json!({"actions": [item]}), &[("f", fragment)]).unwrap();
    assert_eq!((names(&list), &list[0]["hold"]["message"]), (vec!["i-1-ask"], &json!("sdb 8 .")));
}

#[test]
fn a_loop_without_a_disk_is_refused_unless_allowed() {
    let main = |allowed: bool, serial: &str| {
        json!({"actions": [hold("first", "x"),
        {"name": "h", "forEach": {"disks": {"serial": serial}, "allowNone": allowed}, "hold": {"message": "x"}}]})
    };
    let (subject, message) = rendered(&machine(disks()), main(false, "none"), &[]).unwrap_err();
    assert_eq!(
        (subject.as_str(), message.as_str()),
        ("Template/main: spec.actions[1].forEach.disks", "no disk of machine \"m1\" matches")
    );
    assert_eq!(names(&rendered(&machine(disks()), main(true, "none"), &[]).unwrap()), ["first"]);
    let (_, message) = rendered(&machine(Value::Null), main(true, "none"), &[]).unwrap_err();
    assert!(message.contains("are unknown"), "{message}");
    let nine: Vec<Value> = (0..9).map(|n| disk(&format!("vd{n}"), &format!("S{n}"), "virtio")).collect();
    let branches = json!({"actions": [{"name": "h", "branch": "b", "forEach": {"disks": {"transport": "virtio"}}, "hold": {"message": "x"}}]});
    assert!(rendered(&machine(json!(nine)), branches, &[]).unwrap_err().1.contains("9 branches"));
    let twins = json!([disk("vda", "", "virtio"), disk("vda", "", "virtio")]);
    assert!(rendered(&machine(twins), main(false, "!= x"), &[]).unwrap_err().1.contains("no other disk has"));
}

#[test]
fn an_item_whose_condition_fails_is_left_out_and_named() {
    let when = |mut item: Value, text: &str| {
        item["when"] = text.into();
        item
    };
    let fragment = json!({"parameters": {"n": {"type": "integer"}}, "actions": [
        when(hold("one", "x"), "params.n == 1"), when(hold("two", "x"), "params.n == 2")]});
    let include = |name: &str, n: u32| json!({"name": name, "include": {"template": "f", "parameters": {"n": n}}});
    let per_disk =
        json!({"name": "d", "forEach": {"disks": {"transport": "in nvme,virtio"}}, "hold": {"message": "x"}});
    let spec = json!({"actions": [include("a", 2), when(include("b", 1), "machine.name in ['m2']"),
        when(per_disk, "disk.number != 2 and disk.transport == 'nvme'"), hold("last", "x")]});
    let fragments = Fragments::from([("f".to_owned(), template("f", fragment))]);
    let plan = render(&machine(disks()), &template("main", spec), &BTreeMap::new(), &fragments).unwrap();
    assert_eq!(names(&json!(plan.actions)), ["a-two", "d-3", "last"]);
    let left_out: Vec<_> = plan.left_out.iter().map(|item| (item.name.as_str(), item.when.as_str())).collect();
    let loops = "disk.number != 2 and disk.transport == 'nvme'";
    assert_eq!(left_out, [("a-one", "params.n == 1"), ("b", "machine.name in ['m2']"), ("d-1", loops), ("d-2", loops)]);
}

#[test]
fn a_loop_whose_condition_fails_needs_no_disks() {
    let spec = |when: &str| {
        json!({"actions": [hold("first", "x"),
            {"name": "d", "when": when, "forEach": {"disks": {"serial": "none"}}, "hold": {"message": "x"}}]})
    };
    let elsewhere = "machine.name == 'm2'";
    let plan = render(&machine(Value::Null), &template("main", spec(elsewhere)), &BTreeMap::new(), &Fragments::new());
    let plan = plan.unwrap();
    assert_eq!(names(&json!(plan.actions)), ["first"]);
    assert_eq!(plan.left_out, [LeftOut { name: "d".into(), when: elsewhere.into() }]);
    for when in ["machine.name == 'm1'", "machine.name == 'm2' and disk.number == 1"] {
        assert!(rendered(&machine(disks()), spec(when), &[]).unwrap_err().1.contains("no disk of machine"), "{when}");
    }
}

#[test]
fn rules_hold_for_what_is_left_of_a_list() {
    let seed = json!({"name": "seed", "when": "machine.name == 'm2'", "cloudInit": {"disk": {"serial": "S0"}}});
    let spec = json!({"actions": [seed, {"name": "restart", "reboot": {}}], "successOn": "phoneHome"});
    let (subject, message) = rendered(&machine(Value::Null), spec, &[]).unwrap_err();
    assert_eq!(
        (subject.as_str(), message.as_str()),
        ("Template/main: spec.successOn", "no action installs the unit that phones home")
    );
    let spec = json!({"actions": [{"name": "h", "when": "machine.facts.memoryBytes > 1", "hold": {"message": "x"}}]});
    let (subject, message) = rendered(&machine(Value::Null), spec.clone(), &[]).unwrap_err();
    assert_eq!(
        (subject.as_str(), message.as_str()),
        ("Template/main: spec.actions[0].when", "machine.facts.memoryBytes is not defined")
    );
    let none = rendered(&machine(json!([])), spec, &[]).unwrap_err();
    assert_eq!(none.1, "there is no action", "the machine has one byte of memory");
}

fn call(name: &str) -> Value {
    json!({"name": name, "http": {"url": "http://h/", "result": "text"}})
}

fn when(mut item: Value, text: &str) -> Value {
    item["when"] = text.into();
    item
}

#[test]
fn a_condition_over_results_goes_on_with_its_action() {
    let fragment = json!({"parameters": {"on": {}}, "actions": [
        call("ask"), when(hold("own", "x"), "params.on and results.ask.status == 201"),
        when(hold("never", "x"), "not params.on and results.ask.status == 201")]});
    let include = |name: &str| json!({"name": name, "include": {"template": "f", "parameters": {"on": true}}});
    let per_disk =
        json!({"name": "d", "forEach": {"disks": {"transport": "in nvme,virtio"}}, "hold": {"message": "x"}});
    let spec = json!({"actions": [
        call("first"), when(call("gone"), "machine.name == 'm2'"),
        when(include("site"), "results.first.body == machine.name"),
        when(per_disk, "results.first.succeeded and disk.number != 2"),
        when(hold("last", "x"), "not results.gone.succeeded"), when(hold("not", "x"), "results.gone.succeeded")]});
    let fragments = Fragments::from([("f".to_owned(), template("f", fragment))]);
    let plan = render(&machine(disks()), &template("main", spec), &BTreeMap::new(), &fragments).unwrap();
    let pinned: Vec<_> = plan.actions.iter().map(|a| (a.name.as_str(), a.when.as_deref().unwrap_or(""))).collect();
    let outer = "results.first.body == \"m1\"";
    assert_eq!(
        pinned,
        [
            ("first", ""),
            ("site-ask", outer),
            ("site-own", format!("{outer} and results[\"site-ask\"].status == 201").as_str()),
            ("d-1", "results.first.succeeded"),
            ("d-3", "results.first.succeeded"),
            ("last", ""),
        ]
    );
    let left_out: Vec<_> = plan.left_out.iter().map(|item| item.name.as_str()).collect();
    assert_eq!(left_out, ["gone", "site-never", "d-2", "not"]);
}

#[test]
fn what_cannot_be_decided_later_is_refused_before() {
    let refused = |condition: &str| {
        let spec = json!({"actions": [call("first"), when(call("gone"), "machine.name == 'm2'"), when(hold("h", "x"), condition)]});
        rendered(&machine(disks()), spec, &[]).unwrap_err()
    };
    for (condition, said) in [
        ("results.other.succeeded", "no action before this one is called \"other\""),
        ("results.gone.status == 200", "results.gone.status is not defined, because that action is not in the list"),
        ("results.first.status == machine.labels.none", "machine.labels.none is not defined"),
    ] {
        assert_eq!(refused(condition), ("Template/main: spec.actions[2].when".to_owned(), said.to_owned()));
    }
    let ends = json!({"actions": [call("first"), {"name": "off", "when": "results.first.succeeded", "powerOff": {}}]});
    assert!(rendered(&machine(disks()), ends, &[]).unwrap_err().1.contains("powerOff cannot depend on results"));
}
