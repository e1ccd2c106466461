//! Images made by QEMU's own tools, against what those tools read from them. `qemu-img` and `qemu-io` must be there.

mod cuts;
mod fuzzed;
mod images;
mod pieces;
mod refusals;

use std::{path::PathBuf, process::Command, sync::atomic::AtomicBool};

use super::Plan;
use crate::decode::testing::{Pieces, collect, content};
use crate::decode::{DecodeError, Limits};
use crate::fuzzing::Memory;

const UNORDERED: Limits = Limits { ordered: false, threads: 2, window: super::super::WINDOW_MAX };
const ORDERED: Limits = Limits { ordered: true, threads: 2, window: super::super::WINDOW_MAX };

/// A file in memory that says how long it is.
fn memory(bytes: &[u8]) -> Memory<'_> {
    Memory { bytes, range: 0..u64::MAX, step: 10_000, total: Some(bytes.len() as u64) }
}

fn plan(file: &[u8]) -> Result<Plan, DecodeError> {
    Plan::read(&mut memory(file), None, &AtomicBool::new(false))
}

fn decode(file: &[u8], limits: Limits, step: usize) -> Result<Vec<u8>, DecodeError> {
    let plan = plan(file)?;
    collect(|sink| plan.decode(&mut Pieces { bytes: file, step }, sink, limits))
}

fn reason(error: DecodeError) -> String {
    match error {
        DecodeError::Bad(reason) | DecodeError::Unfinished(reason) => reason,
        other => panic!("{other:?}"),
    }
}

/// A directory to make images in.
struct Lab(tempfile::TempDir);

impl Lab {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a tool of QEMU here. The arguments are words.
    fn run(&self, tool: &str, words: &str) {
        self.run_with(tool, words, &[]);
    }

    fn run_with(&self, tool: &str, words: &str, more: &[&str]) {
        let mut command = Command::new(tool);
        command.args(words.split_whitespace()).args(more).current_dir(self.0.path());
        let output = command.output().unwrap_or_else(|e| panic!("{tool} of the package qemu-utils is needed: {e}"));
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Each command on the image in a process of its own, so that QEMU settles everything between them.
    fn io(&self, name: &str, commands: &[&str]) {
        for command in commands {
            self.run_with("qemu-io", &format!("-f qcow2 {name} -c"), &[command]);
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// `raw` as a qcow2 made with these words of `qemu-img convert`.
    fn convert(&self, raw: &[u8], words: &str) -> Vec<u8> {
        self.write("raw", raw);
        self.run("qemu-img", &format!("convert -f raw -O qcow2 {words} raw image"));
        self.read("image")
    }

    /// What QEMU reads from it.
    fn reference(&self, name: &str) -> Vec<u8> {
        self.run("qemu-img", &format!("convert -f qcow2 -O raw {name} {name}.raw"));
        self.read(&format!("{name}.raw"))
    }
}

fn disk(length: usize) -> Vec<u8> {
    content(length, 3)
}
