//! The command line that an installed system's kernel is started with, and the part of it that may be shown.

use super::entries::Entry;
use super::grub::{Linux, environment, linux_lines};
use super::kernel::file_name;
use super::words::{Variables, joined};
use crate::rootfs::{FileSystem, Tree};

/// Where distributions keep GRUB's configuration: Debian, Fedora and openSUSE.
const GRUB: [&str; 2] = ["/boot/grub", "/boot/grub2"];
/// Words in a parameter's name that indicate a secret. Secrets do not belong on a command line, but some systems put
/// them there.
const SECRET: [&str; 7] = ["passw", "passphrase", "token", "secret", "cred", "auth", "key"];
/// Names with such a word that are not secrets.
const NO_SECRET: [&str; 2] = ["keymap", "keytable"];

/// A command line, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// The line.
    pub(super) text: String,
    /// For people.
    pub(super) from: String,
}

/// The installed root's file system, for a loader's configuration that leaves it to the loader.
pub(super) struct Root<'r> {
    /// Where `/` is.
    pub(super) file_system: &'r FileSystem,
    /// Where `/boot` is: the same, or a partition of its own.
    pub(super) boot: &'r FileSystem,
    /// The mount option that chose the root inside its file system.
    pub(super) option: Option<&'r str>,
}

impl Root<'_> {
    /// `root=UUID=…`
    fn word(&self) -> String {
        format!("root=UUID={}", self.file_system.uuid)
    }
}

/// GRUB's environment block; empty where there is none.
pub(super) fn grub_environment(tree: &Tree) -> Variables {
    let blocks = GRUB.iter().filter_map(|place| tree.read_text(&format!("{place}/grubenv")).ok().flatten());
    blocks.map(|text| environment(&text)).next().unwrap_or_default()
}

/// What the boot loader would give the kernel at `path`: a boot loader entry's options, else those of a `linux` line of
/// `grub.cfg`, of this very kernel or else the first. Where neither says anything, the root by its UUID.
pub(super) fn discover(tree: &Tree, path: &str, entries: &[Entry], root: &Root<'_>) -> Line {
    let own = |entry: &&Entry| entry.kernel.iter().any(|kernel| file_name(kernel) == file_name(path));
    let entry = entries.iter().find(own).or(entries.first()).filter(|entry| !entry.options.is_empty());
    if let Some(entry) = entry {
        return Line { text: entry.options.clone(), from: entry.file.clone() };
    }
    let environment = grub_environment(tree);
    for place in GRUB {
        let file = format!("{place}/grub.cfg");
        let text = match tree.read_text(&file) {
            Ok(text) => text.unwrap_or_default(),
            Err(e) => {
                tracing::warn!("cannot read {file} of the installed system: {e}");
                continue;
            }
        };
        let lines = linux_lines(&text, &environment, &root.boot.uuid);
        let own = |line: &&Linux| file_name(&line.kernel) == file_name(path);
        let other = |line: &&Linux| !line.kernel.contains("memtest");
        if let Some(line) = lines.iter().find(own).or(lines.iter().find(other)) {
            return Line { text: settled(line, root), from: file };
        }
    }
    let flags = root.option.map_or_else(String::new, |option| format!(" rootflags={option}"));
    Line { text: format!("{}{flags} ro", root.word()), from: "the root file system's UUID".into() }
}

/// A word with an unknown variable is left out; the root is then named by its UUID.
fn settled(line: &Linux, root: &Root<'_>) -> String {
    joined(line.words.iter().filter_map(|word| match word.whole {
        true => Some(word.text.clone()),
        false => word.text.starts_with("root=").then(|| root.word()),
    }))
}

