//! Boot loader entries (the Boot Loader Specification, type 1): `loader/entries/*.conf`, as Fedora's GRUB and systemd-boot
//! read them.

use super::version;
use super::words::{Variables, joined, words};
use crate::rootfs::Tree;

/// Where a partition for boot loaders is mounted; entries name files from its top.
const PLACES: [&str; 3] = ["/boot", "/efi", "/boot/efi"];

/// One entry that starts a Linux kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// The entry's own file.
    pub(super) file: String,
    /// Paths at which its kernel may be, the likeliest first.
    pub(super) kernel: Vec<String>,
    /// Likewise for each of its initramfs.
    pub(super) initramfs: Vec<Vec<String>>,
    /// The command line, variables put in.
    pub(super) options: String,
    version: String,
}

/// Every entry, the newest first. Rescue systems are left out; unreadable entries are listed in `looked`.
pub(super) fn read(tree: &Tree, environment: &Variables, looked: &mut Vec<String>) -> Vec<Entry> {
    let mut found: Vec<Entry> = Vec::new();
    for place in PLACES {
        let directory = format!("{place}/loader/entries");
        let names = tree.names(&directory).unwrap_or_else(|e| {
            looked.push(format!("{directory}: {e}"));
            Vec::new()
        });
        for name in names.into_iter().filter(|name| name.ends_with(".conf")) {
            let file = format!("{directory}/{name}");
            match tree.read_text(&file) {
                Ok(text) => found.extend(parse(&file, place, &text.unwrap_or_default(), environment)),
                Err(e) => looked.push(format!("{file}: {e}")),
            }
        }
    }
    found.sort_by(|a, b| version::compare(&b.version, &a.version).then_with(|| b.file.cmp(&a.file)));
    found
}

fn parse(file: &str, place: &str, text: &str, environment: &Variables) -> Option<Entry> {
    let fields: Vec<(&str, &str)> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(char::is_whitespace))
        .map(|(key, value)| (key, value.trim()))
        .collect();
    let all = |key: &str| fields.iter().filter(|(k, _)| *k == key).map(|(_, v)| *v).collect::<Vec<_>>();
    // Fedora without a partition of its own for /boot writes paths from the root's top.
    let places = |path: &str| vec![format!("{place}/{}", path.trim_start_matches('/')), path.to_owned()];
    let linux = *all("linux").first()?;
    if linux.contains("rescue") || file.contains("rescue") {
        return None;
    }
    let options = all("options").join(" ");
    // A line without variables is the kernel's as it stands, its own quotes included.
    let options = match options.contains('$') {
        false => options,
        true => joined(words(&options, environment).into_iter().filter(|word| word.whole).map(|word| word.text)),
    };
    let initramfs = words(&all("initrd").join(" "), environment);
    Some(Entry {
        file: file.to_owned(),
        kernel: places(linux),
        initramfs: initramfs
            .iter()
            .filter(|word| word.whole && !word.text.is_empty())
            .map(|w| places(&w.text))
            .collect(),
        options,
        version: all("version").first().copied().unwrap_or(linux).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn entries_come_newest_first_without_the_rescue_system() {
        let root = tempfile::tempdir().unwrap();
        let entries = root.path().join("boot/loader/entries");
        fs::create_dir_all(&entries).unwrap();
        let entry = |version: &str, options: &str| {
            format!(
                "# made by kernel-install\ntitle Linux\nversion {version}\nlinux /vmlinuz-{version}\ninitrd /initramfs-{version}.img $tuned_initrd\noptions {options}\n"
            )
        };
        for (name, text) in [
            ("a-5.9.conf", entry("5.9", "root=UUID=1 ro")),
            ("a-5.14.conf", entry("5.14", "$kernelopts quiet $tuned_params")),
            ("a-0-rescue.conf", entry("99-rescue", "root=UUID=1")),
            ("a-5.20.conf.rpmsave", entry("5.20", "root=UUID=1")),
            ("uki.conf", "title UKI\nefi /EFI/Linux/x.efi\n".to_owned()),
        ] {
            fs::write(entries.join(name), text).unwrap();
        }
        let tree = Tree::open(root.path()).unwrap();
        let environment = [("kernelopts".to_owned(), "root=UUID=1 ro".to_owned())].into();
        let mut looked = Vec::new();
        let found = read(&tree, &environment, &mut looked);
        let options: Vec<_> = found.iter().map(|e| (e.version.as_str(), e.options.as_str())).collect();
        assert_eq!(options, [("5.14", "root=UUID=1 ro quiet"), ("5.9", "root=UUID=1 ro")]);
        assert_eq!(found[0].kernel, ["/boot/vmlinuz-5.14", "/vmlinuz-5.14"]);
        assert_eq!(found[0].initramfs, [["/boot/initramfs-5.14.img", "/initramfs-5.14.img"]]);
        assert_eq!(looked, [""; 0]);
    }
}
