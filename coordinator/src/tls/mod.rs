//! The one TLS port: agents, operators and phone-home, told apart by certificate.
//!
//! [`server_config`] says what the port speaks, [`TlsListener`] accepts, and [`service`] puts the [`Peer`] and the remote
//! `SocketAddr` into every request's extensions, so that each route, gRPC ones included, can check whom it talks to.

mod config;
mod listener;
mod peer;

pub use config::server_config;
pub use listener::{ConnectionInfo, TlsListener, service};
pub use peer::{MachineCert, Peer};
