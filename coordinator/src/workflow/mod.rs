//! A run as pure logic: events in, state and effects out; and templates rendered into the list of actions it runs.

mod event;
pub mod policy;
mod render;
mod seed;
mod state;
#[cfg(test)]
mod state_tests;

pub use event::{ActionResult, EventBody, EventKey, EventRecord};
pub use render::render;
pub use seed::{SeedFiles, seed_files};
pub use state::{Context, Effect, Event, MAX_INTERRUPTIONS, step};
