//! Messages: what the agent and the coordinator say to each other, as domain types.

mod event;
mod hello;

pub use event::{ActionResult, EventBody, EventKey, EventRecord};
pub use hello::{Hello, Identity, RunningAction};
