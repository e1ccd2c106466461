//! The agents' gRPC service over the engine, and the installed systems' phone-home.

mod access;
mod bounds;
mod facts;
mod failures;
mod phone_home;
mod service;
mod status;
mod stream;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use landfall_proto::v1::agent_service_server::AgentServiceServer;

pub use access::{CALLS, CallAccess, CallInfo};

use crate::engine::Engine;

/// The largest message of an agent, bytes. Facts are the largest; a machine with hundreds of disks has some hundred kilobytes.
const MAX_MESSAGE: usize = 1 << 20;

/// What agents and installed systems ask for on the TLS port. The listener must put a [`Peer`](crate::tls::Peer) and the
/// remote `SocketAddr` into every request's extensions.
pub fn router(engine: Engine) -> Router {
    let agents = AgentServiceServer::new(service::AgentApi::new(engine.clone())).max_decoding_message_size(MAX_MESSAGE);
    Router::new()
        .route_service("/landfall.agent.v1.AgentService/{*method}", agents)
        .layer(from_fn_with_state(engine.clone(), access::check))
        .layer(from_fn(only_grpc))
        .merge(phone_home::router(engine))
}

/// The service below takes whatever comes for its frames; gRPC asks that another kind of content be refused by its kind.
async fn only_grpc(request: Request, next: Next) -> Response {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.starts_with("application/grpc") {
        return next.run(request).await;
    }
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, "this port speaks gRPC to agents\n").into_response()
}
