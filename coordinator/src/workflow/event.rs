//! Events live in `landfall_api::message`: the agent, the store and the machine share them.

pub use landfall_api::message::{ActionResult, EventBody, EventKey, EventRecord};
