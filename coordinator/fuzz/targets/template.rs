//! Templates and parameters: any scalar in any place renders to checked actions or to a reason, in bounded time and memory.
//!
//! Input: parameters as JSON after their length, then actions as JSON; or one scalar, put where scalars go.
#![no_main]

use std::collections::BTreeMap;

use landfall_api::{Document, ErrorCode, Machine};
use landfall_coordinator::fuzzing;
use landfall_coordinator::workflow::{Fragments, render};
use landfall_coordinator_fuzz::{Input, MAC};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

fn document(kind: &str, spec: Value) -> Option<Document> {
    let tree = json!({
        "apiVersion": "landfall.dev/v1alpha1", "kind": kind,
        "metadata": {"name": "x", "labels": {"site": "north"}}, "spec": spec,
    });
    Document::from_value(tree).ok()
}

fn machine() -> Machine {
    match document("Machine", json!({"identity": {"macs": [MAC]}})) {
        Some(Document::Machine(machine)) => machine.into_inner(),
        _ => unreachable!("it is a machine"),
    }
}

fn check(spec: Value, stated: &BTreeMap<String, Value>) {
    let Some(Document::Template(template)) = document("Template", spec) else { return };
    match render(&machine(), &template, stated, &Fragments::new()) {
        Ok(plan) => {
            let bytes = serde_json::to_vec(&plan.actions).expect("JSON").len();
            assert!(bytes <= fuzzing::MAX_RENDERED * (template.spec.actions.len() + 1) * 8, "{bytes} bytes of actions");
        }
        Err(problem) => {
            assert_eq!(problem.code, ErrorCode::InvalidTemplate, "{problem}");
            assert!(problem.subject.starts_with("Template/x"), "{problem}");
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let stated: BTreeMap<String, Value> = serde_json::from_slice(input.bytes()).unwrap_or_default();
    let parameters: BTreeMap<_, _> = stated.keys().map(|name| (name.clone(), json!({}))).collect();
    if let Ok(actions @ Value::Array(_)) = serde_json::from_slice::<Value>(input.0) {
        check(json!({"parameters": parameters, "actions": actions}), &stated);
    }
    let Ok(scalar) = std::str::from_utf8(input.0) else { return };
    let image = json!({"url": scalar, "digest": format!("sha256:{}", "0a".repeat(32))});
    let write = json!({"name": "write", "timeout": scalar, "writeImage": {"image": image, "disk": {"serial": scalar}}});
    let seed = json!({"name": "seed", "cloudInit": {"users": [{"name": scalar, "sudo": true}], "hostname": scalar}});
    check(json!({"parameters": parameters, "actions": [write]}), &stated);
    check(json!({"parameters": parameters, "actions": [seed]}), &stated);
});
