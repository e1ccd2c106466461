//! A document is unchanged after it is written and read again: as JSON, and as YAML through the file reader.

use landfall_api::{Document, Kind};
use proptest::prelude::*;
use serde_json::{Value, json};

fn label() -> impl Strategy<Value = String> {
    "[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?"
}

/// Text as people put into labels, hints and descriptions, YAML's own signs included; no `{`, which could begin an expression.
fn text() -> impl Strategy<Value = String> {
    "[ -z}~äß✓]{0,20}"
}

fn duration() -> impl Strategy<Value = String> {
    (1u32..100_000, prop::sample::select(vec!["ms", "s", "m", "h", "d"])).prop_map(|(n, unit)| format!("{n}{unit}"))
}

fn action() -> impl Strategy<Value = Value> {
    let formats = vec!["raw", "gzip", "xz", "zstd", "bzip2", "lz4", "qcow2", "vmdk"];
    let proofs = prop::sample::select(vec!["digest", "rawDigest", "index", "signature", "sums", "digestWaived"]);
    let image = ("[a-z0-9/.]{1,20}", any::<[u8; 32]>(), prop::option::of(prop::sample::select(formats)), proofs);
    let write = (image, any::<bool>(), prop::option::of(label())).prop_map(
        |((path, digest, format, proof), read_back, keep)| {
            let digest: String = digest.iter().map(|b| format!("{b:02x}")).collect();
            let digest = format!("sha256:{digest}");
            let signature = json!({"url": "http://h/s", "key": format!("RW{}", &digest[7..61])});
            let mut image = json!({"url": format!("http://h/{path}")});
            image[proof] = match proof {
                "digest" | "rawDigest" => json!(digest),
                "index" => json!({"url": "http://h/x", "digest": digest}),
                "signature" => signature,
                "sums" => json!({"url": "http://h/SHA256SUMS", "signature": signature}),
                _ => json!(true),
            };
            if let Some(format) = format {
                image["format"] = format.into();
                image["table"] = "none".into();
            }
            let mut spec = json!({"disk": {"name": "vda"}, "image": image});
            if read_back {
                spec["verify"] = "readBack".into();
            }
            if let Some(keep) = keep {
                spec["keep"] = json!([keep]);
                spec["image"]["mirrors"] = json!([format!("https://g/{path}")]);
                spec["image"]["access"] = json!({"proxy": "http://p:3128"});
            }
            ("writeImage", spec)
        },
    );
    let seed = (label(), text()).prop_map(|(host, value)| {
        ("cloudInit", json!({"disk": {"name": "vda"}, "hostname": host, "userData": {"a": value}}))
    });
    let hold = "[a-z ]{0,10}[a-z]".prop_map(|message| ("hold", json!({ "message": message })));
    let what = prop_oneof![write, seed, hold];
    let branch = prop::option::of(label());
    (what, prop::option::of(duration()), prop::option::of(1u32..100), branch).prop_map(
        |((key, spec), timeout, attempts, branch)| {
            let mut action = json!({ key: spec });
            // Branches that run at once must write disks of their own.
            if let Some(branch) = branch.filter(|_| key == "hold") {
                action["branch"] = branch.into();
            }
            if let Some(timeout) = timeout {
                action["timeout"] = timeout.into();
            }
            if let Some(attempts) = attempts {
                action["retry"] = json!({ "maxAttempts": attempts });
            }
            action
        },
    )
}

fn document() -> impl Strategy<Value = Value> {
    let macs = prop::collection::btree_set(any::<[u8; 5]>(), 1..5);
    let machine =
        (macs, any::<Option<[u8; 16]>>(), prop::option::of("[A-Za-z0-9]{1,12}[a-z]")).prop_map(|(macs, id, serial)| {
            let macs: Vec<String> = macs
                .iter()
                .map(|m| format!("52:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", m[0], m[1], m[2], m[3], m[4]))
                .collect();
            let mut identity = json!({ "macs": macs });
            if let Some(id) = id {
                identity["smbiosUuid"] = uuid::Uuid::from_bytes(id).to_string().into();
            }
            if let Some(serial) = serial {
                identity["serial"] = serial.into();
            }
            (Kind::Machine, json!({ "identity": identity }))
        });
    let after = prop::sample::select(vec!["reboot", "powerOff"]);
    let kexec = prop::option::of("[ -z}~]{0,20}[a-z]").prop_map(|line| match line {
        Some(line) => json!({"kexec": {"disk": {"name": "vda"}, "cmdline": line}}),
        None => json!({"kexec": {"disk": {"name": "vda"}}}),
    });
    let last = prop_oneof![after.clone().prop_map(|key| json!({ key: {} })), kexec];
    let ends = (last, prop::option::of(after), prop::option::of(duration()), any::<bool>());
    let template = (prop::collection::vec(action(), 1..5), text(), ends).prop_map(
        |(mut actions, about, (last, after, timeout, stated))| {
            actions.push(last);
            for (i, action) in actions.iter_mut().enumerate() {
                action["name"] = format!("a{i}").into();
            }
            let mut spec = json!({ "parameters": {"release": {"description": about}}, "actions": actions });
            if let Some(after) = after {
                spec["onFailure"] =
                    json!([{"name": "wait", "hold": {"message": "look"}}, {"name": "end", (after): {}}]);
            }
            if let Some(timeout) = timeout {
                spec["timeout"] = timeout.into();
            }
            if stated {
                spec["successOn"] = "reboot".into();
            }
            (Kind::Template, spec)
        },
    );
    let run = (label(), label(), text(), prop::option::of(label())).prop_map(|(machine, template, value, retry_of)| {
        let mut spec = json!({ "machine": machine, "template": template, "parameters": {"p": value} });
        if let Some(retry_of) = retry_of {
            let by = json!({"person": "ann", "at": "2026-01-01T00:00:00Z"});
            spec["requests"] = json!([{"what": "Pause", "by": by}]);
            spec["retryOf"] = retry_of.into();
        }
        (Kind::Workflow, spec)
    });
    (prop_oneof![machine, template, run], label(), prop::collection::btree_map(label(), text(), 0..3)).prop_map(
        |((kind, spec), name, labels)| {
            json!({"apiVersion": landfall_api::API_VERSION, "kind": kind, "metadata": {"name": name, "labels": labels}, "spec": spec})
        },
    )
}

proptest! {
    #[test]
    fn a_document_survives_json(tree in document()) {
        let document = Document::from_value(tree).unwrap();
        document.validate().unwrap();
        let again = Document::from_value(serde_json::to_value(&document).unwrap()).unwrap();
        prop_assert_eq!(again, document);
    }

    #[test]
    fn a_document_survives_yaml(tree in document()) {
        let document = Document::from_value(tree).unwrap();
        let yaml = serde_saphyr::to_string(&serde_json::to_value(&document).unwrap()).unwrap();
        let read = Document::from_yaml_str("x.yaml", &yaml);
        prop_assert!(read.is_ok(), "{:?}\n{yaml}", read.err());
        prop_assert_eq!(&read.unwrap()[0].document, &document, "{}", yaml);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "(?s).{0,200}") {
        // Only a panic would fail this test.
        drop(Document::from_yaml_str("x.yaml", &text));
    }
}
