//! The kernel's notices of devices.
#![no_main]

use landfall_agent_fuzz::announced;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (alias, of_disks) = announced(data);
    let text = String::from_utf8_lossy(data);
    if let Some(alias) = alias {
        assert!(data.starts_with(b"add") && !alias.contains('\0'));
        assert!(text.contains(&alias), "no device is made up: {alias:?}");
    }
    assert!(!of_disks || text.contains("SUBSYSTEM="), "a notice about disks names its subsystem");
});
