//! URLs of images: what is read, written out and read again is the same; and the API refuses every form that a machine
//! would refuse.
#![no_main]

use landfall_api::ImageUrl;
use landfall_disk::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Some(written) = fuzzing::reference(text) {
        assert_eq!(fuzzing::reference(&written).as_deref(), Some(written.as_str()));
    }
    if let Some(Some(name)) = fuzzing::locator(text) {
        assert!(!name.is_empty());
    }
    if let Ok(ImageUrl::File(path)) = ImageUrl::parse(text) {
        assert!(path.starts_with('/'));
    }
});
