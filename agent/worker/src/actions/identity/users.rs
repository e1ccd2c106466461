//! Accounts: the databases, homes, keys, and who may use sudo.

use landfall_api::{Account, ErrorCode, Problem};
use rustix::fs::FileType;

use super::{
    super::files::{Attributes, Files},
    accounts::{Databases, Defaults, Entry, Fault, numbers},
};
use crate::Failure;

const SUDOERS: &str = "/etc/sudoers.d/90-landfall";
/// What a new home begins with (useradd(8)).
const SKELETON: &str = "/etc/skel";
/// Entries of it, and directories in one another, at most: those of distributions are a dozen, in two.
const MOST_OF_SKELETON: usize = 1000;
const DEEPEST: usize = 8;

/// Adds the accounts. Nothing is changed unless all of them can be added.
///
/// # Errors
/// What the system lacks; the file system's.
pub(super) fn write(files: &Files, accounts: &[Account]) -> Result<(), Failure> {
    if accounts.is_empty() {
        return Ok(());
    }
    let sudo = accounts.iter().any(|account| account.sudo);
    if sudo {
        reads_folder(files)?;
    }
    for (account, shell) in accounts.iter().filter_map(|account| Some((account, account.shell.as_deref()?))) {
        if !files.has(shell) {
            let message = format!("the new system has no {shell}, the login shell of {}", account.name);
            return Err(lacks(message, "correct shell in the template, or install the shell in what is unpacked"));
        }
    }
    let old = read(files)?;
    let mut new = old.clone();
    let defaults = Defaults {
        numbers: numbers(&files.text("/etc/login.defs")?.unwrap_or_default()),
        shell: if files.has("/bin/bash") { "/bin/bash" } else { "/bin/sh" },
    };
    let add = |account| new.add(account, &defaults).map_err(|fault| refused(&fault));
    let entries = accounts.iter().map(add).collect::<Result<Vec<_>, _>>()?;
    // An account is there as soon as passwd has it: its home comes before that, so that a power cut leaves no half of one.
    for (account, entry) in accounts.iter().zip(&entries) {
        home(files, account, entry)?;
    }
    store(files, &old, &new)?;
    if sudo {
        files.put(SUDOERS, sudoers(accounts).as_bytes(), Attributes::of_root(0o440))?;
    }
    Ok(())
}

fn read(files: &Files) -> Result<Databases, Failure> {
    let needed = |path: &str| {
        let none = || lacks(format!("the new system has no {path}"), "check what was unpacked or written before");
        files.text(path)?.ok_or_else(none)
    };
    Ok(Databases {
        passwd: needed("/etc/passwd")?,
        shadow: files.text("/etc/shadow")?,
        group: needed("/etc/group")?,
        gshadow: files.text("/etc/gshadow")?,
        subuid: files.text("/etc/subuid")?,
        subgid: files.text("/etc/subgid")?,
    })
}

/// Puts those in place that have changed, with the mode and owner that they had; passwd last.
fn store(files: &Files, old: &Databases, new: &Databases) -> Result<(), Failure> {
    let all = [
        ("/etc/subuid", old.subuid.as_ref(), new.subuid.as_ref()),
        ("/etc/subgid", old.subgid.as_ref(), new.subgid.as_ref()),
        ("/etc/gshadow", old.gshadow.as_ref(), new.gshadow.as_ref()),
        ("/etc/group", Some(&old.group), Some(&new.group)),
        ("/etc/shadow", old.shadow.as_ref(), new.shadow.as_ref()),
        ("/etc/passwd", Some(&old.passwd), Some(&new.passwd)),
    ];
    for (path, old, new) in all {
        if let Some(text) = new.filter(|_| old != new) {
            files.put(path, text.as_bytes(), files.attributes(path)?)?;
        }
    }
    Ok(())
}

fn home(files: &Files, account: &Account, entry: &Entry) -> Result<(), Failure> {
    let own = |mode| Attributes { mode, owner: entry.owner };
    if entry.new {
        files.make(&entry.home, own(0o700))?;
        let mut left = MOST_OF_SKELETON;
        skeleton(files, SKELETON, &entry.home, entry.owner, DEEPEST, &mut left)?;
    }
    if account.ssh_keys.is_empty() {
        return Ok(());
    }
    let folder = format!("{}/.ssh", entry.home.trim_end_matches('/'));
    files.make(&folder, own(0o700))?;
    let path = format!("{folder}/authorized_keys");
    let there = files.text(&path)?;
    let keys = keys(there.as_deref().unwrap_or_default(), &account.ssh_keys);
    if there.as_ref() != Some(&keys) {
        files.put(&path, keys.as_bytes(), own(0o600))?;
    }
    Ok(())
}

