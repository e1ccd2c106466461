//! What the programs of a loader wrote, read back: a program that ends well may have left what does not start. Entries must name this
//! root, and the kernel and the initramfs that each names must be there.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use landfall_api::ErrorCode;

use super::found::{is_full, missing};
use crate::Failure;

const HINT: &str = "the log has what the programs said; check the kernel packages and the loader's configuration in what is unpacked, \
    such as /etc/default/grub and /etc/kernel";

/// What starts one kernel.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// As its file says.
    version: String,
    kernel: String,
    initramfs: Vec<String>,
    arguments: Vec<String>,
}

impl Entry {
    /// Whether it starts the kernel of this version.
    pub(super) fn is_for(&self, version: &str) -> bool {
        self.version == version
    }

    /// Where its root is, by its last such argument.
    fn root(&self) -> Option<&str> {
        self.arguments.iter().rev().find_map(|word| word.strip_prefix("root=")).map(|root| root.trim_matches('"'))
    }
}

/// Those of a `grub.cfg`.
pub(super) fn of_grub(config: &str) -> Vec<Entry> {
    let mut all: Vec<Entry> = Vec::new();
    for line in config.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("linux" | "linuxefi" | "linux16") => {
                let kernel = words.next().unwrap_or_default().to_owned();
                let arguments = words.map(str::to_owned).collect();
                all.push(Entry { kernel, arguments, ..Entry::default() });
            }
            Some("initrd" | "initrdefi" | "initrd16") => {
                if let Some(entry) = all.last_mut() {
                    entry.initramfs.extend(files(words));
                }
            }
            _ => {}
        }
    }
    all
}

/// Whether a `grub.cfg` takes its entries from files of their own, as Fedora's does.
pub(super) fn takes_files(config: &str) -> bool {
    config.lines().any(|line| line.trim() == "blscfg")
}

/// What `$kernelopts` is in such entries: as the environment block of GRUB says, else its configuration.
pub(super) fn usual_arguments(config: &str, block: &str) -> String {
    let stated = block.lines().find_map(|line| line.strip_prefix("kernelopts="));
    let set = || config.lines().find_map(|line| line.trim().strip_prefix("set kernelopts="));
    stated.or_else(set).unwrap_or_default().trim_matches('"').to_owned()
}

/// Those that are files in this folder (Boot Loader Specification, type 1); `usual` is `$kernelopts`.
pub(super) fn of_folder(folder: &Path, usual: &str) -> Vec<Entry> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let texts = names.filter(|path| path.extension().is_some_and(|end| end == "conf")).map(fs::read_to_string);
    texts.flatten().map(|text| of_file(&text.replace("$kernelopts", usual).replace("${kernelopts}", usual))).collect()
}

fn of_file(text: &str) -> Entry {
    let mut entry = Entry::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("version") => entry.version = words.next().unwrap_or_default().to_owned(),
            Some("linux") => entry.kernel = words.next().unwrap_or_default().to_owned(),
            Some("initrd") => entry.initramfs.extend(files(words)),
            Some("options") => entry.arguments.extend(words.map(str::to_owned)),
            _ => {}
        }
    }
    entry
}

/// Without variables, which need not be set.
fn files<'a>(words: impl Iterator<Item = &'a str>) -> impl Iterator<Item = String> {
    words.filter(|word| !word.starts_with('$')).map(str::to_owned)
}

/// At least one entry has this root, and all that have it are whole. `place` is where they are, for people; `folders` is what the
/// loader may have as its root: the path in an entry is one of its file system.
pub(super) fn whole<'a>(
    entries: impl IntoIterator<Item = &'a Entry>, place: &str, folders: &[&Path], is_root: &dyn Fn(&str) -> bool,
) -> Result<(), Failure> {
    let (ours, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.root().is_some_and(is_root));
    if ours.is_empty() {
        let named: Vec<&str> = others.into_iter().filter_map(Entry::root).collect();
        let message = match &named[..] {
            [] => format!("{place} has no entry with a kernel and its root"),
            named => format!("no entry of {place} has the root of the new system: they name {}", named.join(", ")),
        };
        return Err(bad(ErrorCode::ProgramFailed, message));
    }
    for entry in ours {
        let Entry { kernel, initramfs, .. } = entry;
        if !stands(kernel, folders) {
            return Err(bad(ErrorCode::NoKernel, format!("{place} names the kernel {kernel}, which is not there")));
        }
        if let Some(gone) = initramfs.iter().find(|path| !stands(path, folders)) {
            let message = format!("{place} names the initramfs {gone}, which is not there");
            return Err(bad(ErrorCode::ProgramFailed, message));
        }
        // These the kernel finds itself (its init/do_mounts.c).
        let root = entry.root().unwrap_or_default();
        let alone = root.starts_with("PART") || root.strip_prefix("/dev/").is_some_and(|name| !name.contains('/'));
        if initramfs.is_empty() && !alone {
            let message = format!("{place} has no initramfs for {kernel}, which finds no root={root} without one");
            return Err(bad(ErrorCode::ProgramFailed, message));
        }
    }
    Ok(())
}

/// This file was written, and is not empty.
pub(super) fn written(path: &Path) -> Result<(), Failure> {
    if is_full(path) {
        return Ok(());
    }
    Err(bad(ErrorCode::ProgramFailed, format!("the loader's program wrote no {}", path.display())))
}

fn bad(code: ErrorCode, message: String) -> Failure {
    missing(code, message, HINT)
}

