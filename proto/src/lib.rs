//! `landfall.agent.v1`: the contract between agent and coordinator; and `landfall.worker.v1`: that between the agent and the
//! worker of the tools layer.
//!
//! The `.proto` files in this crate are the source of truth and carry the field documentation. This crate holds what is
//! generated from them, the conversions between it and the messages of `landfall-api`, and the constants that both sides must
//! agree on. Wire types stop at the edge: a program converts a message once, when it arrives or leaves.

pub mod codec;
pub mod convert;
pub mod delimited;
pub mod revision;

pub use convert::ConvertError;
pub use revision::{OLDEST_PROTOCOL, PROTOCOL};

/// Generated messages, client and server of `landfall.agent.v1`.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod v1 {
    tonic::include_proto!("landfall.agent.v1");
}

/// Generated messages of `landfall.worker.v1`.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod worker {
    tonic::include_proto!("landfall.worker.v1");
}

/// The fixed logical name in the coordinator's server certificate. Agents check this, never an IP address or a host
/// name, so that a coordinator can move without new certificates.
pub const SERVER_NAME: &str = "coordinator.landfall.internal";

/// The gRPC metadata key under which a refused call carries an encoded [`v1::Problem`].
pub const PROBLEM_METADATA: &str = "landfall-problem-bin";