/// The line without what may be a secret.
pub(super) fn redacted(line: &str) -> String {
    let mut quoted = false;
    let parts = line.split(|c: char| {
        quoted ^= c == '"';
        c.is_whitespace() && !quoted
    });
    let shown = |word: &str| {
        let Some((name, value)) = word.split_once('=') else { return word.to_owned() };
        let name_low = name.to_ascii_lowercase();
        let speaks = SECRET.iter().any(|s| name_low.contains(s)) && !NO_SECRET.iter().any(|s| name_low.contains(s));
        // user:password@host, in a URL or as netroot=iscsi: writes it.
        let login = value.split_once('@').is_some_and(|(before, _)| before.contains(':'));
        if speaks || login { format!("{name}=***") } else { word.to_owned() }
    };
    parts.map(shown).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::kexec::entries;

    /// What is discovered for a kernel in a system with these files.
    fn line(kernel: &str, files: &[(&str, &str)], option: Option<&str>) -> (String, String) {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let tree = Tree::open(directory.path()).unwrap();
        let named = |uuid: &str| FileSystem { kind: "ext4", uuid: uuid.into(), label: String::new() };
        let (root, boot) = (named("r-1"), named("b-2"));
        let root = Root { file_system: &root, boot: &boot, option };
        let entries = entries::read(&tree, &grub_environment(&tree), &mut Vec::new());
        let line = discover(&tree, kernel, &entries, &root);
        (line.text, line.from)
    }

    const GRUB_CFG: (&str, &str) = (
        "/boot/grub/grub.cfg",
        "menuentry a {\n linux /boot/memtest86.bin\n linux /boot/vmlinuz-6.2 root=UUID=r-1 ro two $vt_handoff\n}\n\
         menuentry b {\n linux /boot/vmlinuz-6.1 root=UUID=r-1 ro one\n}\n",
    );

    #[test]
    fn the_line_of_this_very_kernel_counts_else_the_first() {
        let grub = "/boot/grub/grub.cfg".to_owned();
        for (kernel, text) in [("6.1", "ro one"), ("6.2", "ro two"), ("6.3", "ro two")] {
            let found = line(&format!("/boot/vmlinuz-{kernel}"), &[GRUB_CFG], None);
            assert_eq!(found, (format!("root=UUID=r-1 {text}"), grub.clone()), "{kernel}");
        }
    }

    #[test]
    fn a_boot_loader_entry_comes_before_grub_cfg() {
        let entry =
            |v: &str| format!("version {v}\nlinux /vmlinuz-{v}\ninitrd /i\noptions root=UUID=r-1 rw entry-{v}\n");
        let (old, new) = (entry("6.1"), entry("6.2"));
        let files =
            [GRUB_CFG, ("/boot/loader/entries/a.conf", old.as_str()), ("/boot/loader/entries/b.conf", new.as_str())];
        for (kernel, entry, file) in [("6.1", "6.1", "a"), ("6.2", "6.2", "b"), ("6.3", "6.2", "b")] {
            let (text, from) = line(&format!("/boot/vmlinuz-{kernel}"), &files, None);
            assert_eq!(text, format!("root=UUID=r-1 rw entry-{entry}"));
            assert_eq!(from, format!("/boot/loader/entries/{file}.conf"));
        }
    }

    #[test]
    fn variables_that_the_loader_sets_are_replaced() {
        let probe = "probe --set=uuid --fs-uuid $root\nlinux /vmlinuz root=UUID=$uuid console=ttyS0 quiet\n";
        let (text, _) = line("/boot/vmlinuz-6.1", &[("/boot/grub/grub.cfg", probe)], None);
        assert_eq!(text, "root=UUID=b-2 console=ttyS0 quiet", "probe asks for the file system of its own file");
        let unknown = "linux /vmlinuz root=UUID=$nobody x=$nobody $nobody ro \"dyndbg=file a +p\"\n";
        let (text, _) = line("/boot/vmlinuz-6.1", &[("/boot/grub2/grub.cfg", unknown)], None);
        assert_eq!(text, "root=UUID=r-1 ro \"dyndbg=file a +p\"");
    }

    #[test]
    fn without_any_configuration_the_root_is_named_by_its_uuid() {
        let from = "the root file system's UUID".to_owned();
        assert_eq!(line("/boot/vmlinuz", &[], None), ("root=UUID=r-1 ro".into(), from.clone()));
        let subvolume = line("/boot/vmlinuz", &[("/boot/grub/grub.cfg", "echo linux\n")], Some("subvol=@"));
        assert_eq!(subvolume, ("root=UUID=r-1 rootflags=subvol=@ ro".into(), from));
    }

    #[test]
    fn what_may_be_a_secret_is_not_shown() {
        for (line, want) in [
            ("root=UUID=1 ro console=ttyS0,115200 quiet", "root=UUID=1 ro console=ttyS0,115200 quiet"),
            ("rd.luks.key=/k PASSWORD=p api_token=t quiet", "rd.luks.key=*** PASSWORD=*** api_token=*** quiet"),
            ("systemd.set_credential=a:b x", "systemd.set_credential=*** x"),
            ("password=\"a b\" ro", "password=*** ro"),
            ("\"password=a b\" ro", "\"password=*** ro"),
            ("netroot=iscsi:u:p@10.0.0.1::3260::iqn", "netroot=***"),
            ("rootflags=subvol=@ vconsole.keymap=de", "rootflags=subvol=@ vconsole.keymap=de"),
        ] {
            assert_eq!(redacted(line), want);
        }
    }
}
