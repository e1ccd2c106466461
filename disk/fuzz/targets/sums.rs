//! Files of checksums. Input: the name looked for, a zero byte, the file.
#![no_main]

use landfall_disk::fuzzing::digest_of;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (name, file) = data.split_at(data.iter().position(|byte| *byte == 0).unwrap_or(0));
    let file = file.strip_prefix(&[0]).unwrap_or(file);
    let Ok(name) = std::str::from_utf8(name) else { return };
    match digest_of(file, name) {
        Ok(digest) => {
            let text = file.to_ascii_lowercase();
            let hex = hex::encode(digest.as_bytes());
            assert!(text.windows(hex.len()).any(|window| window == hex.as_bytes()), "no digest is made up");
            // What else the file says of other files does not matter.
            let more =
                [file, b"\n# a comment\n", "0".repeat(64).as_bytes(), b"  another file of another name\n"].concat();
            if !"another file of another name".ends_with(name) {
                assert_eq!(digest_of(&more, name), Ok(digest));
            }
        }
        Err(reason) => assert!(reason.len() < 1000 + 2 * name.len(), "messages stay short"),
    }
});
