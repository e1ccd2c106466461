//! The operators' API as a client sees it: where the coordinator is, how to reach it, and its routes as functions.
//!
//! The operator's command and the lab use it; neither has another way to the coordinator.

mod connect;
mod console;
mod error;
mod ready;
mod routes;
mod scope;
mod server;
mod site;

pub use connect::{Endpoint, Identity, Trust};
pub use error::ClientError;
pub use routes::{Change, Client, Lines, document, sightings, workflow};
pub use scope::Scope;
pub use server::{Place, Server};
