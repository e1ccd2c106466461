//! JSON Schema of every kind, made from the types.

use std::sync::OnceLock;

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::{
    API_VERSION, Action, EnrolmentRule, ForEachSpec, IncludeSpec, Kind, Machine, Pool, Secret, Template, Workflow,
    list_item,
};

/// Prefix of the definitions in which an expression may stand for any value.
pub(crate) const TEMPLATE_PREFIX: &str = "Template";

/// A schema with its definitions at hand.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) root: Value,
    definitions: Map<String, Value>,
}

impl Schema {
    fn made_from<T: JsonSchema>() -> Self {
        let mut root = SchemaGenerator::new(SchemaSettings::draft2020_12()).into_root_schema_for::<T>().to_value();
        without_links(&mut root);
        let definitions = match root.as_object_mut().and_then(|root| root.remove("$defs")) {
            Some(Value::Object(definitions)) => definitions,
            _ => Map::new(),
        };
        Self { root, definitions }
    }

    pub(crate) fn definition(&self, name: &str) -> Option<&Value> {
        self.definitions.get(name)
    }

    /// What a property is, in the first sentence of its description, else of its type's.
    pub(crate) fn explanation(&self, keys: &Map<String, Value>, property: &str) -> String {
        let Some(schema) = keys.get("properties").and_then(|p| p.get(property)) else { return String::new() };
        let own = |schema: &Value| {
            let text = one_line(schema.get("description")?.as_str()?);
            Some(text.split_once(". ").map_or(text.clone(), |(first, _)| format!("{first}.")))
        };
        let referred = || {
            let name = schema.get("$ref").and_then(Value::as_str)?.rsplit('/').next()?;
            self.definitions.get(name).and_then(own)
        };
        own(schema).or_else(referred).unwrap_or_default()
    }

    fn whole(&self) -> Value {
        let mut root = self.root.clone();
        if let Some(map) = root.as_object_mut()
            && !self.definitions.is_empty()
        {
            map.insert("$defs".into(), Value::Object(self.definitions.clone()));
        }
        root
    }
}

/// Descriptions come from doc comments; their links mean something to rustdoc only.
pub(crate) fn without_links(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::String(text)) = map.get_mut("description") {
                *text = text.replace("[`crate::", "`").replace("[`", "`").replace("`]", "`");
            }
            map.values_mut().for_each(without_links);
        }
        Value::Array(items) => items.iter_mut().for_each(without_links),
        _ => {}
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The JSON Schema (draft 2020-12) of a kind. In a template's actions a string holding `{{ … }}` is allowed wherever a
/// value is: it is checked after rendering.
pub fn schema(kind: Kind) -> Value {
    of(kind).whole()
}

pub(crate) fn of(kind: Kind) -> &'static Schema {
    static MACHINE: OnceLock<Schema> = OnceLock::new();
    static TEMPLATE: OnceLock<Schema> = OnceLock::new();
    static WORKFLOW: OnceLock<Schema> = OnceLock::new();
    static SECRET: OnceLock<Schema> = OnceLock::new();
    static RULE: OnceLock<Schema> = OnceLock::new();
    static POOL: OnceLock<Schema> = OnceLock::new();
    match kind {
        Kind::Machine => MACHINE.get_or_init(|| headed(Schema::made_from::<Machine>(), kind)),
        Kind::Template => TEMPLATE.get_or_init(|| headed(with_expressions(Schema::made_from::<Template>()), kind)),
        Kind::Workflow => WORKFLOW.get_or_init(|| headed(Schema::made_from::<Workflow>(), kind)),
        Kind::Secret => SECRET.get_or_init(|| headed(Schema::made_from::<Secret>(), kind)),
        Kind::EnrolmentRule => RULE.get_or_init(|| headed(Schema::made_from::<EnrolmentRule>(), kind)),
        Kind::Pool => POOL.get_or_init(|| headed(Schema::made_from::<Pool>(), kind)),
    }
}

