//! The OpenAPI 3.1 document of the operators' API, made from the same types that serve it.

use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::{
    API_PATH, ApplyOutcome, ApproveRequest, AuditEntry, DeprovisionRequest, EventRecord, HistoryEntry, Kind,
    ListMetadata, LogRecord, ManifestReport, OperatorRevoked, Preview, PreviewRequest, Problem, ProvisionRequest,
    RenderRequest, RenderedList, TokenInfo, TokenIssued, TokenList, TokenRequest, WatchType, schema,
    schema::without_links,
};

/// The OpenAPI 3.1 document. `version` is the program's that serves it.
pub fn openapi(version: &str) -> Value {
    let mut paths = Map::new();
    for kind in Kind::ALL {
        collection(kind, &mut paths);
    }
    actions(&mut paths);
    access(&mut paths);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Landfall operators' API",
            "version": version,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            "description": "On one host over a Unix socket, over the network with mutual TLS (an operator's \
                certificate). Every failure is a Problem: what, where and what to do. Programs must use its code, \
                never its text."
        },
        "paths": paths,
        "components": { "schemas": components(), "responses": {
            "Problem": { "description": "The request was refused or failed; the body says \
                why.", "content": json_content(reference("Problem")) }
        } },
    })
}

fn components() -> Map<String, Value> {
    let mut out = Map::new();
    for kind in Kind::ALL {
        let mut schema = hoisted(schema(kind));
        if let Some(Value::Object(definitions)) = schema.as_object_mut().and_then(|s| s.remove("$defs")) {
            out.extend(definitions);
        }
        out.insert(kind.as_str().to_owned(), schema);
        let list = json!({ "type": "object", "required": ["items", "metadata"], "properties": {
            "items": { "type": "array", "items": reference(kind.as_str()) }, "metadata": reference("ListMetadata") } });
        out.insert(format!("{kind}List"), list);
        let line = json!({ "type": "object", "required": ["type", "resourceVersion"],
            "description": "One line of a watch.", "properties": {
            "type": reference("WatchType"), "resourceVersion": { "type": "integer" },
            "object": reference(kind.as_str()), "problem": reference("Problem") } });
        out.insert(format!("{kind}WatchLine"), line);
    }
    out.insert("Document".into(), json!({ "oneOf": Kind::ALL.map(|k| reference(k.as_str())) }));
    let applied = json!({ "type": "object", "required": ["outcome", "object"], "properties": {
        "outcome": reference("ApplyOutcome"), "object": reference("Document") } });
    out.insert("ApplyResponse".into(), applied);
    let detached = json!({ "type": "object", "required": ["object", "stays"], "properties": {
        "object": reference("Machine"), "stays": { "type": "array", "items": { "type": "string" } } } });
    out.insert("DetachResponse".into(), detached);
    let mut generator = SchemaGenerator::new(SchemaSettings::draft2020_12().with(|s| {
        s.definitions_path = "/components/schemas".into();
        s.meta_schema = None;
    }));
    generator.subschema_for::<Problem>();
    generator.subschema_for::<ListMetadata>();
    generator.subschema_for::<WatchType>();
    generator.subschema_for::<ApplyOutcome>();
    generator.subschema_for::<ProvisionRequest>();
    generator.subschema_for::<DeprovisionRequest>();
    generator.subschema_for::<RenderRequest>();
    generator.subschema_for::<RenderedList>();
    generator.subschema_for::<PreviewRequest>();
    generator.subschema_for::<Preview>();
    generator.subschema_for::<EventRecord>();
    generator.subschema_for::<HistoryEntry>();
    generator.subschema_for::<LogRecord>();
    generator.subschema_for::<ManifestReport>();
    generator.subschema_for::<ApproveRequest>();
    generator.subschema_for::<AuditEntry>();
    generator.subschema_for::<OperatorRevoked>();
    generator.subschema_for::<TokenInfo>();
    generator.subschema_for::<TokenIssued>();
    generator.subschema_for::<TokenList>();
    generator.subschema_for::<TokenRequest>();
    out.extend(generator.take_definitions(true));
    if let Some(document) = out.get_mut("RenderRequest").and_then(|schema| schema.pointer_mut("/properties/document")) {
        *document = reference("Template");
    }
    out.values_mut().for_each(without_links);
    out
}

