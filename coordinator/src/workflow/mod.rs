//! A run as pure logic: events in, state and effects out; and templates rendered into the list of actions it runs.

mod check;
mod event;
mod render;
mod seed;

pub use check::{MAX_ACTIONS, MAX_ATTEMPTS, check_actions};
pub use event::{ActionResult, EventBody, EventKey, EventRecord};
pub use render::render;
pub use seed::{SeedFiles, seed_files};
