//! Files of both kinds: those that `qemu-img` makes, against what it reads from them, and those of VMware, made by hand, of
//! which `qemu-img` must read the same as we do.

mod images;
mod refusals;

// The integration tests make the same files.
#[path = "../../../../tests/all/common/vmdk.rs"]
mod made;

use std::{path::PathBuf, process::Command};

use super::super::DecodeError;
use super::super::testing::{check_format, content, decode_all};
use crate::Format;

const MIB: usize = 1 << 20;

fn decode(file: &[u8]) -> Result<Vec<u8>, DecodeError> {
    decode_all(Format::Vmdk, file, 70_001)
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

    fn run(&self, words: &str) {
        let mut command = Command::new("qemu-img");
        command.args(words.split_whitespace()).current_dir(self.0.path());
        let output = command.output().unwrap_or_else(|e| panic!("qemu-img of the package qemu-utils is needed: {e}"));
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// As `qemu-img` stores it.
    fn convert(&self, raw: &[u8]) -> Vec<u8> {
        std::fs::write(self.path("raw"), raw).unwrap();
        self.run("convert -f raw -O vmdk -o subformat=streamOptimized raw image.vmdk");
        std::fs::read(self.path("image.vmdk")).unwrap()
    }

    /// What `qemu-img` reads from it.
    fn reference(&self, file: &[u8]) -> Vec<u8> {
        std::fs::write(self.path("image.vmdk"), file).unwrap();
        self.run("convert -f vmdk -O raw image.vmdk back");
        std::fs::read(self.path("back")).unwrap()
    }
}

fn disk(length: usize) -> Vec<u8> {
    content(length, 4)
}
