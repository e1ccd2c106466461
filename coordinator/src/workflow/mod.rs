//! A run as pure logic: events in, state and effects out; and templates rendered into the list of actions it runs.

pub mod conditions;
mod control;
mod ending;
mod event;
mod frontier;
pub mod policy;
mod render;
mod retry;
mod secret_ref;
mod seed;
mod state;
#[cfg(test)]
mod tests;

pub use event::{ActionResult, EventBody, EventKey, EventRecord};
pub use frontier::{Start, frontier};
pub use render::{MAX_RENDERED, Plan, render};
pub use retry::retry_of;
pub use secret_ref::{SecretRef, references, resolve};
pub use seed::{SeedFiles, seed_files};
pub use state::{Context, Effect, Event, MAX_INTERRUPTIONS, step};
