//! bmap-tools' block maps. Input: whether its own checksum is mended, the XML.
#![no_main]

use landfall_disk::{Index, StoredAs};
use landfall_disk_fuzz::{Input, check_index};
use libfuzzer_sys::fuzz_target;
use sha2::{Digest as _, Sha256};

/// The digest of the file in which that very field is all zeros.
fn mend(file: &mut [u8]) {
    const FIELD: &[u8] = b"<BmapFileChecksum>";
    let Some(at) = file.windows(FIELD.len()).position(|window| window == FIELD) else { return };
    let start = at + FIELD.len();
    let start = start + file[start..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let Some(field) = file.get_mut(start..start + 64) else { return };
    field.fill(b'0');
    let sum = hex::encode(Sha256::digest(&*file));
    file[start..start + 64].copy_from_slice(sum.as_bytes());
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let mended = input.u8() & 1 == 1;
    let mut file = input.0.to_vec();
    if mended {
        mend(&mut file);
    }
    let Ok(index) = Index::parse(&file) else { return };
    check_index(&index);
    if index.format == StoredAs::Linear {
        assert!(index.to_json().is_err(), "only packed images have a manifest");
    }
});
