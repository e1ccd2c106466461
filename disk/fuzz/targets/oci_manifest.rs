//! Manifests of registries. Input: the layer wanted, a zero byte, the manifest.
#![no_main]

use landfall_disk::fuzzing::{choose_layer, only_of_list};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (wanted, manifest) = data.split_at(data.iter().position(|byte| *byte == 0).unwrap_or(0));
    let manifest = manifest.strip_prefix(&[0]).unwrap_or(manifest);
    let Ok(wanted) = std::str::from_utf8(wanted) else { return };
    let stated = |hex: String| {
        let text = manifest.to_ascii_lowercase();
        // An escaped digit would also count.
        text.contains(&b'\\') || text.windows(hex.len()).any(|window| window == hex.as_bytes())
    };
    for wanted in [None, Some(wanted)] {
        if let Ok((digest, _)) = choose_layer(manifest, wanted) {
            assert!(stated(hex::encode(digest.as_bytes())), "no digest is made up");
        }
    }
    if let Ok(Some(digest)) = only_of_list(manifest) {
        assert!(stated(hex::encode(digest.as_bytes())), "no digest is made up");
    }
});
