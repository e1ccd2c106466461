//! The seek table at the end of a packed image.
#![no_main]

use landfall_disk::{SeekTable, SeekTableError};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    match SeekTable::parse(data) {
        Ok(table) => {
            let bytes = table.to_bytes().expect("what was read can be written");
            assert_eq!(SeekTable::parse(&bytes).expect("what is written can be read"), table);
            assert!(table.frames.is_empty() || data.ends_with(&bytes), "and it is the same");
        }
        Err(SeekTableError::Short { needed }) => assert!(needed > data.len() as u64),
        Err(_) => {}
    }
});
