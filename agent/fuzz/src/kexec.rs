//! What the agent reads of an installed system to find its kernel and command line.

#[path = "../../src/kexec/cmdline.rs"]
mod cmdline;
#[path = "../../src/kexec/entries.rs"]
mod entries;
#[path = "../../src/kexec/grub.rs"]
mod grub;
#[path = "../../src/kexec/version.rs"]
mod version;
#[path = "../../src/kexec/words.rs"]
mod words;

mod kernel {
    include!(concat!(env!("OUT_DIR"), "/file_name.rs"));
}

use std::cmp::Ordering;

use crate::rootfs::{FileSystem, Tree};

const UUID: &str = "0a-1b";

/// A kernel that GRUB would start, and its words.
pub type Line = (String, Vec<String>);

/// The kernels of a `grub.cfg`, with the environment block beside it.
pub fn grub_lines(block: &str, config: &str) -> Vec<Line> {
    let lines = grub::linux_lines(config, &grub::environment(block), UUID);
    let texts = |line: grub::Linux| line.words.into_iter().map(|word| word.text).collect();
    lines.into_iter().map(|line| (line.kernel.clone(), texts(line))).collect()
}

/// The kernels of these loader entries (name and text), newest first, and the command line that the first is started
/// with.
pub fn entries(block: &str, files: &[(&str, &str)]) -> (Vec<String>, String) {
    let mut tree = Tree::default();
    tree.put("/boot/grub2/grubenv", block);
    for (name, text) in files {
        tree.put(&format!("/boot/loader/entries/{name}"), text);
    }
    let found = entries::read(&tree, &cmdline::grub_environment(&tree), &mut Vec::new());
    (found.iter().flat_map(|entry| entry.kernel.clone()).collect(), discovered(&tree, "/boot/vmlinuz", &found))
}

/// The command line of the kernel at `path` where only `grub.cfg` says something.
pub fn of_grub(block: &str, config: &str, path: &str) -> String {
    let mut tree = Tree::default();
    tree.put("/boot/grub/grubenv", block);
    tree.put("/boot/grub/grub.cfg", config);
    discovered(&tree, path, &[])
}

fn discovered(tree: &Tree, path: &str, found: &[entries::Entry]) -> String {
    let system = FileSystem { uuid: UUID.to_owned() };
    let root = cmdline::Root { file_system: &system, boot: &system, option: None };
    cmdline::discover(tree, path, found, &root).text
}

/// A command line without what may be a secret.
pub fn redacted(line: &str) -> String {
    cmdline::redacted(line)
}

/// The order of two kernel versions.
pub fn compare(a: &str, b: &str) -> Ordering {
    version::compare(a, b)
}
