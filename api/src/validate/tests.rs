//! What documents as a whole are refused for, and what the other tests build them from.

use serde_json::{Map, json};

use super::*;

fn template(parameters: Value, actions: Value) -> Document {
    Document::from_value(json!({"apiVersion": crate::API_VERSION, "kind": "Template", "metadata": {"name": "t"},
        "spec": {"parameters": parameters, "actions": actions}}))
    .unwrap()
}

pub(crate) fn faults(actions: Value) -> Vec<(String, String)> {
    let issues = template(json!({"release": {}}), actions).issues();
    issues.into_iter().map(|issue| (issue.path, issue.hint)).collect()
}

fn write(image: Value) -> Value {
    json!({"name": "write", "writeImage": {"image": image}})
}

#[test]
fn a_secret_is_named_with_one_of_its_keys() {
    let of = |content: &str| {
        let file = json!({"path": "/etc/key", "content": content, "disk": {"name": "vda"}});
        faults(json!([{"name": "key", "writeFile": file}])).into_iter().map(|(_, hint)| hint).collect::<Vec<_>>()
    };
    for whole in [
        "{{ secrets.tls.key }}",
        "{{ secrets[\"tls\"].key }}",
        "{{ secrets.tls[\"key\"] }}",
        "{{ secrets.web-tls.key }}",
    ] {
        assert_eq!(of(whole), [""; 0], "{whole}");
    }
    let without = of("a {{ secrets.tls }} b");
    assert!(matches!(without.as_slice(), [hint] if hint.contains("{{ secrets.tls.KEY }}")), "{without:?}");
}

#[test]
fn labels_are_bounded_in_number_and_value() {
    let with = |labels: Value| {
        let tree = json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Machine",
            "metadata": {"name": "a", "labels": labels}, "spec": {"identity": {"macs": ["52:54:00:00:00:01"]}}});
        Document::from_value(tree).unwrap().validate()
    };
    let many = |n: usize| (0..n).map(|n| (format!("l{n}"), json!("x"))).collect::<Map<_, _>>();
    with(many(MAX_LABELS).into()).unwrap();
    let refused = with(many(50_000).into()).unwrap_err();
    assert!(refused.message.contains("50000") && refused.causes.is_empty(), "{refused}");
    with(json!({"rack": "é ".repeat(84)})).unwrap();
    for value in ["x".repeat(254), "a\nName: b".into(), "\u{9b}31m".into()] {
        assert_eq!(with(json!({"rack": value})).unwrap_err().subject, "metadata.labels.rack");
    }
}

#[test]
fn expressions_may_stand_for_any_value_of_an_action() {
    let actions = json!([
        {"name": "write", "timeout": "{{ params.release }}", "retry": "{{ params.release }}",
         "writeImage": {"disk": {"name": "{{ machine.labels.disk }}"},
            "image": {"url": "http://h/{{ params.release }}", "digest": "{{ params.release }}"}}},
        {"name": "reboot", "reboot": {}}]);
    assert_eq!(faults(actions), []);
}

#[test]
fn each_fault_of_a_template_is_named_at_its_field() {
    let digest = format!("sha256:{}", "00".repeat(32));
    let good = json!({"url": "http://h/i", "digest": digest});
    for (actions, at) in [
        (json!([]), "spec.actions"),
        (json!([{"name": "Write", "reboot": {}}]), "spec.actions[0].name"),
        (json!([{"name": "{{ params.release }}", "reboot": {}}]), "spec.actions[0].name"),
        (json!([write(good.clone()), write(good.clone())]), "spec.actions[1].name"),
        (json!([{"name": "a"}]), "spec.actions[0]"),
        (json!([{"name": "a", "cloudInit": {}, "reboot": {}}]), "spec.actions[0].reboot"),
        (json!([{"name": "a", "rebot": {}}]), "spec.actions[0].rebot"),
        (json!([{"name": "a", "reboot": {}}, write(good.clone())]), "spec.actions[0].reboot"),
        (json!([{"name": "a", "retry": {"maxAttempts": 0}, "reboot": {}}]), "spec.actions[0].retry.maxAttempts"),
        (
            json!([{"name": "a", "retry": {"maxAttempts": 1, "maxRestarts": 101}, "reboot": {}}]),
            "spec.actions[0].retry.maxRestarts",
        ),
        (json!([write(json!({"url": "http://h/i"}))]), "spec.actions[0].writeImage.image.digest"),
        (json!([write(json!({"url": "ftp://h/i", "digest": digest}))]), "spec.actions[0].writeImage.image.url"),
        (json!([write(json!({"url": "http://h/i", "digest": "sha1:0"}))]), "spec.actions[0].writeImage.image.digest"),
        (
            json!([write(json!({"url": "http://h/{{ params.relase }}", "digest": digest}))]),
            "spec.actions[0].writeImage.image.url",
        ),
        (json!([write(json!({"url": "http://h/{{ nope", "digest": digest}))]), "spec.actions[0].writeImage.image.url"),
        (json!([{"name": "s", "cloudInit": {}}]), "spec.actions[0].cloudInit.disk"),
        (
            json!([write(good.clone()), {"name": "b", "writeImage": {"image": good}}, {"name": "s", "cloudInit": {}}]),
            "spec.actions[2].cloudInit.disk",
        ),
        (
            json!([{"name": "w", "writeImage": {"disk": {"colour": "red"}, "image": good}}]),
            "spec.actions[0].writeImage.disk.colour",
        ),
    ] {
        let faults = faults(actions.clone());
        assert!(faults.iter().any(|(path, _)| path == at), "{at}: {faults:?} of {actions}");
    }
}

