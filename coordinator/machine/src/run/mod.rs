//! A workflow as pure logic: events in, state and effects out.

pub mod conditions;
mod control;
mod ending;
mod frontier;
pub mod policy;
mod retry;
mod state;
#[cfg(test)]
mod tests;

pub use frontier::{Start, frontier};
pub use retry::retry_of;
pub use state::{Context, Effect, Event, MAX_INTERRUPTIONS, step};
