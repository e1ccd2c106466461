//! From the requested modules to the modules that must be packed.

use std::collections::{BTreeMap, BTreeSet};

use landfall_api::edit_distance;

use super::{modinfo::canonical, tree::KernelTree};

/// The wanted modules cannot be packed.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// No module and no built-in of that name.
    #[error("kernel {version} has no module \"{name}\"{}", near_list(.near))]
    Unknown { name: String, version: String, near: Vec<String> },
    /// The package is incomplete.
    #[error("module \"{module}\" needs \"{dependency}\", which kernel {version} does not have; the tree is incomplete")]
    Broken { module: String, dependency: String, version: String },
}

fn near_list(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; near names: {}", names.join(", ")) }
}

/// What is to be packed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Canonical names of modules, closed under dependencies and softdeps.
    pub modules: BTreeSet<String>,
    /// Wanted names that the kernel has compiled in.
    pub builtin: BTreeSet<String>,
}

/// Closes `wanted` under dependencies (which must exist) and softdeps (which may be missing or be aliases).
///
/// # Errors
/// An unknown name, with near ones; a dependency that the tree lacks.
pub fn resolve<S: AsRef<str>>(tree: &KernelTree, wanted: &[S]) -> Result<Selection, ResolveError> {
    let mut selection = Selection::default();
    let mut pending = Vec::new();
    for name in wanted {
        let name = canonical(name.as_ref());
        if tree.modules.contains_key(&name) {
            pending.push(name);
        } else if tree.is_builtin(&name) {
            selection.builtin.insert(name);
        } else {
            return Err(ResolveError::Unknown { near: near_names(tree, &name), name, version: tree.version.clone() });
        }
    }
    while let Some(name) = pending.pop() {
        let Some(module) = tree.modules.get(&name) else { continue };
        if !selection.modules.insert(name.clone()) {
            continue;
        }
        for dependency in &module.info.depends {
            if tree.modules.contains_key(dependency) {
                pending.push(dependency.clone());
            } else if !tree.is_builtin(dependency) {
                return Err(ResolveError::Broken {
                    module: name,
                    dependency: dependency.clone(),
                    version: tree.version.clone(),
                });
            }
        }
        for soft in module.info.softdep.pre.iter().chain(&module.info.softdep.post) {
            pending.extend(soft_matches(tree, soft));
        }
    }
    Ok(selection)
}

/// Modules a softdep names, directly or by alias. Drivers of crypto accelerators are left out: they answer to the same
/// aliases as the software ones, need hardware few machines have, and the software ones do the work.
pub fn soft_matches(tree: &KernelTree, name: &str) -> Vec<String> {
    let plain = canonical(name);
    if tree.modules.contains_key(&plain) {
        return vec![plain];
    }
    let accelerator = |module: &&String| tree.modules[*module].path.starts_with("kernel/drivers/crypto/");
    tree.with_alias(name).iter().filter(|module| !accelerator(module)).cloned().collect()
}

/// All modules that `name` needs, each before the modules that need it (so they load in this order), without `name`
/// itself.
pub fn load_order(tree: &KernelTree, name: &str) -> Vec<String> {
    fn visit(tree: &KernelTree, name: &str, seen: &mut BTreeSet<String>, order: &mut Vec<String>) {
        for dependency in tree.modules.get(name).iter().flat_map(|module| &module.info.depends) {
            if tree.modules.contains_key(dependency) && seen.insert(dependency.clone()) {
                visit(tree, dependency, seen, order);
                order.push(dependency.clone());
            }
        }
    }
    let mut order = Vec::new();
    visit(tree, name, &mut BTreeSet::from([name.to_owned()]), &mut order);
    order
}

