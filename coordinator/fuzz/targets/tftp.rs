//! TFTP packets, and the acknowledgement of their options.
#![no_main]

use landfall_coordinator::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(read) = fuzzing::tftp_request(data, 300_000) else { return };
    assert!(!read.path.is_empty() && read.path.len() < data.len());
    assert!((8..=1468).contains(&read.block), "a block of {} bytes", read.block);
    assert!(read.timeout.is_none_or(|seconds| (1..=5).contains(&seconds)));
    if let Some(ack) = read.option_ack {
        assert!(ack.starts_with(&[0, 6]) && ack.ends_with(&[0]) && ack.len() < 64, "{ack:?}");
        // No option is acknowledged that was not asked for.
        let asked = String::from_utf8_lossy(data).to_ascii_lowercase();
        for name in String::from_utf8_lossy(&ack[2..]).split('\0').step_by(2).filter(|name| !name.is_empty()) {
            assert!(asked.contains(name), "{name}");
        }
    }
});
