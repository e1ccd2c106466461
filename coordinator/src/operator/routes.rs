//! The table of routes: every one with the role it asks for. The router, the check of who calls, and the lists in the
//! documentation and the tests are all made from it, so that a route without a role cannot be written.

use std::{convert::Infallible, sync::Arc};

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodRouter, any, delete, get, post};
use landfall_api::{API_PATH, Kind, Role};

use super::elsewhere::Answers;
use super::guard::{Access, RouteInfo};
use super::{access, backup, changes, console, documents, follow, history, meta, ops, runs};
use crate::state::Coordinator;

/// A row of the table.
pub(super) struct Route {
    pub(super) info: RouteInfo,
    /// Which of several coordinators.
    pub(super) answers: Answers,
    pub(super) handler: MethodRouter<Arc<Coordinator>, Infallible>,
}

/// What an axum handler of this API is; `T` are its extractors.
trait Serves<T>: Handler<T, Arc<Coordinator>> {}
impl<T, H: Handler<T, Arc<Coordinator>>> Serves<T> for H {}

fn row(
    method: Option<Method>, path: String, access: Access, about: &str, handler: MethodRouter<Arc<Coordinator>>,
) -> Route {
    let info = RouteInfo { method, path, access, about: about.to_owned(), reads: false };
    Route { info, answers: Answers::Any, handler }
}

impl Route {
    fn answered_by(self, answers: Answers) -> Self {
        Self { answers, ..self }
    }
}

/// A path below the API's.
fn api(path: &str) -> String {
    format!("{API_PATH}{path}")
}

fn on_get<T: 'static>(path: String, access: Access, about: &str, handler: impl Serves<T>) -> Route {
    row(Some(Method::GET), path, access, about, get(handler))
}

fn on_post<T: 'static>(path: &str, role: Role, about: &str, handler: impl Serves<T>) -> Route {
    row(Some(Method::POST), api(path), Access::Least(role), about, post(handler))
}

/// A question whose parts stand in a body: nothing changes, and the audit log has no entry of it.
fn on_question<T: 'static>(path: &str, role: Role, about: &str, handler: impl Serves<T>) -> Route {
    let mut route = on_post(path, role, about, handler);
    route.info.reads = true;
    route
}

/// A part of what another request began: the audit log has that one.
fn on_part<T: 'static>(path: &str, role: Role, about: &str, handler: impl Serves<T>) -> Route {
    on_question(path, role, about, handler)
}

fn on_delete<T: 'static>(path: &str, role: Role, about: &str, handler: impl Serves<T>) -> Route {
    row(Some(Method::DELETE), api(path), Access::Least(role), about, delete(handler))
}

