//! `landfall.agent.v1`: the contract between agent and coordinator.
//!
//! The `.proto` file beside this crate is the source of truth and carries the field documentation; this crate contains
//! only the generated code and the constants that both sides share. Wire types stop at the edge: programs convert once
//! into `landfall-api`'s types.

/// Generated messages, client and server of `landfall.agent.v1`.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod v1 {
    tonic::include_proto!("landfall.agent.v1");
}

/// The protocol revision of the `.proto` file in this crate.
pub const PROTOCOL: u32 = 3;

/// The oldest revision that both sides still support. Fields are only added, so that is the first.
pub const OLDEST_PROTOCOL: u32 = 1;

/// The fixed logical name in the coordinator's server certificate. Agents check this, never an IP address or a host
/// name, so that a coordinator can move without new certificates.
pub const SERVER_NAME: &str = "coordinator.landfall.internal";

/// The gRPC metadata key under which a refused call carries an encoded [`v1::Problem`].
pub const PROBLEM_METADATA: &str = "landfall-problem-bin";
