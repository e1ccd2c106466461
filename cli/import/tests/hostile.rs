//! Examples with random damage: whatever the text, the import ends with documents or with a problem that names a place.

use std::{fs, path::PathBuf};

use landfall_import::{CsvFile, File};

/// Damaged copies of each example.
const COPIES: u32 = 150;
/// What is put into a text; YAML, CSV, Go's templates and our own expressions have a meaning for these.
const PIECES: [&str; 26] = [
    "{{", "}}", "{{ index .Hardware.Disks 99999999999999999999 }}", "{%", ":", "- ", "\n", "  ", "[", "]", "{", "}",
    "|", "&a ", "*a", "null", "-1", "18446744073709551615", "\u{e000}0\u{e001}", "ö", "\"", "'", "/dev/", "$X", ",",
    ";",
];

/// A generator of a fixed sequence (Steele and Vigna's splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % most.max(1) as u64).unwrap()
    }

    fn damaged(&mut self, text: &str) -> String {
        let mut chars: Vec<char> = text.chars().collect();
        for _ in 0..=self.below(4) {
            let at = self.below(chars.len() + 1);
            let end = (at + self.below(12)).min(chars.len());
            match self.below(4) {
                0 => drop(chars.drain(at..end)),
                1 => drop(chars.splice(at..at, PIECES[self.below(PIECES.len())].chars())),
                2 => {
                    // A line goes elsewhere.
                    let piece: Vec<char> = chars.drain(at..end).collect();
                    let to = self.below(chars.len() + 1);
                    chars.splice(to..to, piece);
                }
                _ => {
                    // A value of another type.
                    let Some(colon) = chars.iter().skip(at).position(|c| *c == ':').map(|found| at + found) else {
                        continue;
                    };
                    let end =
                        chars.iter().skip(colon).position(|c| *c == '\n').map_or(chars.len(), |found| colon + found);
                    let piece = ["[]", "{}", "7", "~", "x", "[[1], {a: b}]"][self.below(6)];
                    chars.splice(colon..end, format!(": {piece}").chars());
                }
            }
        }
        chars.into_iter().collect()
    }
}

#[test]
fn no_damaged_example_makes_the_import_panic() {
    let mut random = Random(11);
    let (mut taken, mut refused) = (0, 0);
    for kind in ["tinkerbell", "curtin", "bmc"] {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples").join(kind);
        let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            let text = fs::read_to_string(&path).unwrap();
            for _ in 0..COPIES {
                let text = random.damaged(&text);
                let file = File { name: "f.yaml", text: &text };
                let result = match kind {
                    "curtin" => landfall_import::curtin(&file),
                    "bmc" => {
                        landfall_import::bmc(&[CsvFile { name: file.name, content: text.as_bytes() }], Some("bmc"))
                    }
                    _ => landfall_import::tinkerbell(&[file]),
                };
                match result {
                    Ok(import) => {
                        let lines = text.lines().count() as u64;
                        let outside = import.findings.iter().find(|f| f.line == 0 || f.line > lines + 1);
                        assert_eq!(outside, None, "{text}");
                        taken += 1;
                    }
                    Err(problems) => {
                        assert!(problems.iter().all(|p| p.subject.starts_with("f.yaml")), "{problems:?}\n{text}");
                        refused += 1;
                    }
                }
            }
        }
    }
    // Both happen often enough to mean something.
    assert!(taken > 300 && refused > 300, "{taken} were taken, {refused} refused");
}
