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