/// Every route. One is added by adding a row here.
pub(super) fn table() -> Vec<Route> {
    use Access::{Anyone, Least};
    use Answers::{AgentOfMachine, AgentOfWorkflow, Leading};
    use Role::{Admin, Operator, Viewer};
    let mut table = vec![
        on_get("/healthz".into(), Anyone, "Whether the coordinator can answer", ops::healthz),
        on_get("/readyz".into(), Anyone, "Whether the coordinator can work, check by check", ops::readyz),
        on_get("/metrics".into(), Least(Viewer), "Metrics in Prometheus' text format", ops::counted),
        on_get(api("/manifests"), Least(Viewer), "The result of the last scan of the manifests", ops::manifests)
            .answered_by(Leading),
        on_get("/openapi.json".into(), Least(Viewer), "The OpenAPI document", meta::openapi),
        on_get("/schemas/{kind}".into(), Least(Viewer), "JSON Schema of a kind", meta::schema),
        // What a kind asks for beyond this is checked once the body is read: see `documents::role_for`.
        on_post("/apply", Operator, "Create or change one document", documents::apply),
        on_post("/machines/{name}/provision", Operator, "Start a workflow of a template on a machine", runs::provision),
        // Not a parameter of the route above: a coordinator that does not know it would start the workflow.
        on_question("/machines/{name}/dry-run", Operator, "Check a workflow, and start nothing", runs::dry_run)
            .answered_by(AgentOfMachine),
        on_question("/machines/{name}/preview", Operator, "What a workflow would destroy", runs::preview),
        on_question("/machines/{name}/render", Operator, "The list that a template makes for a machine", runs::render),
        on_post("/machines/{name}/deprovision", Operator, "Clear a machine's disks", runs::deprovision),
        on_post("/machines/{name}/inspect", Operator, "Look at a machine again, and report its facts", runs::inspect)
            .answered_by(AgentOfMachine),
        on_post("/machines/{name}/power", Operator, "Read a machine's power, or change it", runs::power)
            .answered_by(Leading),
        on_post("/machines/{name}/console", Operator, "Open a machine's serial console", console::open)
            .answered_by(Leading),
        on_part("/machines/{name}/console/input", Operator, "Type at an open console", console::input)
            .answered_by(Leading),
        on_post("/machines/{name}/adopt", Operator, "Adopt a machine that is already installed", runs::adopt),
        on_post("/machines/{name}/release", Operator, "Take a machine out of its pool", runs::release),
        on_post("/machines/{name}/confirm", Operator, "Clear a machine's identity alarm", runs::confirm_identity),
        on_post("/machines/{name}/detach", Operator, "Stop managing a machine; its disks stay unchanged", runs::detach),
        on_post("/machines/{name}/approve", Operator, "Approve a machine's key", access::approve),
        on_post("/machines/{name}/revoke", Admin, "Revoke a machine's certificates", access::revoke_machine),
        on_get(api("/machines/{name}/events"), Least(Viewer), "What happened to a machine", history::of_machine),
        on_post("/workflows/{name}/cancel", Operator, "Stop a workflow", runs::cancel),
        on_post("/workflows/{name}/pause", Operator, "Pause a workflow", runs::pause),
        on_post("/workflows/{name}/resume", Operator, "Resume a workflow", runs::resume),
        on_post("/workflows/{name}/confirm", Operator, "Let a held workflow begin", runs::confirm),
        on_post("/workflows/{name}/retry", Operator, "Retry a workflow from its failed action", runs::retry),
        on_get(api("/workflows/{name}/events"), Least(Viewer), "What happened in a workflow", history::of_workflow),
        on_get(api("/workflows/{name}/logs"), Least(Viewer), "Log lines of a workflow", follow::logs)
            .answered_by(AgentOfWorkflow),
        on_get(api("/sightings"), Least(Viewer), "Ports that netbooted and were not served", ops::sightings),
        on_get("/backup".into(), Least(Admin), "All data of the coordinator, in one file", backup::backup),
        on_get(api("/audit"), Least(Admin), "The audit log", access::audit),
        on_get(api("/tokens"), Least(Admin), "List bearer tokens, without their values", access::tokens),
        on_post("/tokens", Admin, "Create a bearer token", access::make_token),
        on_delete("/tokens/{name}", Admin, "Delete a bearer token", access::delete_token),
        on_post("/operators/{name}/revoke", Admin, "Revoke an operator's certificates", access::revoke_operator),
    ];
    for kind in Kind::ALL {
        let plural = kind.plural();
        let path = api(&format!("/{plural}"));
        let one = format!("{path}/{{name}}");
        table.push(on_get(path, Least(Viewer), &format!("List {plural}, or watch them"), move |who, state, query| {
            documents::list(kind, who, state, query)
        }));
        table.push(on_get(one, Least(Viewer), &format!("One of the {plural}"), move |who, state, name| {
            documents::get(kind, who, state, name)
        }));
        let changed = format!("The changes of one of the {plural}, with time and person");
        table.push(on_get(
            api(&format!("/{plural}/{{name}}/history")),
            Least(Viewer),
            &changed,
            move |who, state, name, query| changes::history(kind, who, state, name, query),
        ));
        table.push(on_delete(
            &format!("/{plural}/{{name}}"),
            documents::role_for(kind),
            &format!("Delete one of the {plural}"),
            move |operator, state, name, if_match| documents::delete(kind, operator, state, name, if_match),
        ));
    }
    // Last, and for viewers: unauthenticated callers must not learn which routes exist.
    table.push(row(
        None,
        "/apis/{*rest}".into(),
        Least(Viewer),
        "Unknown routes: points to the list of routes",
        any(meta::nowhere),
    ));
    table
}