/// References to a schema's own definitions, made references to the document's components.
fn hoisted(schema: Value) -> Value {
    match schema {
        Value::Object(map) => map
            .into_iter()
            .filter(|(key, _)| key != "$schema")
            .map(|(key, value)| match value {
                Value::String(text) if key == "$ref" => (key, text.replace("#/$defs/", "#/components/schemas/").into()),
                other => (key, hoisted(other)),
            })
            .collect(),
        Value::Array(items) => items.into_iter().map(hoisted).collect(),
        other => other,
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn json_content(schema: Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

fn lines_content(schema: Value) -> Value {
    json!({ "application/x-ndjson": { "schema": schema } })
}

fn operation(id: String, summary: &str, parameters: Vec<Value>, body: Option<Value>, content: Value) -> Value {
    let mut out = json!({ "operationId": id, "summary": summary, "responses": {
        "200": { "description": "Done.", "content": content },
        "default": { "$ref": "#/components/responses/Problem" } } });
    if !parameters.is_empty() {
        out["parameters"] = parameters.into();
    }
    if let Some(body) = body {
        out["requestBody"] = json!({ "required": true, "content": json_content(body) });
    }
    out
}

fn path_name() -> Value {
    json!({ "name": "name", "in": "path", "required": true, "schema": { "type": "string" } })
}

fn query(name: &str, kind: &str, about: &str) -> Value {
    json!({ "name": name, "in": "query", "description": about, "schema": { "type": kind } })
}

fn collection(kind: Kind, paths: &mut Map<String, Value>) {
    let (plural, name) = (kind.plural(), kind.as_str());
    let mut list = operation(
        format!("list{name}"),
        &format!("List {plural}, or watch them"),
        vec![
            query("name", "string", "Only the document of that name."),
            query(
                "labelSelector",
                "string",
                "Only documents with matching labels, such as rack=r7,env!=prod,zone in (a,b),!retired. In a watch a \
                    document that begins to match is ADDED, and one that stops matching is DELETED.",
            ),
            query(
                "limit",
                "integer",
                "At most so many documents, by name; 0, the default, is as many as a page may hold: 500, or 8 MiB of JSON. If there \
                    are more, metadata.continue of the answer gets the next page.",
            ),
            query(
                "continue",
                "string",
                "The next page: metadata.continue of the page before, with the same other parameters. Every page states \
                    the resourceVersion of the first; watch from there to learn what changed between the pages.",
            ),
            query("watch", "boolean", "Stream one line of JSON per change instead of a list."),
            query(
                "resourceVersion",
                "integer",
                "With watch: the revision to continue from, as stated by a list or a line; without it all existing \
                    documents come first, as ADDED. 410 if it is no longer kept.",
            ),
        ],
        None,
        json_content(reference(&format!("{name}List"))),
    );
    list["responses"]["200"]["content"]["application/x-ndjson"] =
        json!({ "schema": reference(&format!("{name}WatchLine")) });
    paths.insert(format!("{API_PATH}/{plural}"), json!({ "get": list }));
    let get = operation(
        format!("get{name}"),
        &format!("One of the {plural}"),
        vec![path_name()],
        None,
        json_content(reference(name)),
    );
    let delete = operation(
        format!("delete{name}"),
        &format!("Delete one of the {plural}"),
        vec![path_name()],
        None,
        json_content(reference(name)),
    );
    paths.insert(format!("{API_PATH}/{plural}/{{name}}"), json!({ "get": get, "delete": delete }));
    let history = operation(
        format!("history{name}"),
        "The changes, with time and person, oldest first",
        vec![path_name(), query("limit", "integer", "The number of newest changes to return.")],
        None,
        lines_content(reference("HistoryEntry")),
    );
    paths.insert(format!("{API_PATH}/{plural}/{{name}}/history"), json!({ "get": history }));
}

fn actions(paths: &mut Map<String, Value>) {
    let mut post =
        |path: &str, operation: Value| paths.insert(format!("{API_PATH}{path}"), json!({ "post": operation }));
    let dry_run = query("dryRun", "boolean", "Validate and report what would happen; change nothing.");
    post(
        "/apply",
        operation(
            "apply".into(),
            "Create or change one document",
            vec![dry_run],
            Some(reference("Document")),
            json_content(reference("ApplyResponse")),
        ),
    );
    post(
        "/machines/{name}/provision",
        operation(
            "provision".into(),
            "Start a workflow of a template on a machine",
            vec![path_name()],
            Some(reference("ProvisionRequest")),
            json_content(reference("Workflow")),
        ),
    );
    post(
        "/machines/{name}/dry-run",
        operation(
            "dryRun".into(),
            "Everything that provisioning checks, and the list that it would pin; nothing is started",
            vec![path_name()],
            Some(reference("ProvisionRequest")),
            json_content(reference("RenderedList")),
        ),
    );
    post(
        "/machines/{name}/render",
        operation(
            "render".into(),
            "The list that a template makes for a machine; nothing is started, and no image is asked for",
            vec![path_name()],
            Some(reference("RenderRequest")),
            json_content(reference("RenderedList")),
        ),
    );
    post(
        "/machines/{name}/deprovision",
        operation(
            "deprovision".into(),
            "Clear tables, signatures and receipts on a machine's disks",
            vec![path_name()],
            Some(reference("DeprovisionRequest")),
            json_content(reference("Workflow")),
        ),
    );
    post(
        "/machines/{name}/preview",
        operation(
            "preview".into(),
            "What provisioning or deprovisioning a machine would destroy, by the facts that its agent reported last",
            vec![path_name()],
            Some(reference("PreviewRequest")),
            json_content(reference("Preview")),
        ),
    );
    post(
        "/machines/{name}/adopt",
        operation(
            "adopt".into(),
            "Adopt a machine that is already installed",
            vec![path_name()],
            None,
            json_content(reference("Machine")),
        ),
    );
    post(
        "/machines/{name}/confirm",
        operation(
            "confirmMachine".into(),
            "Clear a machine's identity alarm",
            vec![path_name()],
            None,
            json_content(reference("Machine")),
        ),
    );
    post(
        "/machines/{name}/detach",
        operation(
            "detach".into(),
            "Stop managing a machine; its disks stay unchanged",
            vec![path_name()],
            None,
            json_content(reference("DetachResponse")),
        ),
    );
    for (verb, about) in [
        ("cancel", "Stop a workflow"),
        ("pause", "Pause a workflow: the current action ends, no other begins"),
        ("resume", "Resume a workflow after a pause, or after the hold at which it waits"),
        ("confirm", "Let a workflow begin that is held since a long absence of the coordinator; nothing is forced"),
        ("retry", "Start a workflow that continues where this one failed or was cancelled"),
    ] {
        let answer = json_content(reference("Workflow"));
        post(&format!("/workflows/{{name}}/{verb}"), operation(verb.into(), about, vec![path_name()], None, answer));
    }
    post(
        "/machines/{name}/approve",
        operation(
            "approve".into(),
            "Approve the key with this fingerprint, and no other",
            vec![path_name()],
            Some(reference("ApproveRequest")),
            json_content(reference("Machine")),
        ),
    );
    post(
        "/machines/{name}/revoke",
        operation(
            "revokeMachine".into(),
            "Revoke a machine's certificates, boot tokens and approval, and end its session",
            vec![path_name()],
            None,
            json_content(reference("Machine")),
        ),
    );
    let after = query("after", "integer", "Only events after this position.");
    for kind in [Kind::Machine, Kind::Workflow] {
        let events = operation(
            format!("events{kind}"),
            "What happened, oldest first",
            vec![path_name(), after.clone()],
            None,
            lines_content(reference("EventRecord")),
        );
        paths.insert(format!("{API_PATH}/{}/{{name}}/events", kind.plural()), json!({ "get": events }));
    }
    let follow = query("follow", "boolean", "Stream new lines until the workflow ends.");
    let logs = operation(
        "logs".into(),
        "Log lines, oldest first",
        vec![
            path_name(),
            follow,
            query("action", "string", "Only lines of this action."),
            query("tail", "integer", "The number of newest existing lines to return."),
            query("since", "string", "Only lines since this RFC 3339 time, by the agent's clock."),
        ],
        None,
        lines_content(reference("LogRecord")),
    );
    paths.insert(format!("{API_PATH}/workflows/{{name}}/logs"), json!({ "get": logs }));
    let free = |id: &str, about: &str| json!({ "get": operation(id.into(), about, vec![], None, json_content(json!({ "type": "object" }))) });
    paths.insert("/healthz".into(), free("healthz", "Whether the coordinator can answer; needs no credentials"));
    paths.insert(
        "/readyz".into(),
        free("readyz", "Whether the coordinator can work, check by check; 503 if not; needs no credentials"),
    );
    let text = json!({ "text/plain": { "schema": { "type": "string" } } });
    let metrics = operation("metrics".into(), "Metrics in Prometheus' text format", vec![], None, text);
    paths.insert("/metrics".into(), json!({ "get": metrics }));
    let manifests = operation(
        "manifests".into(),
        "The result of the last scan of the directory of manifests",
        vec![],
        None,
        json_content(reference("ManifestReport")),
    );
    paths.insert(format!("{API_PATH}/manifests"), json!({ "get": manifests }));
    let backup = operation(
        "backup".into(),
        "All data of the coordinator: database, certificate authority, key of the secrets. Protect it like them",
        vec![],
        None,
        json!({ "application/x-tar": {} }),
    );
    paths.insert("/backup".into(), json!({ "get": backup }));
    paths.insert("/openapi.json".into(), free("openapi", "This document"));
    let kind =
        json!({ "name": "kind", "in": "path", "required": true, "schema": { "enum": Kind::ALL.map(Kind::singular) } });
    let schemas = operation(
        "schema".into(),
        "JSON Schema of a kind",
        vec![kind],
        None,
        json_content(json!({ "type": "object" })),
    );
    paths.insert("/schemas/{kind}".into(), json!({ "get": schemas }));
}

/// Tokens, revoked certificates, the audit log.
fn access(paths: &mut Map<String, Value>) {
    let tokens = json!({
        "get": operation("tokens".into(), "Bearer tokens, without their values", vec![], None, json_content(reference("TokenList"))),
        "post": operation("makeToken".into(), "Create a bearer token; only this response shows its value", vec![],
            Some(reference("TokenRequest")), json_content(reference("TokenIssued"))),
    });
    paths.insert(format!("{API_PATH}/tokens"), tokens);
    let gone = operation(
        "deleteToken".into(),
        "Delete a bearer token; it is refused at once",
        vec![path_name()],
        None,
        json_content(reference("TokenInfo")),
    );
    paths.insert(format!("{API_PATH}/tokens/{{name}}"), json!({ "delete": gone }));
    let operator = operation(
        "revokeOperator".into(),
        "Revoke every existing certificate of that name",
        vec![path_name()],
        None,
        json_content(reference("OperatorRevoked")),
    );
    paths.insert(format!("{API_PATH}/operators/{{name}}/revoke"), json!({ "post": operator }));
    let parameters = vec![
        query("after", "integer", "Only entries after this position."),
        query("limit", "integer", "The largest number of entries, up to 10000; with follow, per read. Default 1000."),
        query("follow", "boolean", "Stream new entries."),
    ];
    let audit = operation(
        "audit".into(),
        "The audit log, oldest first",
        parameters,
        None,
        lines_content(reference("AuditEntry")),
    );
    paths.insert(format!("{API_PATH}/audit"), json!({ "get": audit }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references(value: &Value, out: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                out.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
                map.values().for_each(|v| references(v, out));
            }
            Value::Array(items) => items.iter().for_each(|v| references(v, out)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_of_the_openapi_document_leads_somewhere() {
        let document = openapi("0");
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 50, "{}", found.len());
        for reference in found {
            let pointer = reference.strip_prefix('#').expect("all are local");
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }
}
