//! The seek table at the end of a packed image.
#![no_main]

use landfall_disk::{SeekTable, SeekTableError};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    match SeekTable::parse(data) {
        Ok(table) => {
            let bytes = table.to_bytes().expect("what was read can be written");
            assert_eq!(SeekTable::parse(&bytes).expect("what is written can be read"), table);
            // But for the two bits of the descriptor that mean nothing, and a table without frames.
            let mut same = data[data.len() - bytes.len()..].to_vec();
            same[bytes.len() - 5] &= !3;
            assert!(table.frames.is_empty() || same == bytes, "and it is the same");
        }
        Err(SeekTableError::Short { needed }) => assert!(needed > data.len() as u64),
        Err(_) => {}
    }
});
