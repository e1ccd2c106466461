//! What stands on a device: file system, mount point, subvolumes, encryption.

use std::collections::BTreeSet;

use super::super::{Content, FileSystem};
use super::Check;
use super::names::name_fault;

impl<'a> Check<'a> {
    /// `disks`: on how many disks the device stands; `stated`: whether the mount point was written, or is the role's.
    pub(super) fn content(&mut self, content: Content<'a>, path: &str, name: &str, disks: usize, stated: bool) {
        let at = |field: &str| format!("{path}.{field}");
        let Content { format, label, mount, options, subvolumes, encrypt } = content;
        if let Some(mount) = mount {
            self.mount(mount, &at("mount"), name, disks, stated);
            if !format.is_some_and(FileSystem::is_mountable) {
                let message =
                    format!("{} cannot be mounted", format.map_or("a device without a file system", FileSystem::name));
                self.say(at("mount"), message, "remove the mount point, or choose a file system");
            }
        }
        self.options(options, &at("options"));
        if let (Some(_), None) = (options, mount)
            && format != Some(FileSystem::Swap)
        {
            self.say(at("options"), "there are mount options, and no mount point", "add mount, or remove the options");
        }
        if let Some(label) = label {
            self.label(label, format, &at("label"));
        }
        if !subvolumes.is_empty() && format != Some(FileSystem::Btrfs) {
            let message =
                format!("{} has no subvolumes", format.map_or("a device without a file system", FileSystem::name));
            self.say(at("subvolumes"), message, "write format: btrfs, or remove the subvolumes");
        }
        let mut names = BTreeSet::new();
        for (n, subvolume) in subvolumes.iter().enumerate() {
            let path = format!("{path}.subvolumes[{n}]");
            if !is_subvolume(&subvolume.name) {
                let message = format!("{:?} cannot be a subvolume's name", subvolume.name);
                self.say(format!("{path}.name"), message, "write a relative path without spaces, such as @home");
            } else if !names.insert(subvolume.name.as_str()) {
                let message = format!("two subvolumes are called \"{}\"", subvolume.name);
                self.say(format!("{path}.name"), message, "give each its own name");
            }
            if let Some(mount) = &subvolume.mount {
                self.mount(mount, &format!("{path}.mount"), &subvolume.name, disks, true);
            }
            self.options(subvolume.options.as_deref(), &format!("{path}.options"));
            if subvolume.options.is_some() && subvolume.mount.is_none() {
                let message = "there are mount options, and no mount point";
                self.say(format!("{path}.options"), message, "add mount, or remove the options");
            }
        }
        if let Some(encrypt) = encrypt {
            if !self.spec.keys.contains_key(&encrypt.key) {
                let message = format!("there is no key \"{}\"", encrypt.key);
                let hint = "add it to storage.keys, as a reference such as {{ secrets.disk.passphrase }}";
                self.say(at("encrypt.key"), message, hint);
            }
            if let Some(name) = &encrypt.name {
                self.named(name, &at("encrypt.name"), name_fault);
                if disks > 1 {
                    let message =
                        format!("{name} would be the name of {disks} devices: {path} stands on {disks} disks");
                    self.say(at("encrypt.name"), message, "remove the name");
                }
            }
        }
    }

    fn mount(&mut self, mount: &'a str, path: &str, name: &str, disks: usize, stated: bool) {
        if !is_mount_point(mount) {
            let message = format!("{mount:?} is not a mount point");
            return self.say(path, message, "write an absolute path without \"..\" and spaces, such as /srv");
        }
        let said = if stated { "" } else { ", by its role" };
        if disks > 1 {
            let message = format!("{name} stands on {disks} disks, and only one can be mounted at {mount}{said}");
            return self.say(path, message, "mirror them with raids, or write mount: none");
        }
        if let Some(other) = self.mounts.insert(mount, name.to_owned()) {
            let message = format!("{name}{said} and {other} would both be mounted at {mount}");
            self.say(path, message, "mount each at a place of its own, or write mount: none");
        }
    }

    fn options(&mut self, options: Option<&str>, path: &str) {
        let Some(options) = options else { return };
        if options.is_empty() || options.contains(|c: char| c.is_whitespace() || c.is_control() || c == '#') {
            let hint = "write them as in fstab, such as noatime,nodev";
            self.say(path, format!("{options:?} are not mount options"), hint);
        }
    }

    fn label(&mut self, label: &str, format: Option<FileSystem>, path: &str) {
        // ext4.h `s_volume_name`; xfs_format.h `sb_fname`; btrfs_tree.h `label`; Microsoft's FAT specification; swap.h.
        let most = match format {
            Some(FileSystem::Ext4) => 16,
            Some(FileSystem::Xfs) => 12,
            Some(FileSystem::Btrfs) => 255,
            Some(FileSystem::Vfat) => 11,
            Some(FileSystem::Swap) => 15,
            Some(FileSystem::None) | None => {
                return self.say(path, "there is a label, and no file system", "add format, or remove the label");
            }
        };
        let name = format.map_or("", FileSystem::name);
        if label.is_empty() || label.len() > most || label.contains(|c: char| c.is_control() || c == '"') {
            return self.say(
                path,
                format!("{label:?} cannot be the label of {name}"),
                format!("use 1 to {most} bytes"),
            );
        }
        // What mkfs.fat refuses; beyond ASCII it depends on code pages.
        let of_fat = |c: char| c.is_ascii() && !"*?.,;:/\\|+=<>[]".contains(c);
        if format == Some(FileSystem::Vfat) && (label.starts_with(' ') || !label.chars().all(of_fat)) {
            let hint = "use letters and digits of ASCII, \"-\" and \"_\"";
            self.say(path, format!("{label:?} cannot be the label of {name}"), hint);
        }
    }
}

/// An absolute path in which fstab needs no escapes.
fn is_mount_point(path: &str) -> bool {
    let part = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= 255;
    let plain = !path.contains(|c: char| c.is_whitespace() || c.is_control() || c == '\\' || c == '#');
    plain && path.len() <= 4095 && (path == "/" || path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(part)))
}

fn is_subvolume(name: &str) -> bool {
    let part = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= 255;
    name.split('/').all(part) && !name.contains(|c: char| c.is_whitespace() || c.is_control() || ",\\#".contains(c))
}
