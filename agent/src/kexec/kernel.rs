//! Which kernel of an installed system is started, and the initramfs that goes with it.

use super::{entries::Entry, version};
use crate::rootfs::{Opened, Tree};

/// Names that distributions keep pointing at the newest kernel: Debian, Ubuntu, openSUSE.
const KEPT: [(&str, &str); 3] =
    [("/vmlinuz", "/initrd.img"), ("/boot/vmlinuz", "/boot/initrd.img"), ("/boot/vmlinuz", "/boot/initrd")];
/// What stands before and after the version in an initramfs's name: Debian, Fedora, Arch, openSUSE.
const INITRAMFS: [(&str, &str); 5] =
    [("initrd.img-", ""), ("initramfs-", ".img"), ("initrd-", ""), ("initrd-", ".img"), ("initramfs-", "")];
const KERNEL: &str = "vmlinuz-";
/// Copies that package managers and `make install` leave, and rescue systems.
const NOT_MEANT: [&str; 5] = [".old", ".bak", ".dpkg-", ".rpm", "rescue"];

/// A kernel and its initramfs, both open.
#[derive(Debug)]
pub(super) struct Kernel {
    /// The kernel.
    pub(super) kernel: Opened,
    /// Its initramfs.
    pub(super) initramfs: Opened,
}

/// The newest kernel with an initramfs: by the names that are kept for it, by the versions in `/boot`, by boot loader
/// entries. Places that had no kernel are listed in `looked`.
pub(super) fn find(tree: &Tree, entries: &[Entry], looked: &mut Vec<String>) -> Option<Kernel> {
    kept(tree, looked).or_else(|| by_version(tree, looked)).or_else(|| by_entry(tree, entries, looked))
}

fn kept(tree: &Tree, looked: &mut Vec<String>) -> Option<Kernel> {
    let mut missing = Vec::new();
    for (kernel, initramfs) in KEPT {
        let opened = (tree.open_file(kernel), tree.open_file(initramfs));
        let (kernel, initramfs) = match opened {
            (Ok(kernel), Ok(initramfs)) => (kernel, initramfs),
            (Err(e), _) => {
                missing.push(format!("{kernel}: {e}"));
                continue;
            }
            (_, Err(e)) => {
                missing.push(format!("{initramfs}: {e}"));
                continue;
            }
        };
        match (kernel_version(&kernel.path), initramfs_version(&initramfs.path)) {
            (Some(a), Some(b)) if a != b => {
                missing.push(format!("{} and {} are of two versions", kernel.path, initramfs.path));
            }
            _ => return Some(Kernel { kernel, initramfs }),
        }
    }
    missing.dedup();
    looked.extend(missing);
    None
}

fn by_version(tree: &Tree, looked: &mut Vec<String>) -> Option<Kernel> {
    let names = tree.names("/boot").unwrap_or_else(|e| {
        looked.push(format!("/boot: {e}"));
        Vec::new()
    });
    let meant = |version: &&str| !NOT_MEANT.iter().any(|mark| version.contains(mark));
    let mut versions: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix(KERNEL)).filter(meant).collect();
    versions.sort_by(|a, b| version::compare(b, a));
    if versions.is_empty() {
        looked.push(format!("/boot/{KERNEL}*: there is none"));
    }
    for version in versions {
        let kernel = match tree.open_file(&format!("/boot/{KERNEL}{version}")) {
            Ok(kernel) => kernel,
            Err(e) => {
                looked.push(format!("/boot/{KERNEL}{version}: {e}"));
                continue;
            }
        };
        let initramfs = INITRAMFS.map(|(before, after)| format!("/boot/{before}{version}{after}"));
        match initramfs.iter().find_map(|path| tree.open_file(path).ok()) {
            Some(initramfs) => return Some(Kernel { kernel, initramfs }),
            None => looked.push(format!("{} has none of {}", kernel.path, initramfs.join(", "))),
        }
    }
    None
}

fn by_entry(tree: &Tree, entries: &[Entry], looked: &mut Vec<String>) -> Option<Kernel> {
    if entries.is_empty() {
        looked.push("loader/entries in /boot, /efi and /boot/efi: there is none".into());
    }
    let open = |places: &[String]| places.iter().find_map(|path| tree.open_file(path).ok());
    for entry in entries {
        let [initramfs] = entry.initramfs.as_slice() else {
            looked.push(format!("{}: it names {} initramfs, and one can be loaded", entry.file, entry.initramfs.len()));
            continue;
        };
        match (open(&entry.kernel), open(initramfs)) {
            (Some(kernel), Some(initramfs)) => return Some(Kernel { kernel, initramfs }),
            _ => looked.push(format!("{}: {} or {} is not there", entry.file, entry.kernel[0], initramfs[0])),
        }
    }
    None
}

/// The last part of a path.
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn kernel_version(path: &str) -> Option<&str> {
    file_name(path).strip_prefix(KERNEL)
}

