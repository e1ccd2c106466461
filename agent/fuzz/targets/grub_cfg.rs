//! The configuration of an installed system's GRUB. Input: its environment block, a zero byte, `grub.cfg`.
#![no_main]

use landfall_agent_fuzz::{grub_lines, of_grub, parts};
use libfuzzer_sys::fuzz_target;

/// What variables may add to a line, and how many lines are read.
const LINE: usize = 4 << 10;
const LINES: usize = 256;

fuzz_target!(|data: &[u8]| {
    let [block, config] = parts(data);
    let lines = grub_lines(&block, &config);
    assert!(lines.len() <= LINES, "{} lines", lines.len());
    for (_, words) in &lines {
        let length: usize = words.iter().map(String::len).sum();
        assert!(length <= config.len() + LINE, "variables made {length} bytes of {}", config.len());
    }
    // What a person reads and the kernel takes is one line, whatever the file holds.
    let kernel = lines.first().map_or("/boot/vmlinuz", |(kernel, _)| kernel);
    let line = of_grub(&block, &config, kernel);
    assert!(!line.contains('\n'), "{line:?}");
});
