//! Documents as they are stored, and their schemas, as they were recorded in `tests/golden/`.

use landfall_api::{Document, Kind, openapi, schema};
use landfall_golden as golden;
use serde_json::Value;

/// Every kind, every action, every proof of an image, every phase.
#[test]
fn stored_documents_are_written_as_they_were_recorded() {
    for kind in Kind::ALL {
        let file = format!("documents/{}.jsonl", kind.plural());
        let mut now = String::new();
        for line in golden::text(&file).lines() {
            let document = Document::from_value(serde_json::from_str(line).unwrap()).unwrap();
            assert_eq!(document.kind(), kind);
            let written = serde_json::to_string(&document).unwrap();
            assert_eq!(Document::from_value(serde_json::from_str(&written).unwrap()).unwrap(), document);
            now.push_str(&written);
            now.push('\n');
        }
        golden::same(&file, &now);
    }
}

/// `tests/golden/older/`: documents with words that have gone since. They are never written anew.
#[test]
fn an_older_document_keeps_its_meaning() {
    for kind in [Kind::Template, Kind::Workflow] {
        for line in golden::text(&format!("older/documents/{}.jsonl", kind.plural())).lines() {
            let old: Value = serde_json::from_str(line).unwrap();
            let document = Document::from_value(old.clone()).unwrap();
            assert!(line.contains("\"clearDisks\":"));
            let faults = format!("{:?}", document.validate());
            assert!(!faults.contains("clearDisks"), "{faults}");
            let now = serde_json::to_value(&document).unwrap();
            assert_eq!(now, with_words_of_today(old, kind == Kind::Workflow));
            assert_eq!(Document::from_value(now).unwrap(), document);
        }
    }
}

/// `clearDisks` is `wipe`, whose level a typed list states: the one that clears what `clearDisks` cleared.
fn with_words_of_today(tree: Value, typed: bool) -> Value {
    match tree {
        Value::Object(fields) => {
            let renamed = fields.into_iter().map(|(key, value)| {
                let mut value = with_words_of_today(value, typed);
                if key != "clearDisks" {
                    return (key, value);
                }
                if typed {
                    value["level"] = "signatures".into();
                }
                ("wipe".to_owned(), value)
            });
            Value::Object(renamed.collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(|item| with_words_of_today(item, typed)).collect()),
        other => other,
    }
}

#[test]
fn schemas_and_the_openapi_document_are_the_recorded_ones() {
    let pretty = |tree| format!("{}\n", serde_json::to_string_pretty(&without_prose(tree)).unwrap());
    for kind in Kind::ALL {
        golden::same(&format!("schemas/{}.json", kind.singular()), &pretty(schema(kind)));
    }
    golden::same("schemas/openapi.json", &pretty(openapi("0.1.0")));
}

/// Wording may change from one release to the next; names, types and bounds may not.
fn without_prose(tree: Value) -> Value {
    match tree {
        Value::Object(fields) => {
            let prose =
                |(key, value): &(String, Value)| value.is_string() && (key == "description" || key == "summary");
            let kept = fields.into_iter().filter(|field| !prose(field));
            Value::Object(kept.map(|(key, value)| (key, without_prose(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_prose).collect()),
        other => other,
    }
}
