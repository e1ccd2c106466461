//! What an answer's head says: Content-Range, Retry-After, Content-Type, Content-Encoding, WWW-Authenticate.
#![no_main]

use landfall_disk::fuzzing::{Answer, answer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(Answer { range, encoding, challenge, .. }) = answer(data) else { return };
    if let Some((first, end, total)) = range {
        assert!(first < end && total.is_none_or(|total| end <= total));
        let total = total.map_or("*".to_owned(), |total| total.to_string());
        let written = format!("bytes {first}-{}/{total}", end - 1);
        assert_eq!(answer(written.as_bytes()).and_then(|again| again.range), range);
    }
    assert!(encoding.is_none_or(|name| !name.is_empty() && name != "identity"));
    assert!(challenge.is_none_or(|(realm, ..)| !realm.is_empty()));
});
