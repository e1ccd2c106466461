//! An installed system's os-release.
#![no_main]

use landfall_agent_fuzz::{parts, pretty_name};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [text] = parts(data);
    let name = pretty_name(&text);
    assert!(!name.contains('\n') && text.contains(&name), "no name is made up: {name:?}");
});
