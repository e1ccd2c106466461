//! Which subvolume of a btrfs is the installed system's root. Debian calls it `@rootfs`, Ubuntu `@`, Fedora `root`; openSUSE
//! makes a snapshot the default subvolume.

use super::{fstab, tree::Tree};

/// Where a system names its root's subvolume beside its fstab: in the kernel's command line.
const COMMAND_LINES: [&str; 3] = ["/boot/grub/grub.cfg", "/boot/grub2/grub.cfg", "/etc/kernel/cmdline"];
/// The usual names come first.
const USUAL: [&str; 3] = ["@rootfs", "@", "root"];
/// Looked into at the most.
const MOST: usize = 64;

/// A subvolume that holds a system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    /// The mount option that chooses it; `None`: the default subvolume.
    pub(super) option: Option<String>,
    /// The option by which the system in it mounts its own root.
    pub(super) names: Option<String>,
}

/// The mount option for the root: that of the subvolume which is the root by its own word, else of one that another system
/// names, else the default subvolume, else the first. `None`: there is no system.
pub(super) fn choose(found: &[Candidate]) -> Option<Option<String>> {
    let own = found.iter().find(|one| one.option.is_some() && one.option == one.names);
    let named = || found.iter().find(|one| found.iter().any(|by| by.names.is_some() && by.names == one.option));
    let default = || found.iter().find(|one| one.option.is_none());
    own.or_else(named).or_else(default).or(found.first()).map(|one| one.option.clone())
}

/// The system in the default subvolume, which is mounted as `tree`.
pub(super) fn default(tree: &Tree) -> Option<Candidate> {
    holds_system(tree, "").then(|| Candidate { option: None, names: names(tree, "") })
}

/// The systems in the subvolumes of the top level, which is mounted as `tree`, and in those that they or `default` name.
pub(super) fn below(tree: &Tree, default: Option<&Candidate>) -> Vec<Candidate> {
    let mut top = tree.names("/").unwrap_or_default();
    top.sort_by_key(|name| USUAL.iter().position(|usual| usual == name).unwrap_or(USUAL.len()));
    let mut found: Vec<Candidate> = top.iter().take(MOST).filter_map(|name| subvolume(tree, name)).collect();
    // Such as a snapshot deep below the top.
    let named = default.into_iter().chain(&found).filter_map(|one| one.names.clone());
    let deeper: Vec<String> = named.filter(|name| found.iter().all(|one| one.option.as_ref() != Some(name))).collect();
    found.extend(deeper.iter().filter_map(|option| subvolume(tree, option.strip_prefix("subvol=")?)));
    found
}

fn subvolume(tree: &Tree, name: &str) -> Option<Candidate> {
    let base = format!("/{name}");
    let it_is = !name.contains(',') && tree.is_subvolume(&base) && holds_system(tree, &base);
    it_is.then(|| Candidate { option: Some(format!("subvol={name}")), names: names(tree, &base) })
}

/// A link is enough: on most systems it points to /usr/lib/os-release, which need not be on this file system.
pub(super) fn holds_system(tree: &Tree, base: &str) -> bool {
    tree.has(&format!("{base}/etc/os-release"))
}

fn names(tree: &Tree, base: &str) -> Option<String> {
    let read = |path: &str| tree.read_text(&format!("{base}{path}")).ok().flatten().unwrap_or_default();
    let root = fstab::parse(&read("/etc/fstab")).into_iter().find(|line| line.point == "/");
    let by_fstab = root.and_then(|line| line.option("subvol").map(str::to_owned));
    let found = by_fstab.or_else(|| COMMAND_LINES.iter().find_map(|path| in_command_line(&read(path))));
    found.map(|name| format!("subvol={}", name.trim_matches('/')))
}

fn in_command_line(text: &str) -> Option<String> {
    let flags = text.split_whitespace().filter_map(|word| word.trim_matches('"').strip_prefix("rootflags="));
    flags.flat_map(|flags| flags.split(',')).find_map(|flag| flag.strip_prefix("subvol=")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(option: Option<&str>, names: Option<&str>) -> Candidate {
        let text = |name: Option<&str>| name.map(|name| format!("subvol={name}"));
        Candidate { option: text(option), names: text(names) }
    }

    fn chosen(found: &[Candidate]) -> Option<Option<&'static str>> {
        let known = [None, Some("@"), Some("@rootfs"), Some("root"), Some("@/.snapshots/1/snapshot")];
        choose(found).map(|option| {
            *known.iter().find(|name| name.map(|name| format!("subvol={name}")) == option).expect("a known name")
        })
    }

    #[test]
    fn the_subvolume_that_its_own_system_names_is_root() {
        assert_eq!(chosen(&[]), None);
        // Debian, Fedora: the default is the top level, which holds no system.
        assert_eq!(chosen(&[one(Some("@rootfs"), Some("@rootfs"))]), Some(Some("@rootfs")));
        // A copy of the root stands beside it, and is listed first.
        assert_eq!(chosen(&[one(Some("@"), Some("root")), one(Some("root"), Some("root"))]), Some(Some("root")));
        // openSUSE: the default subvolume, which its fstab does not name.
        assert_eq!(chosen(&[one(None, None), one(Some("@"), None)]), Some(None));
        // The default names another one.
        assert_eq!(chosen(&[one(None, Some("@")), one(Some("@"), None)]), Some(Some("@")));
        assert_eq!(chosen(&[one(None, Some("gone"))]), Some(None));
        assert_eq!(chosen(&[one(Some("root"), None), one(Some("@"), None)]), Some(Some("root")));
    }

    #[test]
    fn the_kernels_command_line_names_a_subvolume_too() {
        let grub = "menuentry x {\n linux /vmlinuz root=UUID=1 rootflags=compress=zstd,subvol=root ro\n}";
        assert_eq!(in_command_line(grub).as_deref(), Some("root"));
        assert_eq!(in_command_line("root=UUID=1 rootflags=noatime subvol=x"), None);
    }
}
