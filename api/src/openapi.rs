//! The OpenAPI 3.1 document of the operators' API, made from the same types that serve it.

use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::schema::without_links;
use crate::{
    API_PATH, ApplyOutcome, ApproveRequest, AuditEntry, ConsoleInput, ConsoleLine, ConsoleRequest, ConsoleTaken,
    DeprovisionRequest, EventRecord, HistoryEntry, Inspection, Kind, ListMetadata, LogRecord, ManifestReport,
    OperatorRevoked, PowerReport, PowerRequest, Preview, PreviewRequest, Problem, ProvisionRequest, RenderRequest,
    RenderedList, SightingList, TokenInfo, TokenIssued, TokenList, TokenRequest, WatchType, schema,
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
    macro_rules! define { ($($type:ty),+ $(,)?) => { $(generator.subschema_for::<$type>();)+ }; }
    define!(
        Problem, ListMetadata, WatchType, ApplyOutcome, ProvisionRequest, DeprovisionRequest, RenderRequest,
        RenderedList, PreviewRequest, Preview, EventRecord, HistoryEntry, Inspection, LogRecord, ManifestReport,
        PowerRequest, PowerReport, ConsoleRequest, ConsoleLine, ConsoleInput, ConsoleTaken, ApproveRequest, AuditEntry,
        OperatorRevoked, SightingList, TokenInfo, TokenIssued, TokenList, TokenRequest,
    );
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

fn operation(id: &str, summary: &str, parameters: Vec<Value>, body: Option<Value>, content: Value) -> Value {
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
        &format!("list{name}"),
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
    let one = |verb: &str, about: &str| {
        operation(&format!("{verb}{name}"), about, vec![path_name()], None, json_content(reference(name)))
    };
    let get = one("get", &format!("One of the {plural}"));
    let delete = one("delete", &format!("Delete one of the {plural}"));
    paths.insert(format!("{API_PATH}/{plural}/{{name}}"), json!({ "get": get, "delete": delete }));
    let parameters = vec![path_name(), query("limit", "integer", "The number of newest changes to return.")];
    let (about, lines) = ("The changes, with time and person, oldest first", lines_content(reference("HistoryEntry")));
    let history = operation(&format!("history{name}"), about, parameters, None, lines);
    paths.insert(format!("{API_PATH}/{plural}/{{name}}/history"), json!({ "get": history }));
}

/// Routes by which a person has something done to one document: `path operation(body) -> answer: what it does`.
macro_rules! posts {
    ($($path:literal $id:ident($($body:ident)?) -> $answer:ident: $about:literal;)+) => {
        const POSTS: &[(&str, &str, Option<&str>, &str, &str)] =
            &[$(($path, stringify!($id), posts!(@$($body)?), stringify!($answer), $about)),+];
    };
    (@) => { None };
    (@$body:ident) => { Some(stringify!($body)) };
}

posts! {
    "/machines/{name}/provision" provision(ProvisionRequest) -> Workflow: "Start a workflow of a template on a machine";
    "/machines/{name}/dry-run" dryRun(ProvisionRequest) -> RenderedList:
        "Everything that provisioning checks, and the list that it would pin; nothing is started";
    "/machines/{name}/render" render(RenderRequest) -> RenderedList:
        "The list that a template makes for a machine; nothing is started, and no image is asked for";
    "/machines/{name}/deprovision" deprovision(DeprovisionRequest) -> Workflow:
        "Clear tables, signatures and receipts on a machine's disks";
    "/machines/{name}/preview" preview(PreviewRequest) -> Preview:
        "What provisioning or deprovisioning a machine would destroy, by the facts that its agent reported last";
    "/machines/{name}/inspect" inspect() -> Inspection:
        "Have a machine's agent look at it again; answers what changed, once the facts are stored";
    "/machines/{name}/power" power(PowerRequest) -> PowerReport:
        "Read a machine's power through its BMC, or change it; answers what is read then";
    "/machines/{name}/console/input" typeIntoConsole(ConsoleInput) -> ConsoleTaken:
        "Type at an open console; one request after the other";
    "/machines/{name}/adopt" adopt() -> Machine: "Adopt a machine that is already installed";
    "/machines/{name}/release" release() -> Machine: "Take a machine out of its pool: it is cleared, and then free";
    "/machines/{name}/confirm" confirmMachine() -> Machine: "Clear a machine's identity alarm";
    "/machines/{name}/detach" detach() -> DetachResponse: "Stop managing a machine; its disks stay unchanged";
    "/workflows/{name}/cancel" cancel() -> Workflow: "Stop a workflow";
    "/workflows/{name}/pause" pause() -> Workflow: "Pause a workflow: the current action ends, no other begins";
    "/workflows/{name}/resume" resume() -> Workflow:
        "Resume a workflow after a pause, or after the hold at which it waits";
    "/workflows/{name}/confirm" confirm() -> Workflow:
        "Let a workflow begin that is held since a long absence of the coordinator; nothing is forced";
    "/workflows/{name}/retry" retry() -> Workflow:
        "Start a workflow that continues where this one failed or was cancelled";
    "/machines/{name}/approve" approve(ApproveRequest) -> Machine:
        "Approve the key with this fingerprint, and no other";
    "/machines/{name}/revoke" revokeMachine() -> Machine:
        "Revoke a machine's certificates, boot tokens and approval, and end its session";
}

fn actions(paths: &mut Map<String, Value>) {
    let dry_run = query("dryRun", "boolean", "Validate and report what would happen; change nothing.");
    let (document, answer) = (Some(reference("Document")), json_content(reference("ApplyResponse")));
    let apply = operation("apply", "Create or change one document", vec![dry_run], document, answer);
    paths.insert(format!("{API_PATH}/apply"), json!({ "post": apply }));
    for (path, id, body, answer, about) in POSTS {
        let post = operation(id, about, vec![path_name()], body.map(reference), json_content(reference(answer)));
        paths.insert(format!("{API_PATH}{path}"), json!({ "post": post }));
    }
    let (path, about) =
        (format!("{API_PATH}/machines/{{name}}/console"), "Open a machine's serial console, for as long as it is read");
    let (request, lines) = (Some(reference("ConsoleRequest")), lines_content(reference("ConsoleLine")));
    paths.insert(path, json!({ "post": operation("openConsole", about, vec![path_name()], request, lines) }));
    let mut get = |path: String, id: &str, about: &str, parameters: Vec<Value>, content: Value| {
        paths.insert(path, json!({ "get": operation(id, about, parameters, None, content) }));
    };
    let after = query("after", "integer", "Only events after this position.");
    for kind in [Kind::Machine, Kind::Workflow] {
        let (path, id) = (format!("{API_PATH}/{}/{{name}}/events", kind.plural()), format!("events{kind}"));
        let lines = lines_content(reference("EventRecord"));
        get(path, &id, "What happened, oldest first", vec![path_name(), after.clone()], lines);
    }
    let parameters = vec![
        path_name(),
        query("follow", "boolean", "Stream new lines until the workflow ends."),
        query("action", "string", "Only lines of this action."),
        query("tail", "integer", "The number of newest existing lines to return."),
        query("since", "string", "Only lines since this RFC 3339 time, by the agent's clock."),
    ];
    let (path, lines) = (format!("{API_PATH}/workflows/{{name}}/logs"), lines_content(reference("LogRecord")));
    get(path, "logs", "Log lines, oldest first", parameters, lines);
    let object = || json_content(json!({ "type": "object" }));
    let about = "Whether the coordinator can answer; needs no credentials";
    get("/healthz".into(), "healthz", about, vec![], object());
    let about = "Whether the coordinator can work, check by check; 503 if not; needs no credentials";
    get("/readyz".into(), "readyz", about, vec![], object());
    let text = json!({ "text/plain": { "schema": { "type": "string" } } });
    get("/metrics".into(), "metrics", "Metrics in Prometheus' text format", vec![], text);
    let (about, report) = ("The result of the last scan of the directory of manifests", reference("ManifestReport"));
    get(format!("{API_PATH}/manifests"), "manifests", about, vec![], json_content(report));
    let (about, list) = ("The ports that netbooted and were not served, with the reason", reference("SightingList"));
    get(format!("{API_PATH}/sightings"), "sightings", about, vec![], json_content(list));
    let about =
        "All data of the coordinator: database, certificate authority, key of the secrets. Protect it like them";
    get("/backup".into(), "backup", about, vec![], json!({ "application/x-tar": {} }));
    get("/openapi.json".into(), "openapi", "This document", vec![], object());
    let kind =
        json!({ "name": "kind", "in": "path", "required": true, "schema": { "enum": Kind::ALL.map(Kind::singular) } });
    get("/schemas/{kind}".into(), "schema", "JSON Schema of a kind", vec![kind], object());
}

/// Tokens, revoked certificates, the audit log.
fn access(paths: &mut Map<String, Value>) {
    let tokens = json!({
        "get": operation("tokens", "Bearer tokens, without their values", vec![], None, json_content(reference("TokenList"))),
        "post": operation("makeToken", "Create a bearer token; only this response shows its value", vec![],
            Some(reference("TokenRequest")), json_content(reference("TokenIssued"))),
    });
    paths.insert(format!("{API_PATH}/tokens"), tokens);
    let (about, info) = ("Delete a bearer token; it is refused at once", json_content(reference("TokenInfo")));
    let gone = operation("deleteToken", about, vec![path_name()], None, info);
    paths.insert(format!("{API_PATH}/tokens/{{name}}"), json!({ "delete": gone }));
    let (about, revoked) = ("Revoke every existing certificate of that name", reference("OperatorRevoked"));
    let operator = operation("revokeOperator", about, vec![path_name()], None, json_content(revoked));
    paths.insert(format!("{API_PATH}/operators/{{name}}/revoke"), json!({ "post": operator }));
    let parameters = vec![
        query("after", "integer", "Only entries after this position."),
        query("limit", "integer", "The largest number of entries, up to 10000; with follow, per read. Default 1000."),
        query("follow", "boolean", "Stream new entries."),
    ];
    let entries = lines_content(reference("AuditEntry"));
    let audit = operation("audit", "The audit log, oldest first", parameters, None, entries);
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
