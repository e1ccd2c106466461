//! What the coordinator's ports share: [`gate`] gives out places for connections and limits rates, [`names`] looks hosts up, [`metrics`]
//! counts, [`text`] cuts what is logged. Boot services, the store and the coordinator use it.

pub mod gate;
pub mod metrics;
pub mod names;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
