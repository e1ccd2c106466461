//! What the coordinator's ports share: [`gate`] gives out places for connections and limits rates, [`metrics`] counts, [`text`]
//! cuts what is logged. Boot services, the store and the coordinator use it.

pub mod gate;
pub mod metrics;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