/// Every route that [`super::router`] serves.
pub fn routes() -> Vec<RouteInfo> {
    table().into_iter().map(|route| route.info).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_openapi_document_has_every_route_and_no_other() {
        let document = landfall_api::openapi("0");
        let paths = document["paths"].as_object().unwrap();
        let described: BTreeSet<_> = paths
            .iter()
            .flat_map(|(path, methods)| methods.as_object().unwrap().keys().map(move |m| format!("{m} {path}")))
            .collect();
        let served: BTreeSet<_> = routes()
            .iter()
            .filter_map(|r| Some(format!("{} {}", r.method.as_ref()?.as_str().to_lowercase(), r.path)))
            .collect();
        let (missing, extra): (Vec<_>, Vec<_>) =
            (served.difference(&described).collect(), described.difference(&served).collect());
        assert!(missing.is_empty() && extra.is_empty(), "not described: {missing:?}; not served: {extra:?}");
    }

    /// Said a second time here: the walk over the table with every role believes the table.
    #[test]
    fn what_only_an_admin_may_do_is_this() {
        let admins: BTreeSet<_> = routes()
            .into_iter()
            .filter(|r| r.access == Access::Least(Role::Admin))
            .map(|r| format!("{} {}", r.method.unwrap(), r.path.trim_start_matches(API_PATH)))
            .collect();
        let expected = [
            "DELETE /enrolmentrules/{name}", "DELETE /secrets/{name}", "DELETE /tokens/{name}", "GET /audit",
            "GET /backup", "GET /tokens", "POST /machines/{name}/revoke", "POST /operators/{name}/revoke",
            "POST /tokens",
        ];
        assert_eq!(admins.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_ports_page_lists_every_route_and_role() {
        let page = include_str!("../../../docs/ports.md");
        let rows: Vec<Vec<&str>> = page
            .lines()
            .filter(|line| line.starts_with("| `"))
            .map(|line| line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        for route in routes() {
            let Some(method) = &route.method else { continue };
            let path = route.path.replacen(API_PATH, "API", 1);
            // Rows that are the same for every kind stand there once.
            let kind = Kind::ALL.into_iter().find(|kind| {
                let rest = path.strip_prefix(&format!("API/{}", kind.plural()));
                rest.is_some_and(|rest| ["", "/{name}", "/{name}/history"].contains(&rest))
            });
            let path = kind.map_or_else(|| path.clone(), |kind| path.replacen(kind.plural(), "{plural}", 1));
            let row = rows.iter().find(|row| row.first() == Some(&format!("`{method} {path}`").as_str()));
            let row = row.unwrap_or_else(|| panic!("docs/ports.md has no row for {method} {path}"));
            let role = match route.access {
                Access::Anyone => "anyone".to_owned(),
                Access::Least(role) => role.to_string(),
            };
            assert!(row[1].contains(&role), "{method} {path} is for {role}, and the page says {}", row[1]);
        }
    }

    #[test]
    fn without_a_role_only_liveness_is_visible() {
        let open: Vec<_> = routes().into_iter().filter(|r| r.access == Access::Anyone).map(|r| r.path).collect();
        assert_eq!(open, ["/healthz", "/readyz"]);
    }

    #[test]
    fn whatever_changes_something_asks_for_an_operator_at_least() {
        for route in routes().iter().filter(|r| r.changes()) {
            assert!(matches!(route.access, Access::Least(role) if role >= Role::Operator), "{route:?}");
        }
    }
}