fn with(fields: Value, actions: Value) -> Vec<String> {
    let mut spec = fields;
    spec["actions"] = actions;
    let tree = json!({"apiVersion": crate::API_VERSION, "kind": "Template", "metadata": {"name": "t"}, "spec": spec});
    match Document::from_value(tree) {
        Ok(document) => document.issues().into_iter().map(|issue| issue.path).collect(),
        Err(problem) => vec![problem.subject],
    }
}

fn image(disk: Value) -> Value {
    json!({"disk": disk, "image": {"url": "http://h/i", "digestWaived": true}})
}

#[test]
fn a_zero_time_is_refused_wherever_one_may_stand() {
    let reboot = json!([{"name": "r", "reboot": {}}]);
    assert_eq!(with(json!({"timeout": "0s"}), reboot.clone()), ["spec.timeout"]);
    for field in ["initialBackoff", "maxBackoff"] {
        let list = json!([{"name": "r", "retry": {"maxAttempts": 2, (field): "0ms"}, "reboot": {}}]);
        assert_eq!(with(json!({}), list), [format!("spec.actions[0].retry.{field}")]);
    }
    assert_eq!(with(json!({}), json!([{"name": "r", "timeout": "0h", "reboot": {}}])), ["spec.actions[0].timeout"]);
    let backwards = json!({"maxAttempts": 2, "initialBackoff": "2m", "maxBackoff": "1m"});
    let list = json!([{"name": "r", "retry": backwards, "reboot": {}}]);
    assert_eq!(with(json!({}), list), ["spec.actions[0].retry.initialBackoff"]);
}

#[test]
fn success_must_be_something_that_can_happen() {
    let (seed, reboot) =
        (json!({"name": "s", "cloudInit": {"disk": {"name": "vda"}}}), json!({"name": "r", "reboot": {}}));
    let off = json!({"name": "o", "powerOff": {}});
    let kexec = json!({"name": "k", "kexec": {"disk": {"name": "vda"}}});
    let quiet = json!({"name": "s", "cloudInit": {"disk": {"name": "vda"}, "phoneHome": {"enabled": false}}});
    for (on, list, fits) in [
        ("phoneHome", json!([seed, reboot]), true),
        ("phoneHome", json!([quiet, reboot]), false),
        ("phoneHome", json!([reboot]), false),
        ("phoneHome", json!([seed, off]), false),
        ("phoneHome", json!([seed, kexec]), true),
        ("phoneHome", json!([quiet, kexec]), false),
        ("reboot", json!([kexec]), true),
        ("reboot", json!([seed, off]), true),
        ("reboot", json!([seed, reboot]), true),
        ("reboot", json!([seed]), false),
    ] {
        assert_eq!(with(json!({"successOn": on}), list.clone()).is_empty(), fits, "{on} of {list}");
    }
    assert_eq!(with(json!({"successOn": "whenever"}), json!([seed, reboot])), ["spec.successOn"]);
}

#[test]
fn a_last_step_is_last_and_stands_in_no_branch() {
    let list = json!([{"name": "o", "powerOff": {}}, {"name": "r", "reboot": {}}]);
    assert_eq!(with(json!({}), list), ["spec.actions[0].powerOff"]);
    let list = json!([{"name": "r", "branch": "a", "reboot": {}}]);
    assert_eq!(with(json!({}), list), ["spec.actions[0].branch"]);
    let kexec = json!({"disk": {"name": "vda"}});
    let list = json!([{"name": "k", "branch": "a", "kexec": kexec}, {"name": "r", "reboot": {}}]);
    assert_eq!(with(json!({}), list), ["spec.actions[0].kexec", "spec.actions[0].branch"]);
}

