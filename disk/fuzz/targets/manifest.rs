//! The manifest of a packed image: it keeps its promises, and what is written is read back as the same.
#![no_main]

use landfall_disk::{Index, StoredAs};
use landfall_disk_fuzz::check_index;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(index) = Index::parse(data) else { return };
    check_index(&index);
    if index.format == StoredAs::Zstd {
        let text = index.to_json().expect("what was read can be written");
        assert_eq!(Index::parse(text.as_bytes()).expect("what is written can be read"), index);
    }
});
