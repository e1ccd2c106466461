//! Messages: what the agent and the coordinator say to each other, as domain types.

mod event;

pub use event::{ActionResult, EventBody, EventKey, EventRecord};
