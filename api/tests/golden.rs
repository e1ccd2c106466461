//! Documents as they are stored, and their schemas, as they were recorded in `tests/golden/`.

use std::collections::BTreeSet;

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
    let document = without_prose(openapi("0.1.0"));
    golden::same("schemas/openapi.json", &format!("{}\n", fitted(&document, 0)));
    // A kind's own schema is the same, with its parts inside.
    let parts = &document["components"]["schemas"];
    for kind in Kind::ALL {
        let mut own = without_prose(schema(kind));
        assert_eq!(own["$schema"], "https://json-schema.org/draft/2020-12/schema", "{kind}");
        let fields = own.as_object_mut().unwrap();
        fields.remove("$schema");
        let inside = fields.remove("$defs").unwrap();
        let mut named = BTreeSet::new();
        assert_eq!(refers_to_parts(own, &mut named), parts[kind.to_string()], "{kind}");
        for (name, part) in inside.as_object().unwrap() {
            assert_eq!(refers_to_parts(part.clone(), &mut named), parts[name], "{kind}: {name}");
        }
        let inside: BTreeSet<String> = inside.as_object().unwrap().keys().cloned().collect();
        assert_eq!(named, inside, "{kind} has the parts that it refers to");
    }
}

/// A schema that refers to its parts as the OpenAPI document does; their names are noted.
fn refers_to_parts(tree: Value, named: &mut BTreeSet<String>) -> Value {
    match tree {
        Value::Object(fields) => {
            let fields =
                fields.into_iter().map(|(key, value)| match value.as_str().map(|to| to.strip_prefix("#/$defs/")) {
                    Some(Some(name)) if key == "$ref" => {
                        named.insert(name.to_owned());
                        (key, format!("#/components/schemas/{name}").into())
                    }
                    _ => (key, refers_to_parts(value, named)),
                });
            Value::Object(fields.collect())
        }
        Value::Array(items) => items.into_iter().map(|item| refers_to_parts(item, named)).collect(),
        other => other,
    }
}

/// As JSON, where what fits stays on one line: a difference shows as one property.
fn fitted(tree: &Value, indent: usize) -> String {
    let short = tree.to_string();
    let deeper = |key: Option<&String>, value: &Value| {
        let key = key.map(|key| format!("{}: ", Value::from(key.as_str()))).unwrap_or_default();
        format!("{:1$}{key}{2}", "", indent + 2, fitted(value, indent + 2))
    };
    let (open, close, lines): (_, _, Vec<String>) = match tree {
        _ if indent + short.len() <= 100 => return short,
        Value::Object(fields) => ('{', '}', fields.iter().map(|(key, value)| deeper(Some(key), value)).collect()),
        Value::Array(items) => ('[', ']', items.iter().map(|item| deeper(None, item)).collect()),
        _ => return short,
    };
    format!("{open}\n{}\n{:indent$}{close}", lines.join(",\n"), "")
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
