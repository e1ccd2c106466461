//! The one TLS port: agents, operators and phone-home, distinguished by certificate.
//!
//! [`server_config`] says what the port speaks; [`TlsListener`] lets in, bounds, serves, and puts the [`Peer`] and the remote
//! `SocketAddr` into every request's extensions, so that each route, gRPC ones included, can check whom it talks to.

mod arriving;
mod config;
pub mod listener;
mod peer;
pub mod serve;

pub use config::server_config;
pub use listener::TlsListener;
pub use peer::{ConnectionInfo, MachineCert, OperatorCert, Peer};
