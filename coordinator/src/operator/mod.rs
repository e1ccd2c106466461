//! The operators' HTTP/JSON API: documents, runs, what happened, and the schemas of it all.
//!
//! The same routes stand behind the Unix socket and the TLS port. A request carries the [`Peer`](crate::tls::Peer) its
//! listener saw; [`routes`] says which role each route asks for, and `guard` asks before anything else of the request is
//! read. Every failure is a [`Problem`](landfall_api::Problem) in JSON.

mod access;
mod backup;
mod body;
mod caller;
mod changes;
mod console;
mod cross_site;
mod documents;
mod elsewhere;
mod follow;
mod guard;
mod history;
mod meta;
mod ops;
mod pages;
mod precondition;
mod problem;
mod routes;
mod runs;
#[cfg(test)]
pub(crate) mod tests;
mod unix;
mod watch;

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};

use crate::state::Coordinator;

pub use guard::{Access, RouteInfo};
pub use ops::metrics_router;
pub use routes::routes;
pub use unix::{BindError, LocalListener};

/// The operators' routes. The listener that serves them must put a [`Peer`](crate::tls::Peer) into every request's
/// extensions; a request without one is anonymous.
pub fn router(coordinator: Arc<Coordinator>) -> Router {
    let mut router = Router::new();
    for route in routes::table() {
        let gate = guard::Gate::new(coordinator.clone(), &route.info);
        let check = from_fn_with_state(gate, guard::check);
        let passage = elsewhere::Passage { coordinator: coordinator.clone(), answers: route.answers };
        let handler = match route.answers {
            elsewhere::Answers::Any => route.handler,
            _ => route.handler.route_layer(from_fn_with_state(passage.clone(), elsewhere::pass_on)),
        };
        let handler = if route.info.path.contains("/{name}") {
            handler.route_layer(from_fn_with_state(passage, elsewhere::hear_first))
        } else {
            handler
        };
        // Of this row's handler only: axum merges rows of one path.
        let guarded = match route.info.method {
            Some(_) => handler.route_layer(check),
            None => handler.layer(check),
        };
        router = router.route(&route.info.path, guarded);
    }
    router.method_not_allowed_fallback(meta::wrong_method).layer(from_fn(ops::count)).with_state(coordinator)
}
