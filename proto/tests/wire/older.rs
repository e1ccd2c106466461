//! What an older agent sends, and an older coordinator stored (`tests/golden/older/`). Nothing writes these any more, and no run
//! under `LANDFALL_BLESS` does.

use landfall_api::message::{ActionResult, EventBody, EventRecord, ToCoordinator, WipeResult};
use landfall_golden as golden;
use landfall_proto::v1;
use prost::Message;

use crate::{attempt, disk, moment};

#[test]
fn an_older_agents_result_of_cleardisks_is_one_of_wipe() {
    let wiped = EventBody::Finished { result: ActionResult::Wipe(WipeResult { disks: vec![disk()] }) };
    let event = EventRecord::of(attempt(), 11, moment(), wiped);
    let wire = golden::bytes("older/wire/agent/event-finished-clear-disks.hex");
    let sent = v1::SessionRequest::decode(&wire[..]).unwrap();
    assert_eq!(ToCoordinator::try_from(sent).unwrap(), ToCoordinator::Event(event.clone()));
    let stored = golden::text("older/events/finished-clear-disks.json");
    assert_eq!(serde_json::from_str::<EventRecord>(&stored).unwrap(), event);
}
