//! The kernel's notices of devices.
#![no_main]

use landfall_agent_fuzz::announced;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(alias) = announced(data) {
        assert!(data.starts_with(b"add@") && !alias.contains('\0'));
        assert!(String::from_utf8_lossy(data).contains(&alias), "no device is made up: {alias:?}");
    }
});