#[test]
fn kexec_needs_one_disk_and_one_valid_line() {
    let write = json!({"name": "w", "writeImage": image(json!({"name": "vda"}))});
    let kexec = |spec: Value| with(json!({"parameters": {"x": {}}}), json!([write, {"name": "k", "kexec": spec}]));
    for fine in ["root=/dev/vda1 ro", "{{ params.x }}", &"x".repeat(2047)] {
        assert!(kexec(json!({ "cmdline": fine })).is_empty(), "{fine}");
    }
    assert!(kexec(json!({"disk": {"serial": "D1"}})).is_empty());
    for bad in ["", " ", "root=/dev/vda1\nro", "a\0b", &"x".repeat(2048)] {
        assert_eq!(kexec(json!({ "cmdline": bad })), ["spec.actions[1].kexec.cmdline"], "{bad:?}");
    }
    assert_eq!(kexec(json!({"disk": {"colour": "red"}})), ["spec.actions[1].kexec.disk.colour"]);
    assert_eq!(kexec(json!({"kernel": "/vmlinuz"})), ["spec.actions[1].kexec.kernel"]);
    assert_eq!(with(json!({}), json!([{"name": "k", "kexec": {}}])), ["spec.actions[0].kexec.disk"]);
    let another = json!({"name": "v", "writeImage": image(json!({"name": "vdb"}))});
    let list = json!([write, another, {"name": "k", "kexec": {}}]);
    assert_eq!(with(json!({}), list), ["spec.actions[2].kexec.disk"], "which of the two?");
}

#[test]
fn a_layout_with_a_root_is_what_later_actions_mean() {
    let storage = |part: Value| json!({"name": "d", "storage": {"disks": [{"partitions": [part]}]}});
    let run = json!({"name": "e", "exec": {"command": ["true"]}});
    let boot = json!({"name": "b", "installBootloader": {}});
    let place = json!({"role": "data", "mount": "{{ params.x }}"});
    for root in [json!({"role": "root"}), json!({"format": "btrfs", "subvolumes": [{"name": "@", "mount": "/"}]})] {
        assert_eq!(with(json!({}), json!([storage(root), run, boot])), [""; 0]);
    }
    let declared = json!({"parameters": {"x": {}}});
    for data in [json!({"role": "data"}), json!({"role": "root", "mount": "/srv"}), place] {
        assert_eq!(with(declared.clone(), json!([storage(data), run])), ["spec.actions[1].exec.disk"]);
    }
    let write = json!({"name": "w", "writeImage": image(json!({"name": "vda"}))});
    let list = json!([write, storage(json!({"role": "root"})), run]);
    assert_eq!(with(json!({}), list), ["spec.actions[2].exec.disk"], "the disk or the layout?");
}

#[test]
fn on_failure_lists_write_no_disk_and_have_unique_names() {
    let main = json!([{"name": "r", "reboot": {}}]);
    let after = |list: Value| with(json!({"onFailure": list}), main.clone());
    assert!(after(json!([{"name": "h", "hold": {"message": "look"}}, {"name": "o", "powerOff": {}}])).is_empty());
    assert_eq!(
        after(json!([{"name": "w", "writeImage": image(json!({"name": "vda"}))}])),
        ["spec.onFailure[0].writeImage"]
    );
    assert_eq!(after(json!([{"name": "r", "powerOff": {}}])), ["spec.onFailure[0].name"]);
    assert_eq!(
        after(json!([{"name": "x", "powerOff": {}}, {"name": "y", "reboot": {}}])),
        ["spec.onFailure[0].powerOff"]
    );
    assert_eq!(after(json!([{"name": "h", "hold": {"message": " "}}])), ["spec.onFailure[0].hold.message"]);
    let kexec = json!({"name": "k", "kexec": {"disk": {"name": "vda"}}});
    assert_eq!(after(json!([kexec])), ["spec.onFailure[0].kexec"], "the failed action may have left");
}

