//! The agents' gRPC service over the engine, and the installed systems' phone-home.

mod convert;
mod phone_home;
mod service;
mod status;
mod stream;

use axum::Router;
use landfall_proto::v1::agent_service_server::AgentServiceServer;

use crate::engine::Engine;

/// What agents and installed systems ask for on the TLS port. The listener must put a [`Peer`](crate::tls::Peer) and the
/// remote `SocketAddr` into every request's extensions.
pub fn router(engine: Engine) -> Router {
    let agents = AgentServiceServer::new(service::AgentApi::new(engine.clone()));
    Router::new().route_service("/landfall.agent.v1.AgentService/{*method}", agents).merge(phone_home::router(engine))
}