/// Copies what is missing of the skeleton.
fn skeleton(
    files: &Files,
    from: &str,
    to: &str,
    owner: (u32, u32),
    deeper: usize,
    left: &mut usize,
) -> Result<(), Failure> {
    for name in files.names(from)? {
        let (source, place) = (format!("{from}/{name}"), format!("{to}/{name}"));
        if deeper == 0 || *left == 0 {
            let message =
                format!("{SKELETON} of the new system has more than {MOST_OF_SKELETON} entries or {DEEPEST} levels");
            return Err(lacks(message, "correct it in what is unpacked"));
        }
        *left -= 1;
        let missing = files.kind(&place)?.is_none();
        match files.kind(&source)? {
            Some(FileType::Directory) => {
                let Attributes { mode, .. } = files.attributes(&source)?;
                files.make(&place, Attributes { mode, owner })?;
                skeleton(files, &source, &place, owner, deeper - 1, left)?;
            }
            Some(FileType::RegularFile) if missing => {
                let Attributes { mode, .. } = files.attributes(&source)?;
                let content = files.read(&source)?.unwrap_or_default();
                files.put(&place, &content, Attributes { mode, owner })?;
            }
            Some(FileType::Symlink) if missing => {
                if let Some(target) = files.target(&source) {
                    files.link(&place, &target)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The lines that are there, and behind them those that are missing.
fn keys(there: &str, wanted: &[String]) -> String {
    let mut text = there.to_owned();
    for key in wanted {
        if there.lines().any(|line| line.trim() == key.trim()) {
            continue;
        }
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(key.trim());
        text.push('\n');
    }
    text
}

fn sudoers(accounts: &[Account]) -> String {
    let lines = accounts.iter().filter(|account| account.sudo);
    let lines = lines.map(|account| format!("{} ALL=(ALL:ALL) NOPASSWD:ALL\n", account.name));
    format!("# Written by Landfall from the workflow's identity action.\n{}", lines.collect::<String>())
}

/// sudo is there, and reads what is written for it.
fn reads_folder(files: &Files) -> Result<(), Failure> {
    let text = match files.text("/etc/sudoers")? {
        Some(text) => Some(text),
        None => files.text("/usr/etc/sudoers")?,
    };
    let Some(text) = text else {
        return Err(lacks("the new system has no sudo".into(), "install sudo in what is unpacked, or leave sudo: out"));
    };
    let reads = |line: &str| {
        let mut words = line.split_whitespace();
        matches!(words.next(), Some("@includedir" | "#includedir"))
            && words.next().is_some_and(|folder| folder.trim_end_matches('/') == "/etc/sudoers.d")
    };
    if text.lines().any(reads) {
        return Ok(());
    }
    let hint = "add \"@includedir /etc/sudoers.d\" to it in what is unpacked, or leave sudo: out";
    Err(lacks("/etc/sudoers of the new system does not include /etc/sudoers.d".into(), hint))
}

fn refused(fault: &Fault) -> Failure {
    let hint = match fault {
        Fault::NoGroup(_) => "correct groups in the template, or make the group with an earlier exec action",
        Fault::Full(..) => "raise UID_MAX in the new system's /etc/login.defs",
        Fault::Unreadable(_) => "correct that line in what is unpacked",
    };
    lacks(fault.to_string(), hint)
}

fn lacks(message: String, hint: &str) -> Failure {
    Failure::last(Problem::new(ErrorCode::InvalidTemplate, message).hint(hint))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
        path::Path,
    };

    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3 anna@desk";

    fn system() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str, mode| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        put("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n", 0o644);
        put("etc/shadow", "root:*:1::::::\n", 0o640);
        put("etc/group", "root:x:0:\nadm:x:4:\n", 0o644);
        put("etc/sudoers", "root ALL=(ALL:ALL) ALL\n@includedir /etc/sudoers.d\n", 0o440);
        put("etc/skel/.profile", "umask 027\n", 0o644);
        put("etc/skel/.config/x", "y", 0o600);
        put("bin/bash", "", 0o755);
        symlink("/etc/motd", root.path().join("etc/skel/motd")).unwrap();
        std::os::unix::fs::chown(root.path().join("etc/shadow"), Some(0), Some(42)).unwrap();
        root
    }

    fn anna() -> Account {
        Account {
            name: "anna".into(),
            ssh_keys: vec![KEY.into()],
            password_hash: None,
            sudo: true,
            groups: vec!["adm".into()],
            shell: None,
        }
    }

    fn facts(root: &Path, path: &str) -> (u32, u32, u32) {
        let facts = fs::symlink_metadata(root.join(path)).expect(path);
        (facts.mode() & 0o7777, facts.uid(), facts.gid())
    }

    #[test]
    fn a_new_account_can_log_in_and_use_sudo() {
        let root = system();
        let files = Files::of(root.path()).unwrap();
        let text = |path: &str| fs::read_to_string(root.path().join(path)).unwrap();
        for _ in 0..2 {
            write(&files, &[anna()]).unwrap();
            assert_eq!(text("etc/passwd").lines().last(), Some("anna:x:1000:1000::/home/anna:/bin/bash"));
            assert_eq!(text("home/anna/.ssh/authorized_keys"), format!("{KEY}\n"));
            assert_eq!(text("etc/group"), "root:x:0:\nadm:x:4:anna\nanna:x:1000:\n");
        }
        assert_eq!(text("etc/sudoers.d/90-landfall").lines().last(), Some("anna ALL=(ALL:ALL) NOPASSWD:ALL"));
        for (path, expected) in [
            ("etc/shadow", (0o640, 0, 42)),
            ("etc/passwd", (0o644, 0, 0)),
            ("etc/sudoers.d/90-landfall", (0o440, 0, 0)),
            ("home", (0o755, 0, 0)),
            ("home/anna", (0o700, 1000, 1000)),
            ("home/anna/.profile", (0o644, 1000, 1000)),
            ("home/anna/.config/x", (0o600, 1000, 1000)),
            ("home/anna/.ssh", (0o700, 1000, 1000)),
            ("home/anna/.ssh/authorized_keys", (0o600, 1000, 1000)),
        ] {
            assert_eq!(facts(root.path(), path), expected, "{path}");
        }
        assert_eq!(fs::read_link(root.path().join("home/anna/motd")).unwrap(), Path::new("/etc/motd"));
    }

    #[test]
    fn keys_that_are_there_stay_and_come_once() {
        let all = ["a".to_owned(), "b ".to_owned()];
        assert_eq!(keys("# own\na", &all), "# own\na\nb\n");
        assert_eq!(keys("b\na\n", &all), "b\na\n");
    }

    #[test]
    fn an_account_without_its_home_is_not_there() {
        let root = system();
        fs::write(root.path().join("home"), "").unwrap();
        let files = Files::of(root.path()).unwrap();
        let problem = write(&files, &[anna()]).unwrap_err().problem;
        assert!(problem.code == ErrorCode::DeviceIo && problem.subject == "/home/anna", "{problem}");
        assert!(!files.text("/etc/passwd").unwrap().unwrap().contains("anna"));
        fs::remove_file(root.path().join("home")).unwrap();
        write(&files, &[anna()]).unwrap();
        assert!(files.has("/home/anna/.ssh/authorized_keys"));
    }

    #[test]
    fn what_the_system_lacks_is_named_before_any_change() {
        type Damage = fn(&Path, &mut Account);
        let damages: [(Damage, &str); 5] = [
            (|_, account| account.shell = Some("/bin/zsh".into()), "no /bin/zsh"),
            (|_, account| account.groups = vec!["docker".into()], "no group docker"),
            (|root, _| fs::remove_file(root.join("etc/sudoers")).unwrap(), "no sudo"),
            (|root, _| fs::write(root.join("etc/sudoers"), "root ALL=(ALL) ALL\n").unwrap(), "does not include"),
            (|root, _| fs::remove_file(root.join("etc/group")).unwrap(), "no /etc/group"),
        ];
        for (damage, said) in damages {
            let (root, mut account) = (system(), anna());
            damage(root.path(), &mut account);
            let files = Files::of(root.path()).unwrap();
            let problem = write(&files, &[account]).unwrap_err().problem;
            assert!(problem.message.contains(said) && !problem.hint.is_empty(), "{problem}");
            assert!(!root.path().join("home").exists() && !root.path().join("etc/sudoers.d").exists(), "{said}");
        }
    }
}