/// The schema of one rendered action.
pub(crate) fn action() -> &'static Schema {
    static ACTION: OnceLock<Schema> = OnceLock::new();
    ACTION.get_or_init(Schema::made_from::<Action>)
}

/// Names the kind: `Machine`'s schema accepts machines only.
fn headed(mut schema: Schema, kind: Kind) -> Schema {
    schema.definitions.remove("Kind");
    if let Some(root) = schema.root.as_object_mut() {
        root.insert("title".into(), kind.as_str().into());
        root.insert("description".into(), kind.about().into());
        if let Some(properties) = root.get_mut("properties").and_then(Value::as_object_mut) {
            properties.insert("kind".into(), json!({ "const": kind.as_str(), "description": "The kind." }));
            let version = json!({ "const": API_VERSION, "description": "The API's group and version." });
            properties.insert("apiVersion".into(), version);
        }
    }
    schema
}

/// Copies every definition an action reaches, with an expression allowed in place of any value, and makes the
/// template's actions refer to the copies.
fn with_expressions(mut schema: Schema) -> Schema {
    for name in reached(vec!["Action".to_owned()], &schema.definitions) {
        if let Some(definition) = schema.definitions.get(&name).map(loosened) {
            schema.definitions.insert(format!("{TEMPLATE_PREFIX}{name}"), definition);
        }
    }
    for spec in schema.definitions.values_mut().chain([&mut schema.root]) {
        point_actions_at_copies(spec);
    }
    let name = format!("{TEMPLATE_PREFIX}Action");
    if let Some(mut action) = schema.definitions.remove(&name) {
        with_list_items(&mut action, &mut schema.definitions, TEMPLATE_PREFIX, loosened);
        schema.definitions.insert(name, action);
    }
    // An original stays where the template itself has the type too.
    let mut below = Vec::new();
    references(&schema.root, &mut below);
    let left = reached(below, &schema.definitions);
    schema.definitions.retain(|name, _| left.contains(name));
    schema
}

/// These definitions, and all that they reach.
fn reached(mut names: Vec<String>, definitions: &Map<String, Value>) -> Vec<String> {
    let mut at = 0;
    while let Some(name) = names.get(at) {
        let mut below = Vec::new();
        definitions.get(name).iter().for_each(|definition| references(definition, &mut below));
        below.retain(|name| !names.contains(name));
        names.extend(below);
        at += 1;
    }
    names
}

/// Adds to an action's schema what an item of a template's list may have besides; `prefix` stands before the names of
/// definitions.
fn with_list_items(action: &mut Value, definitions: &mut Map<String, Value>, prefix: &str, of: fn(&Value) -> Value) {
    let mut generator = SchemaGenerator::new(SchemaSettings::draft2020_12());
    let parts = [
        generator.subschema_for::<IncludeSpec>(),
        generator.subschema_for::<ForEachSpec>(),
        generator.subschema_for::<String>(),
    ];
    for (name, mut definition) in generator.take_definitions(true) {
        without_links(&mut definition);
        definitions.entry(format!("{prefix}{name}")).or_insert_with(|| of(&definition));
    }
    for (part, (field, about)) in parts.into_iter().zip(list_item::FIELDS) {
        let mut part = of(part.as_value());
        part["description"] = about.into();
        action["properties"][field] = part;
    }
    if let Some(alternatives) = action["oneOf"].as_array_mut() {
        alternatives.push(json!({ "required": ["include"] }));
    }
}

/// The schema of one item of a template's list. A check of a template allows expressions besides.
pub(crate) fn list_item() -> &'static Schema {
    static ITEM: OnceLock<Schema> = OnceLock::new();
    ITEM.get_or_init(|| {
        let mut schema = Schema::made_from::<Action>();
        with_list_items(&mut schema.root, &mut schema.definitions, "", Value::clone);
        schema
    })
}

