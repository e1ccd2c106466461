//! A workflow as pure logic: events in, state and effects out.

pub mod conditions;
mod control;
mod ending;
mod frontier;
pub mod policy;
mod receipts;
mod restarts;
mod results;
mod retry;
mod state;
#[cfg(test)]
mod tests;

pub use frontier::frontier;
pub use landfall_api::message::Start;
pub use receipts::{has_begun_to_write, hint_at_phone_home, open_at_phone_home};
pub use restarts::MAX_INTERRUPTIONS;
pub use retry::{retry_of, still_phones_home};
pub use state::{Context, Effect, Event, step};
