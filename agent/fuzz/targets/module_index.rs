//! `modules.dep`, `modules.alias` and `modules.softdep`. Input: these and a device's modalias, each ended by a zero byte.
#![no_main]

use std::collections::BTreeSet;

use landfall_agent_fuzz::{modules_for, parts};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [dep, alias, softdep, device] = parts(data);
    for order in modules_for(&dep, &alias, &softdep, &device) {
        assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), order.len(), "each module is loaded once: {order:?}");
    }
});