fn initramfs_version(path: &str) -> Option<&str> {
    let name = file_name(path);
    INITRAMFS.iter().find_map(|(before, after)| name.strip_prefix(before)?.strip_suffix(after))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use super::*;

    /// A system with these files in `/boot` and these links.
    fn system(files: &[&str], links: &[(&str, &str)]) -> (tempfile::TempDir, Tree) {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path.trim_start_matches('/'));
        for file in files {
            let path = at(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        for (link, target) in links {
            symlink(Path::new(target), at(link)).unwrap();
        }
        let tree = Tree::open(root.path()).unwrap();
        (root, tree)
    }

    fn found(files: &[&str], links: &[(&str, &str)]) -> Result<(String, String), Vec<String>> {
        let (_root, tree) = system(files, links);
        let mut looked = Vec::new();
        match find(&tree, &[], &mut looked) {
            Some(found) => Ok((found.kernel.path, found.initramfs.path)),
            None => Err(looked),
        }
    }

    fn pair(kernel: &str, initramfs: &str) -> Result<(String, String), Vec<String>> {
        Ok((kernel.to_owned(), initramfs.to_owned()))
    }

    const BOTH: [&str; 4] =
        ["/boot/vmlinuz-6.1.0-9", "/boot/initrd.img-6.1.0-9", "/boot/vmlinuz-6.1.0-35", "/boot/initrd.img-6.1.0-35"];

    #[test]
    fn kept_names_win_and_their_links_stay_inside() {
        let links = [("/vmlinuz", "boot/vmlinuz-6.1.0-9"), ("/initrd.img", "/boot/initrd.img-6.1.0-9")];
        assert_eq!(found(&BOTH, &links), pair("/boot/vmlinuz-6.1.0-9", "/boot/initrd.img-6.1.0-9"));
        let plain = ["/boot/vmlinuz", "/boot/initrd.img"];
        assert_eq!(found(&plain, &[]), pair("/boot/vmlinuz", "/boot/initrd.img"));
        let suse = ["/boot/vmlinuz-6.4-default", "/boot/initrd-6.4-default"];
        let links = [("/boot/vmlinuz", "vmlinuz-6.4-default"), ("/boot/initrd", "initrd-6.4-default")];
        assert_eq!(found(&suse, &links), pair("/boot/vmlinuz-6.4-default", "/boot/initrd-6.4-default"));
    }

    #[test]
    fn broken_and_contradictory_links_are_skipped() {
        let newest = pair("/boot/vmlinuz-6.1.0-35", "/boot/initrd.img-6.1.0-35");
        for kernel in ["/proc/self/exe", "../../../../../../bin/sh", "boot/vmlinuz-7", "boot/vmlinuz-6.1.0-9"] {
            let links = [("/vmlinuz", kernel), ("/initrd.img", "boot/initrd.img-6.1.0-35")];
            assert_eq!(found(&BOTH, &links), newest, "{kernel}");
        }
    }

    #[test]
    fn without_links_the_newest_version_with_an_initramfs_counts() {
        assert_eq!(found(&BOTH, &[]), pair("/boot/vmlinuz-6.1.0-35", "/boot/initrd.img-6.1.0-35"));
        let mut files = BOTH.to_vec();
        files.extend(["/boot/vmlinuz-6.2.0", "/boot/vmlinuz-6.3.old", "/boot/initrd.img-6.3.old"]);
        assert_eq!(found(&files, &[]), pair("/boot/vmlinuz-6.1.0-35", "/boot/initrd.img-6.1.0-35"));
        let fedora = [
            "/boot/vmlinuz-0-rescue-ab", "/boot/initramfs-0-rescue-ab.img", "/boot/vmlinuz-6.8.5-301.fc40.x86_64",
            "/boot/initramfs-6.8.5-301.fc40.x86_64.img",
        ];
        assert_eq!(
            found(&fedora, &[]),
            pair("/boot/vmlinuz-6.8.5-301.fc40.x86_64", "/boot/initramfs-6.8.5-301.fc40.x86_64.img")
        );
    }

    #[test]
    fn an_entry_leads_to_a_kernel_that_no_name_does() {
        let (_root, tree) = system(&["/efi/id/6.1/linux", "/efi/id/6.1/initrd"], &[]);
        fs::create_dir_all(_root.path().join("efi/loader/entries")).unwrap();
        let text = "version 6.1\nlinux /id/6.1/linux\ninitrd /id/6.1/initrd\noptions root=UUID=1\n";
        fs::write(_root.path().join("efi/loader/entries/a.conf"), text).unwrap();
        let entries = super::super::entries::read(&tree, &Default::default(), &mut Vec::new());
        let found = find(&tree, &entries, &mut Vec::new()).unwrap();
        assert_eq!(
            (found.kernel.path.as_str(), found.initramfs.path.as_str()),
            ("/efi/id/6.1/linux", "/efi/id/6.1/initrd")
        );
    }

    #[test]
    fn a_failed_search_lists_every_place() {
        let looked = found(&["/boot/vmlinuz-6.1", "/boot/config-6.1"], &[]).unwrap_err().join("; ");
        for word in
            ["/vmlinuz:", "/boot/vmlinuz:", "/boot/vmlinuz-6.1 has none of /boot/initrd.img-6.1", "loader/entries"]
        {
            assert!(looked.contains(word), "{word}: {looked}");
        }
        let looked = found(&["/etc/os-release"], &[]).unwrap_err().join("; ");
        assert!(looked.contains("/boot/vmlinuz-*: there is none"), "{looked}");
    }
}
