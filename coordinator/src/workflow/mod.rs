//! A run as pure logic: events in, state and effects out; and templates rendered into the list of actions it runs.

mod event;

pub use event::{ActionResult, EventBody, EventKey, EventRecord};
