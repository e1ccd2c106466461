//! Content is decoded as the format that it looks like.
#![no_main]

use landfall_disk::{
    Format,
    fuzzing::{How, decode, sniff},
};
use libfuzzer_sys::fuzz_target;

const MOST: u64 = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let Ok(format) = sniff(data) else { return };
    let how = How { step: 5000, ordered: false, threads: 2, most: MOST };
    let decoded = decode(format, data, how);
    if format == Format::Raw {
        assert_eq!(decoded.expect("anything is raw").bytes(MOST).as_deref(), Some(data));
    }
});