/// Whether it is there in one of these folders, also with the first parts of its path gone: there a subvolume is named.
fn stands(path: &str, folders: &[&Path]) -> bool {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    (0..parts.len()).any(|from| {
        let rest: PathBuf = parts.get(from..).unwrap_or_default().iter().collect();
        folders.iter().any(|folder| is_full(&folder.join(&rest)))
    })
}

/// Whether an argument of the kernel means the device that is mounted at `/`; `says` what its identity of a kind such as `UUID` is.
pub(super) fn means(root: &str, device: &str, says: &dyn Fn(&str) -> Vec<String>) -> bool {
    if root.starts_with("/dev/") {
        let number =
            |path: &str| fs::metadata(path).ok().filter(|it| it.file_type().is_block_device()).map(|it| it.rdev());
        return root == device || number(root).is_some_and(|found| number(device) == Some(found));
    }
    let Some((kind, value)) = root.split_once('=') else { return false };
    says(kind).iter().any(|known| known.eq_ignore_ascii_case(value.trim_matches('"')))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEBIAN: &str = "menuentry 'Debian' {\n\tlinux\t/boot/vmlinuz-6 root=UUID=12-ab ro quiet\n\tinitrd\t/boot/initrd-6\n}\n\
        menuentry 'memory' {\n\tlinux16 /boot/memtest\n}\n";

    fn system(files: &[&str]) -> tempfile::TempDir {
        let system = tempfile::tempdir().unwrap();
        for file in files {
            let path = system.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        system
    }

    fn judged(config: &str, system: &tempfile::TempDir) -> Result<(), String> {
        let says = |kind: &str| if kind == "UUID" { vec!["12-AB".to_owned()] } else { vec![] };
        let (root, boot) = (system.path(), system.path().join("boot"));
        let is_root = |value: &str| means(value, "/dev/vda2", &says);
        whole(&of_grub(config), "grub.cfg", &[root, &boot], &is_root).map_err(|failure| failure.problem.message)
    }

    #[test]
    fn an_entry_of_grub_must_name_what_is_there() {
        let whole = ["boot/vmlinuz-6", "boot/initrd-6"];
        for (config, files, expected) in [
            (DEBIAN.to_owned(), &whole[..], None),
            // A file system of its own at /boot, and a subvolume.
            (DEBIAN.replace("/boot/vm", "/vm").replace("/boot/in", "/@root/boot/in"), &whole, None),
            (DEBIAN.replace("UUID=12-ab", "/dev/vda2"), &whole, None),
            (DEBIAN.replace("UUID=12-ab", "/dev/vda2").replace("initrd\t", "#"), &whole, None),
            (DEBIAN.replace("12-ab", "34"), &whole, Some("they name UUID=34")),
            (DEBIAN.replace("UUID=12-ab", "PARTUUID=12-ab"), &whole, Some("they name PARTUUID=12-ab")),
            (DEBIAN.replace("root=", "rot="), &whole, Some("no entry with a kernel and its root")),
            (String::new(), &whole, Some("no entry with a kernel and its root")),
            (DEBIAN.to_owned(), &whole[1..], Some("kernel /boot/vmlinuz-6, which is not there")),
            (DEBIAN.to_owned(), &whole[..1], Some("initramfs /boot/initrd-6, which is not there")),
            (DEBIAN.replace("initrd\t", "#"), &whole, Some("no initramfs for /boot/vmlinuz-6")),
        ] {
            let judged = judged(&config, &system(files));
            match expected {
                None => assert_eq!(judged, Ok(()), "{config}"),
                Some(said) => assert!(judged.as_ref().is_err_and(|it| it.contains(said)), "{config}: {judged:?}"),
            }
        }
    }

    #[test]
    fn a_dangling_or_empty_file_is_no_kernel() {
        let system = system(&["boot/initrd-6"]);
        let kernel = system.path().join("boot/vmlinuz-6");
        std::os::unix::fs::symlink("/nowhere", &kernel).unwrap();
        assert!(judged(DEBIAN, &system).is_err_and(|said| said.contains("not there")));
        fs::remove_file(&kernel).unwrap();
        fs::write(&kernel, "").unwrap();
        assert!(judged(DEBIAN, &system).is_err_and(|said| said.contains("not there")));
        written(&kernel).unwrap_err();
    }

    #[test]
    fn entries_in_files_have_the_usual_arguments() {
        let config = "insmod blscfg\n  blscfg\nif x; then\n  set kernelopts=\"root=UUID=1 ro\"\nfi\n";
        assert!(takes_files(config) && !takes_files(DEBIAN));
        let folder = tempfile::tempdir().unwrap();
        let text = "title Fedora\nlinux /vmlinuz-6\ninitrd /initramfs-6.img $tuned_initrd\noptions $kernelopts quiet\n";
        fs::write(folder.path().join("6.conf"), text).unwrap();
        fs::write(folder.path().join("6.conf.old"), text).unwrap();
        for (block, root) in [("", "UUID=1"), ("# GRUB\nkernelopts=root=UUID=2 ro\n###", "UUID=2")] {
            let entries = of_folder(folder.path(), &usual_arguments(config, block));
            let [Entry { kernel, initramfs, .. }] = &entries[..] else { panic!("{entries:?}") };
            assert_eq!((kernel.as_str(), initramfs.join(" ").as_str()), ("/vmlinuz-6", "/initramfs-6.img"));
            assert_eq!(entries[0].root(), Some(root));
        }
    }
}
