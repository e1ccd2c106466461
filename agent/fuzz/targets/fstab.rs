//! An installed system's fstab.
#![no_main]

use landfall_agent_fuzz::{mounts, parts};
use libfuzzer_sys::fuzz_target;

/// A field as fstab(5) writes it.
fn field(text: &str) -> String {
    let written = |c: char| match u8::try_from(c) {
        Ok(byte @ (b'\\' | b'#' | 0x0b)) => format!("\\{byte:03o}"),
        Ok(byte) if byte.is_ascii_whitespace() => format!("\\{byte:03o}"),
        _ => c.to_string(),
    };
    text.chars().map(written).collect()
}

fuzz_target!(|data: &[u8]| {
    let [text] = parts(data);
    let found = mounts(&text);
    for (n, (point, source)) in found.iter().enumerate() {
        let leaves = point.split('/').any(|part| matches!(part, "." | ".."));
        assert!(point.starts_with('/') && !leaves && !source.is_empty(), "{source} at {point}");
        assert!(found[..n].iter().all(|(other, _)| other != point), "two mounts at {point}");
    }
    // What was understood, written again, is understood as the same.
    let lines: String = found.iter().map(|(point, source)| format!("{} {}\n", field(source), field(point))).collect();
    assert_eq!(mounts(&lines), found, "{lines}");
});
