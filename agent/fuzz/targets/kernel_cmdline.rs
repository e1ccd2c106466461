//! Kernel command lines: the agent's own, and an installed system's without its secrets. Input: the line.
#![no_main]

use landfall_agent_fuzz::{own_command_line, parts, redacted};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [line] = parts(data);
    let (coordinators, complaints) = own_command_line(&line);
    assert!(coordinators.iter().all(|url| url.starts_with("https://")));
    assert!(complaints.iter().all(|complaint| !complaint.is_empty()));
    if line.contains("s3cret") {
        return;
    }
    own_command_line(&format!("{line} landfall.token=s3cret"));
    // A quote that is open takes what follows into its own word.
    if !line.contains('"') {
        let shown = redacted(&line);
        assert_eq!(redacted(&shown), shown, "what is shown holds no more secrets");
        assert!(!redacted(&format!("{line} rd.password=s3cret")).contains("s3cret"));
    }
});