fn near_names(tree: &KernelTree, name: &str) -> Vec<String> {
    const SHOWN: usize = 5;
    let limit = (name.len() / 3).max(1);
    let mut scored = BTreeMap::new();
    for known in tree.modules.keys().chain(&tree.builtin) {
        let contains = name.len() >= 3 && (known.contains(name) || (known.len() >= 4 && name.contains(known.as_str())));
        let distance = edit_distance(name, known);
        if contains || distance <= limit {
            scored.insert((distance, known.clone()), ());
        }
    }
    scored.into_keys().take(SHOWN).map(|(_, known)| known).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::testing::FakeTree, *};

    fn tree() -> (FakeTree, KernelTree) {
        let fake = FakeTree::new("6.1")
            .module("kernel/fs/ext4.ko", "name=ext4\0depends=jbd2,mbcache\0softdep=pre: crypto-crc32c\0")
            .module("kernel/fs/jbd2.ko", "name=jbd2\0depends=packet\0")
            .module("kernel/fs/mbcache.ko", "name=mbcache\0")
            .module("kernel/crypto/crc32c_generic.ko", "name=crc32c_generic\0alias=crypto-crc32c\0")
            .module("kernel/drivers/crypto/chip.ko", "name=chip\0alias=crypto-crc32c\0")
            .module("kernel/drivers/net/virtio_net.ko", "name=virtio_net\0softdep=pre: nothing_of_that_name\0")
            .module("kernel/broken.ko", "name=broken\0depends=gone\0")
            .builtin("kernel/net/packet.ko", "license=GPL");
        let tree = KernelTree::open(fake.path(), None).unwrap();
        (fake, tree)
    }

    #[test]
    fn dependencies_and_softdeps_by_alias_are_packed_but_no_accelerators() {
        let (_fake, tree) = tree();
        let selection = resolve(&tree, &["ext4"]).unwrap();
        assert_eq!(selection.modules.iter().collect::<Vec<_>>(), ["crc32c_generic", "ext4", "jbd2", "mbcache"]);
    }

    #[test]
    fn a_missing_or_builtin_softdep_is_skipped() {
        let (_fake, tree) = tree();
        let selection = resolve(&tree, &["virtio-net", "packet"]).unwrap();
        assert_eq!(selection.modules.iter().collect::<Vec<_>>(), ["virtio_net"]);
        assert!(selection.builtin.contains("packet"));
    }

    #[test]
    fn an_unknown_name_is_refused_with_near_ones() {
        let (_fake, tree) = tree();
        let error = resolve(&tree, &["virtio_nt"]).unwrap_err().to_string();
        assert_eq!(error, "kernel 6.1 has no module \"virtio_nt\"; near names: virtio_net");
    }

    #[test]
    fn a_missing_hard_dependency_is_an_error() {
        let (_fake, tree) = tree();
        assert!(
            matches!(resolve(&tree, &["broken"]), Err(ResolveError::Broken { dependency, .. }) if dependency == "gone")
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        /// Edges may even form cycles: the function must return, and every selection must be closed.
        #[test]
        fn every_selection_is_closed_and_loads_in_order(
            edges in proptest::collection::vec((0usize..12, 0usize..12), 0..30),
            wanted in 0usize..12,
        ) {
            let mut fake = FakeTree::new("6.1");
            for module in 0..12 {
                let depends: Vec<_> =
                    edges.iter().filter(|(from, _)| *from == module).map(|(_, to)| format!("m{to}")).collect();
                let info = format!("name=m{module}\0depends={}\0", depends.join(","));
                fake = fake.module(&format!("kernel/m{module}.ko"), &info);
            }
            let tree = KernelTree::open(fake.path(), None).unwrap();
            let wanted = format!("m{wanted}");
            let selection = resolve(&tree, &[&wanted]).unwrap();
            for name in &selection.modules {
                for dependency in &tree.modules[name].info.depends {
                    prop_assert!(selection.modules.contains(dependency));
                }
            }
            let order = load_order(&tree, &wanted);
            let mut closure: BTreeSet<_> = order.iter().cloned().collect();
            prop_assert_eq!(closure.len(), order.len());
            closure.insert(wanted.clone());
            prop_assert_eq!(&closure, &selection.modules);
            let acyclic = edges.iter().all(|(from, to)| from < to);
            if acyclic {
                for (at, name) in order.iter().enumerate() {
                    for dependency in &tree.modules[name].info.depends {
                        prop_assert!(order[..at].contains(dependency));
                    }
                }
            }
        }
    }
}
