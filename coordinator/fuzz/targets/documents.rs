//! Documents as people write them, YAML and JSON, and configuration files: what is read and written is read as the same.
//!
//! Input: which of the three, then the text.
#![no_main]

use landfall_api::Document;
use landfall_coordinator::config::Config;
use libfuzzer_sys::fuzz_target;

/// A file is read into memory whole; its reasons must not be larger than itself by orders.
const MAX_REASONS: usize = 1 << 20;

fn same_again(document: Document) {
    // Reasons are for people; whether there are any must not hang on the way it came.
    let valid = document.validate().is_ok();
    let tree = serde_json::to_value(&document).expect("what was read can be written");
    let again = Document::from_value(tree).expect("what is written can be read");
    assert_eq!(again, document);
    assert_eq!(again.validate().is_ok(), valid);
}

fuzz_target!(|data: &[u8]| {
    let Some((which, rest)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    match which % 3 {
        0 => match Document::from_yaml_str("file.yaml", text) {
            Ok(sourced) => sourced.into_iter().for_each(|sourced| same_again(sourced.document)),
            Err(problems) => {
                let said: usize = problems.iter().map(|problem| problem.to_string().len()).sum();
                assert!(!problems.is_empty() && said < MAX_REASONS, "{said} bytes of reasons");
            }
        },
        1 => {
            let Ok(tree) = serde_json::from_str(text) else { return };
            if let Ok(document) = Document::from_value(tree) {
                same_again(document);
            }
        }
        _ => {
            if let Ok(config) = toml::from_str::<Config>(text) {
                // Whatever it says: an answer.
                let _verdict = config.validate();
            }
        }
    }
});