#[test]
fn branch_names_are_fixed_and_disks_must_differ() {
    let write = |name: &str, branch: &str, disk: &str| json!({"name": name, "branch": branch, "writeImage": image(json!({"serial": disk}))});
    assert!(with(json!({}), json!([write("x", "a", "1"), write("y", "b", "2")])).is_empty());
    assert!(with(json!({}), json!([write("x", "a", "1"), write("y", "a", "1")])).is_empty(), "one after the other");
    assert_eq!(
        with(json!({}), json!([write("x", "a", "1"), write("y", "b", "1")])),
        ["spec.actions[1].writeImage.disk"]
    );
    for bad in ["A", "{{ params.x }}"] {
        let faults = with(json!({"parameters": {"x": {}}}), json!([write("x", bad, "1")]));
        assert_eq!(faults, ["spec.actions[0].branch"], "{bad}");
    }
    let many: Vec<Value> = (0..9).map(|n| write(&format!("w{n}"), &format!("b{n}"), &n.to_string())).collect();
    assert_eq!(with(json!({}), many.into()), ["spec.actions[8].branch"]);
    // Either disk may have been written first.
    let seed = json!({"name": "s", "branch": "a", "cloudInit": {}});
    let list = json!([write("x", "a", "1"), seed, write("y", "b", "2")]);
    assert_eq!(with(json!({}), list), ["spec.actions[1].cloudInit.disk"]);
}

#[test]
fn an_expanding_expression_is_refused_at_its_field() {
    for text in [
        "{{ (1,) * 100000000 }}",
        "{{ (\"a\"*100000)|replace(\"a\",\"b\"*100000) }}",
        "{{ ([[1]*10000]*10000)|string }}",
        "{{ lipsum(100000) }}",
    ] {
        let begun = std::time::Instant::now();
        let issues = template(json!({}), json!([write(json!({"url": text, "digestWaived": true}))])).issues();
        let said = issues.iter().find(|issue| issue.path == "spec.actions[0].writeImage.image.url");
        assert!(said.is_some_and(|issue| issue.message.contains("is not taken")), "{text}: {issues:?}");
        assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{text}");
    }
}

#[test]
fn a_list_may_include_others_and_repeat_over_disks() {
    let write = json!({"name": "data", "branch": "d", "forEach": {"disks": {"transport": "nvme"}, "allowNone": true},
        "writeImage": image(json!("{{ disk.selector }}"))});
    let include = json!({"name": "base", "include": {"template": "base", "parameters": {"a": "{{ machine.name }}",
        "key": "{{ secrets.db.pw }}"}}});
    // What the included list writes and whether it ends in a restart is not known here.
    let seed = json!({"name": "seed", "cloudInit": {}});
    let list = json!([write, include, seed]);
    assert_eq!(with(json!({"successOn": "phoneHome"}), list), [""; 0]);
    assert_eq!(with(json!({"fragment": true}), json!([seed])), [""; 0], "it leans on what stands around it");
    assert_eq!(with(json!({"fragment": true, "timeout": "1h"}), json!([seed])), ["spec.timeout"]);
    let null = json!([{"name": "r", "reboot": null}]);
    assert_eq!(with(json!({}), null), ["spec.actions[0].reboot"]);
}

#[test]
fn a_rules_name_is_one_expression_over_facts() {
    let faults = |name: &str| -> Vec<String> {
        let tree = json!({"apiVersion": crate::API_VERSION, "kind": "EnrolmentRule", "metadata": {"name": "r"},
            "spec": {"name": name}});
        Document::from_value(tree).unwrap().issues().into_iter().map(|issue| issue.path).collect()
    };
    assert_eq!(faults("{{ facts.smbios.manufacturer }}-1"), [""; 0]);
    for bad in ["{% if x", "{% for a in range(9) %}{% endfor %}", "{{ machine.name }}", "{{ facts.", "{{ range(9) }}"] {
        assert_eq!(faults(bad), ["spec.name"], "{bad}");
    }
}

#[test]
fn a_slip_in_a_parameters_name_is_recognised() {
    let url = json!({"url": "http://h/{{ params.relase }}", "digestWaived": true});
    let faults = faults(json!([write(url)]));
    assert!(faults[0].1.starts_with("did you mean \"release\"?"), "{faults:?}");
}

#[test]
fn a_group_address_and_a_repeated_one_are_refused() {
    let machine = |macs: Value| {
        Document::from_value(json!({"apiVersion": crate::API_VERSION, "kind": "Machine", "metadata": {"name": "m"},
            "spec": {"identity": {"macs": macs}}}))
        .unwrap()
        .validate()
    };
    assert!(machine(json!(["52:54:00:00:00:01"])).is_ok());
    for bad in [json!([]), json!(["01:00:5e:00:00:01"]), json!(["52:54:00:00:00:01", "52-54-00-00-00-01"])] {
        let problem = machine(bad).unwrap_err();
        assert!(problem.subject.starts_with("spec.identity.macs"), "{problem}");
    }
}