fn references(schema: &Value, out: &mut Vec<String>) {
    match schema {
        Value::Object(map) => {
            if let Some(name) = map.get("$ref").and_then(Value::as_str).and_then(|r| r.rsplit('/').next())
                && !out.iter().any(|n| n == name)
            {
                out.push(name.to_owned());
            }
            map.values().for_each(|v| references(v, out));
        }
        Value::Array(items) => items.iter().for_each(|v| references(v, out)),
        _ => {}
    }
}

/// Rewrites references to the copies, and allows an expression in every property and item.
fn loosened(schema: &Value) -> Value {
    let Some(map) = schema.as_object() else { return schema.clone() };
    let mut out = Map::new();
    for (key, value) in map {
        let value = match (key.as_str(), value) {
            ("$ref", Value::String(r)) => r.replace("#/$defs/", &format!("#/$defs/{TEMPLATE_PREFIX}")).into(),
            ("properties", Value::Object(properties)) => {
                properties.iter().map(|(name, v)| (name.clone(), or_expression(v, name))).collect()
            }
            ("items" | "additionalProperties", Value::Object(_)) => or_expression(value, ""),
            ("anyOf" | "allOf", Value::Array(parts)) => parts.iter().map(loosened).collect(),
            _ => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    Value::Object(out)
}

fn or_expression(schema: &Value, property: &str) -> Value {
    let loose = loosened(schema);
    // Plain text takes an expression already, and an action's name is fixed text.
    let plain_text = schema.get("type").and_then(Value::as_str) == Some("string") && schema.get("pattern").is_none();
    if plain_text || property == "name" || schema.as_bool() == Some(true) {
        return loose;
    }
    let mut out = Map::new();
    if let Some(description) = schema.get("description") {
        out.insert("description".into(), description.clone());
    }
    out.insert("anyOf".into(), json!([loose, { "type": "string", "pattern": "\\{\\{" }]));
    Value::Object(out)
}

fn point_actions_at_copies(schema: &mut Value) {
    for list in ["actions", "onFailure"] {
        if let Some(items) = schema.pointer_mut(&format!("/properties/{list}/items"))
            && items.get("$ref").and_then(Value::as_str) == Some("#/$defs/Action")
        {
            *items = json!({ "$ref": format!("#/$defs/{TEMPLATE_PREFIX}Action") });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machines_schema_accepts_machines_only() {
        let schema = schema(Kind::Machine);
        assert_eq!(schema["properties"]["kind"]["const"], "Machine");
        assert_eq!(schema["properties"]["apiVersion"]["const"], API_VERSION);
        assert_eq!(schema["additionalProperties"], false);
    }

    #[test]
    fn template_actions_allow_expressions_except_as_names() {
        let schema = schema(Kind::Template);
        let action = &schema["$defs"]["TemplateAction"]["properties"];
        let expression = json!({ "type": "string", "pattern": "\\{\\{" });
        assert_eq!(action["timeout"]["anyOf"][1], expression);
        assert_eq!(action["name"]["type"], "string");
        let retry = &schema["$defs"]["TemplateRetrySpec"]["properties"]["maxAttempts"];
        assert_eq!(retry["anyOf"][1], expression);
        assert_eq!(schema["$defs"]["TemplateSpec"]["properties"]["actions"]["items"]["$ref"], "#/$defs/TemplateAction");
        assert!(schema["$defs"].get("Action").is_none());
    }

    #[test]
    fn no_description_holds_a_link_of_rustdocs() {
        for kind in Kind::ALL {
            let text = schema(kind).to_string();
            assert!(!text.contains("[`"), "{kind}");
        }
    }

    #[test]
    fn a_workflows_rendered_actions_allow_none() {
        let schema = schema(Kind::Workflow);
        assert!(schema["$defs"]["Action"]["properties"]["timeout"].get("anyOf").is_none());
    }
}
