//! `modules.dep`, `modules.alias`, `modules.softdep` for exactly the modules that are packed, in kmod's formats; and the aliases of those
//! that are not.

use std::{collections::BTreeSet, fmt::Write};

use super::{Stored, module::Module, profile::Profile, resolve::load_order, tree::KernelTree};

/// The index files' contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// `path: dependencies`, all of them (not only the direct ones), to be loaded from right to left.
    pub dep: String,
    /// `alias <pattern> <module>`.
    pub alias: String,
    /// `softdep <module> pre: … post: …`.
    pub softdep: String,
}

/// The buses whose devices are among a machine's facts.
const LISTED: [&str; 3] = ["pci:", "usb:", "virtio:"];

/// Makes the index of `modules` (canonical names), whose files are stored so.
pub fn generate(tree: &KernelTree, modules: &BTreeSet<String>, stored: Stored) -> Index {
    let suffix = stored.suffix();
    let mut packed: Vec<_> = modules.iter().filter_map(|name| tree.modules.get(name)).collect();
    packed.sort_by(|a, b| a.path.cmp(&b.path));
    let mut index = Index { dep: String::new(), alias: String::new(), softdep: String::new() };
    for module in packed {
        index.dep.extend([&module.path, suffix, ":"]);
        for dependency in load_order(tree, &module.name).iter().rev() {
            index.dep.extend([" ", &tree.modules[dependency].path, suffix]);
        }
        index.dep.push('\n');
        aliases(&mut index.alias, module, |_| true);
        let soft = &module.info.softdep;
        for (word, names) in [("pre:", &soft.pre), ("post:", &soft.post)] {
            if !names.is_empty() {
                // Writing to a String cannot fail.
                let _ = writeln!(index.softdep, "softdep {} {word} {}", module.name, names.join(" "));
            }
        }
    }
    index
}

/// The lines of `modules.alias` for the modules of profile `server` that are not among `modules`, as far as they fit devices that are
/// among a machine's facts.
pub fn missing(tree: &KernelTree, modules: &BTreeSet<String>) -> String {
    let mut text = String::new();
    for module in Profile::Server.modules(tree).difference(modules).filter_map(|name| tree.modules.get(name)) {
        aliases(&mut text, module, |alias| LISTED.iter().any(|bus| alias.starts_with(bus)));
    }
    text
}

fn aliases(text: &mut String, module: &Module, wanted: impl Fn(&str) -> bool) {
    for alias in module.info.aliases.iter().filter(|alias| wanted(alias)) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "alias {alias} {}", module.name);
    }
}

#[cfg(test)]
mod tests {
    use super::super::resolve::resolve;
    use super::super::testing::FakeTree;
    use super::*;

    #[test]
    fn the_index_names_exactly_what_is_packed() {
        let fake = FakeTree::new("6.1")
            .module("kernel/c.ko", "name=c\0depends=b\0alias=pci:v*\0softdep=pre: crypto-x post: z\0")
            .module("kernel/b.ko", "name=b\0depends=a\0")
            .module("kernel/a.ko", "name=a\0")
            .module("kernel/x.ko", "name=x-y\0alias=crypto-x\0")
            .module("kernel/other.ko", "name=other\0alias=pci:other\0")
            .module("kernel/drivers/scsi/near.ko", "name=near\0alias=pci:near\0alias=scsi:t-0x0*\0");
        let tree = KernelTree::open(fake.path(), None).unwrap();
        let modules = resolve(&tree, &["c"]).unwrap().modules;
        let index = generate(&tree, &modules, Stored::Plain);
        assert_eq!(
            index.dep,
            "kernel/a.ko:\nkernel/b.ko: kernel/a.ko\nkernel/c.ko: kernel/b.ko kernel/a.ko\nkernel/x.ko:\n"
        );
        assert_eq!(index.alias, "alias pci:v* c\nalias crypto-x x_y\n");
        assert_eq!(index.softdep, "softdep c pre: crypto-x\nsoftdep c post: z\n");
        assert_eq!(missing(&tree, &modules), "alias pci:near near\n");
        let compressed = generate(&tree, &modules, Stored::Zstd);
        assert_eq!(compressed.dep, index.dep.replace(".ko", ".ko.zst"));
    }
}
