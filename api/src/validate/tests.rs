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
fn a_kernels_command_line_has_at_most_2047_bytes() {
    let of = |bytes| {
        let kexec = json!({"disk": {"name": "vda"}, "cmdline": "x".repeat(bytes)});
        faults(json!([{"name": "k", "kexec": kexec}])).into_iter().map(|(path, _)| path).collect::<Vec<_>>()
    };
    assert_eq!((of(2047), of(2048)), (vec![], vec!["spec.actions[0].kexec.cmdline".to_owned()]));
}

#[test]
fn an_expanding_expression_is_refused_at_its_field() {
    for text in [
        "{{ (1,) * 100000000 }}", "{{ (\"a\"*100000)|replace(\"a\",\"b\"*100000) }}",
        "{{ ([[1]*10000]*10000)|string }}", "{{ lipsum(100000) }}",
    ] {
        let begun = std::time::Instant::now();
        let issues = template(json!({}), json!([write(json!({"url": text, "digestWaived": true}))])).issues();
        let said = issues.iter().find(|issue| issue.path == "spec.actions[0].writeImage.image.url");
        assert!(said.is_some_and(|issue| issue.message.contains("is not taken")), "{text}: {issues:?}");
        assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{text}");
    }
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

#[test]
fn a_reservation_is_for_one_port_and_one_address() {
    let machine = |reservations: Value| {
        Document::from_value(json!({"apiVersion": crate::API_VERSION, "kind": "Machine", "metadata": {"name": "m"},
            "spec": {"identity": {"macs": ["52:54:00:00:00:01"]}, "reservations": reservations}}))
        .unwrap()
        .validate()
    };
    let one = |mac: &str, address: &str| json!({"mac": mac, "address": address});
    let (a, b) = ("52:54:00:00:00:01", "52:54:00:00:00:02");
    assert_eq!(machine(json!([one(a, "192.0.2.7"), one(b, "192.0.2.8")])), Ok(()));
    for (second, at) in [
        (one(a, "192.0.2.8"), "spec.reservations[1].mac"),
        (one(b, "192.0.2.7"), "spec.reservations[1].address"),
        (one("ff:ff:ff:ff:ff:ff", "192.0.2.8"), "spec.reservations[1].mac"),
        (one(b, "224.0.0.1"), "spec.reservations[1].address"),
        (one(b, "0.0.0.0"), "spec.reservations[1].address"),
    ] {
        assert_eq!(machine(json!([one(a, "192.0.2.7"), second])).unwrap_err().subject, at);
    }
    let many: Vec<Value> = (0..65).map(|n| one(&format!("52:54:00:00:01:{n:02x}"), &format!("192.0.2.{n}"))).collect();
    assert_eq!(machine(json!(many)).unwrap_err().subject, "spec.reservations");
}

#[test]
fn a_machines_network_is_checked_as_a_whole() {
    let machine = |network: Value| {
        Document::from_value(json!({"apiVersion": crate::API_VERSION, "kind": "Machine", "metadata": {"name": "m"},
            "spec": {"identity": {"macs": ["52:54:00:00:00:01"]}, "network": network}}))
        .unwrap()
        .validate()
    };
    let bond =
        json!({"ports": ["52:54:00:00:00:01", "eth1"], "bond": "802.3ad", "vlan": 20, "addresses": ["192.0.2.7/24"]});
    assert_eq!(machine(json!([bond, {"ports": ["eth2"]}])), Ok(()));
    let routes: Vec<Value> =
        (0..16).map(|n| json!({"to": format!("2001:db8:{n}::/48"), "via": "2001:db8::1:2:3:4"})).collect();
    let long = json!({"ports": ["eth3"], "addresses": ["2001:db8::7/64"], "routes": routes});
    for (network, at) in [
        (json!([{"ports": []}]), "spec.network[0].ports"),
        (json!([bond, {"ports": ["eth1"]}]), "spec.network[1].ports"),
        (json!([{"ports": ["eth1"], "vlan": 0}]), "spec.network[0].vlan"),
        (json!([{"ports": ["eth1"], "gateways": ["192.0.2.1"]}]), "spec.network[0].gateways"),
        (json!([long, {"ports": ["eth4"], "addresses": ["2001:db8::8/64"], "routes": routes}]), "spec.network"),
    ] {
        assert_eq!(machine(network).unwrap_err().subject, at);
    }
}

/// What is wrong with a machine whose BMC is this, but for its credentials.
fn of_bmc(mut bmc: serde_json::Value) -> Vec<String> {
    bmc["credentials"] = json!("bmc");
    let machine = json!({"apiVersion": crate::API_VERSION, "kind": "Machine", "metadata": {"name": "m"},
        "spec": {"identity": {"macs": ["52:54:00:00:00:01"]}, "bmc": bmc}});
    Document::from_value(machine).unwrap().issues().into_iter().map(|issue| issue.path).collect()
}

#[test]
fn a_way_to_start_is_stated_once_and_exists() {
    let of = |address: &str, ways: serde_json::Value| of_bmc(json!({"address": address, "ways": ways}));
    let (redfish, ipmi) = ("redfish+https://192.0.2.7", "ipmi://192.0.2.7");
    assert!(of(redfish, json!(["virtualMedia", "pxeOnce"])).is_empty() && of(ipmi, json!(["pxeOnce"])).is_empty());
    assert_eq!(of(redfish, json!(["pxeOnce", "ownOrder", "pxeOnce"])), ["spec.bmc.ways[2]"]);
    assert_eq!(of(ipmi, json!(["virtualMedia", "pxeOnce", "uefiHttpOnce"])), ["spec.bmc.ways[0]", "spec.bmc.ways[2]"]);
}

#[test]
fn a_machine_is_woken_by_ports_or_has_a_bmc() {
    let of = |more: serde_json::Value| {
        let mut spec = json!({"identity": {"macs": ["52:54:00:00:00:01"]}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let machine =
            json!({"apiVersion": crate::API_VERSION, "kind": "Machine", "metadata": {"name": "m"}, "spec": spec});
        Document::from_value(machine).unwrap().issues().into_iter().map(|issue| issue.path).collect::<Vec<_>>()
    };
    let wake = |wake: serde_json::Value| json!({"power": {"wakeOnLan": wake}});
    assert!(of(wake(json!({}))).is_empty() && of(wake(json!({"address": "192.0.2.255", "port": 7}))).is_empty());
    let wrong = wake(json!({"port": 0, "macs": ["ff:ff:ff:ff:ff:ff"]}));
    assert_eq!(of(wrong), ["spec.power.wakeOnLan.macs[0]", "spec.power.wakeOnLan.port"]);
    let bmc = json!({"address": "ipmi://192.0.2.7", "credentials": "bmc"});
    assert_eq!(of(json!({"power": {"wakeOnLan": {}}, "bmc": bmc})), ["spec.power"]);
    let manual = |message: &str| of(json!({"power": {"manual": {"message": message}}}));
    assert!(manual("rack r7, slot 3").is_empty() && of(json!({"power": {"manual": {}}})).is_empty());
    for bad in ["two\nlines", &"x".repeat(201)] {
        assert_eq!(manual(bad), ["spec.power.manual.message"], "{bad}");
    }
}

#[test]
fn a_webhook_states_each_call_that_is_needed() {
    let of = |address: &str, more: Value| {
        let mut webhook = json!({"on": {"path": "/on"}, "off": {"path": "/off"},
            "status": {"path": "/", "at": "/state", "on": "on", "off": "off"}});
        webhook.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        of_bmc(json!({"address": address, "webhook": webhook}))
    };
    let https = "webhook+https://192.0.2.7/api";
    for (more, wrong) in [
        (json!({"netboot": {"path": "/boot", "method": "PUT", "body": {"device": ["{{ machine.name }}"]}}}), None),
        (json!({"on": {"path": "on"}}), Some("on.path")),
        (json!({"status": {"path": "/", "at": "state", "on": "on", "off": "off"}}), Some("status.at")),
        (json!({"status": {"path": "/", "on": "on", "off": "on"}}), Some("status.off")),
        (json!({"headers": {"X-Key": "{{ password }}", "a b": "c"}}), Some("headers.a b")),
        (json!({"headers": {"X-Key": "a\nb"}}), Some("headers.X-Key")),
        (json!({"headers": {"Host": "h"}}), Some("headers.Host")),
        (json!({"off": {"path": "/{{ machine.label }}"}}), Some("off.path")),
        // Servers log paths; and a choice would tell a password apart from others.
        (json!({"off": {"path": "/{{ password }}"}}), Some("off.path")),
        (json!({"off": {"path": "/", "body": "{{ 'a' if password < 'm' else b }}"}}), Some("off.body")),
        (json!({"shutdown": {"path": "/", "body": [{"a": "{{ password"}]}}), Some("shutdown.body")),
    ] {
        let wrong: Vec<String> = wrong.iter().map(|field| format!("spec.bmc.webhook.{field}")).collect();
        assert_eq!(of(https, more.clone()), wrong, "{more}");
    }
    assert_eq!(of("redfish+https://192.0.2.7", json!({})), ["spec.bmc.webhook"]);
    assert_eq!(of_bmc(json!({"address": https})), ["spec.bmc.webhook"]);
    assert_eq!(of_bmc(json!({"address": https, "ways": ["pxeContinuous"]})), ["spec.bmc.ways[0]", "spec.bmc.webhook"]);
}

#[test]
fn only_a_bmc_that_lists_ports_stands_for_an_identity() {
    for (address, wrong) in [
        ("redfish+https://192.0.2.7", vec![]),
        ("ipmi://192.0.2.7", vec!["spec.identity.macs"]),
        ("webhook+https://192.0.2.7", vec!["spec.bmc.webhook", "spec.identity.macs"]),
    ] {
        let machine = json!({"apiVersion": crate::API_VERSION, "kind": "Machine", "metadata": {"name": "m"},
            "spec": {"bmc": {"address": address, "credentials": "bmc"}}});
        let found = Document::from_value(machine).unwrap().issues();
        assert_eq!(found.into_iter().map(|issue| issue.path).collect::<Vec<_>>(), wrong, "{address}");
    }
}

#[test]
fn a_bmc_without_tls_has_no_certificate() {
    let of = |address: &str| {
        of_bmc(json!({"address": address, "certificate": format!("sha256:{}", "ab".repeat(32)),
            "caCertificates": ["-----BEGIN CERTIFICATE-----"]}))
    };
    assert!(of("redfish+https://192.0.2.7").is_empty());
    for address in ["redfish+http://192.0.2.7", "ipmi://192.0.2.7"] {
        assert_eq!(of(address), ["spec.bmc.certificate", "spec.bmc.caCertificates"], "{address}");
    }
}

#[test]
fn a_serial_console_is_at_an_address_of_ipmi() {
    let of = |address: &str, console: &str| of_bmc(json!({"address": address, "console": console}));
    for address in ["redfish+https://192.0.2.7", "ipmi://192.0.2.7"] {
        assert!(of(address, "ipmi://192.0.2.7:6230").is_empty(), "{address}");
        assert_eq!(of(address, "redfish+https://192.0.2.7"), ["spec.bmc.console"], "{address}");
    }
}
