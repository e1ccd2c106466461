//! Content is decoded as the format that it looks like, and what is no disk image is recognised by its first bytes alone.
#![no_main]

use landfall_disk::Format;
use landfall_disk::fuzzing::{How, decode, plan, recognise, sniff};
use landfall_disk_fuzz::Disk;
use libfuzzer_sys::fuzz_target;

const MOST: u64 = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let format = sniff(data);
    // Whatever it looks like, an image has a table or the word that it needs none.
    let disk = Disk::new(64 << 20, 512);
    let [table, none] = [false, true].map(|no_table| plan(data, &disk, 512, no_table, &[]).is_some());
    assert!(!table || (!none && data.get(510..512) == Some(&[0x55, 0xaa])));
    assert!(!none || data.get(..4) != Some(b"PK\x03\x04"), "{:?}", recognise(data));
    let how = How { step: 5000, ordered: false, threads: 2, most: MOST };
    let decoded = decode(format, data, how);
    if format == Format::Raw {
        assert_eq!(decoded.expect("anything is raw").bytes(MOST).as_deref(), Some(data));
    }
});
