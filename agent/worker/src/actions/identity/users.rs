//! Accounts: the databases, homes, keys, and who may use sudo.

use landfall_api::{Account, ErrorCode, Problem};
use rustix::fs::FileType;

use super::super::files::{Attributes, Files};
use super::accounts::{Databases, Defaults, Entry, Fault, numbers};
use crate::{Failure, Reporter};

const SUDOERS: &str = "/etc/sudoers.d";
/// What a new home begins with (useradd(8)).
const SKELETON: &str = "/etc/skel";
/// Entries of it, and directories in one another, at most: those of distributions are a dozen, in two.
const MOST_OF_SKELETON: usize = 1000;
const DEEPEST: usize = 8;
/// The SELinux type of what is in a home.
const OF_HOMES: &str = "user_home_t";
const ROOT: (u32, u32) = (0, 0);

/// Adds the accounts. Nothing is changed unless all of them can be added.
///
/// # Errors
/// What the system lacks; the file system's.
pub(super) fn write(report: &Reporter, files: &Files, accounts: &[Account]) -> Result<(), Failure> {
    if accounts.is_empty() {
        return Ok(());
    }
    if accounts.iter().any(|account| account.sudo) {
        reads_folder(report, files)?;
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
    for (account, entry) in accounts.iter().zip(&entries).filter(|(_, entry)| entry.new && files.has(&entry.home)) {
        let owner = files.attributes(&entry.home)?.owner;
        if owner != entry.owner && owner != ROOT {
            let (home, name, (has, _), (gets, _)) = (&entry.home, &account.name, owner, entry.owner);
            let message =
                format!("{home} of the new system belongs to number {has}, and its new account {name} gets {gets}");
            return Err(lacks(message, "remove that directory from what is unpacked, or add the account there"));
        }
    }
    // An account is there as soon as passwd has it: its home comes before that, so that a power cut leaves no half of one.
    for (account, entry) in accounts.iter().zip(&entries) {
        home(report, files, account, entry)?;
    }
    store(files, &old, &new)?;
    for account in accounts.iter().filter(|account| account.sudo) {
        files.make(SUDOERS, Attributes::of_root(0o750))?;
        files.put(&sudoers_of(&account.name), sudoers(&account.name).as_bytes(), Attributes::of_root(0o440))?;
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

fn home(report: &Reporter, files: &Files, account: &Account, entry: &Entry) -> Result<(), Failure> {
    let own = |mode| Attributes { mode, owner: entry.owner };
    let keys = &account.ssh_keys;
    if entry.new || !keys.is_empty() {
        let made = files.make(&entry.home, own(0o700))?;
        // Where a volume is mounted, or what an archive forgot.
        if entry.new && !made && files.attributes(&entry.home)?.owner == ROOT {
            files.settle(&entry.home, own(0o700))?;
        }
        if made && entry.owner != ROOT {
            files.relabel(&entry.home, "user_home_dir_t")?;
        }
    }
    if entry.new {
        let mut left = MOST_OF_SKELETON;
        skeleton(files, SKELETON, &entry.home, entry.owner, DEEPEST, &mut left)?;
    }
    if keys.is_empty() {
        return Ok(());
    }
    let folder = format!("{}/.ssh", entry.home.trim_end_matches('/'));
    let path = format!("{folder}/authorized_keys");
    files.make(&folder, own(0o700))?;
    let there = files.text(&path)?;
    let keys = with_keys(there.as_deref().unwrap_or_default(), keys);
    if there.as_ref() != Some(&keys) {
        files.put(&path, keys.as_bytes(), own(0o600))?;
    }
    // sshd takes no key out of a file that others might have written.
    for (path, mode) in [(&folder, 0o700), (&path, 0o600)] {
        if files.kind(path)? == Some(FileType::Symlink) {
            report.warn(format_args!("{path} of the new system is a link: its owner and mode stay as they are"));
            continue;
        }
        files.settle(path, own(mode))?;
        files.relabel(path, "ssh_home_t")?;
    }
    Ok(())
}

/// Copies what is missing of the skeleton.
fn skeleton(
    files: &Files, from: &str, to: &str, owner: (u32, u32), deeper: usize, left: &mut usize,
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
                if files.make(&place, Attributes { mode, owner })? {
                    files.relabel(&place, OF_HOMES)?;
                }
                skeleton(files, &source, &place, owner, deeper - 1, left)?;
            }
            Some(FileType::RegularFile) if missing => {
                let Attributes { mode, .. } = files.attributes(&source)?;
                let content = files.read(&source)?.unwrap_or_default();
                files.put(&place, &content, Attributes { mode, owner })?;
                files.relabel(&place, OF_HOMES)?;
            }
            Some(FileType::Symlink) if missing => {
                if let Some(target) = files.target(&source) {
                    files.link(&place, &target, owner)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The lines that are there, and behind them those that are missing.
fn with_keys(there: &str, wanted: &[String]) -> String {
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

/// One file for each account: another action adds to it. sudo reads no file with a dot in its name, and no account has a `=`.
fn sudoers_of(name: &str) -> String {
    format!("{SUDOERS}/90-landfall-{}", name.replace('.', "="))
}

fn sudoers(name: &str) -> String {
    format!("# Written by Landfall from the workflow's identity action.\n{name} ALL=(ALL:ALL) NOPASSWD:ALL\n")
}

/// sudo is there, and reads what is written for it.
fn reads_folder(report: &Reporter, files: &Files) -> Result<(), Failure> {
    let text = match files.text("/etc/sudoers")? {
        Some(text) => Some(text),
        None => files.text("/usr/etc/sudoers")?,
    };
    let program = ["/usr/bin/sudo", "/usr/local/bin/sudo", "/bin/sudo"].iter().any(|path| files.has(path));
    let Some(text) = text.filter(|_| program) else {
        return Err(lacks("the new system has no sudo".into(), "install sudo in what is unpacked, or leave sudo: out"));
    };
    let reads = |line: &str| {
        let mut words = line.split_whitespace();
        matches!(words.next(), Some("@includedir" | "#includedir"))
            && words.next().is_some_and(|folder| folder.trim_end_matches('/') == SUDOERS)
    };
    let mut behind = text.lines().skip_while(|line| !reads(line));
    if behind.next().is_none() {
        let hint = "add \"@includedir /etc/sudoers.d\" to it in what is unpacked, or leave sudo: out";
        return Err(lacks("/etc/sudoers of the new system does not include /etc/sudoers.d".into(), hint));
    }
    if behind.any(|line| !line.trim().is_empty() && !line.trim_start().starts_with(['#', '@'])) {
        report.warn(
            "/etc/sudoers of the new system has rules behind /etc/sudoers.d: they count, if they fit the account",
        );
    }
    Ok(())
}

fn refused(fault: &Fault) -> Failure {
    let hint = match fault {
        Fault::NoGroup(_) => "correct groups in the template, or make the group with an earlier exec action",
        Fault::Full(..) => "raise UID_MAX in the new system's /etc/login.defs",
        Fault::Unreadable(..) => "correct that line in what is unpacked",
        Fault::SystemGroup(_) => "choose another name, or add the account in what is unpacked",
    };
    lacks(fault.to_string(), hint)
}

fn lacks(message: String, hint: &str) -> Failure {
    Failure::last(Problem::new(ErrorCode::InvalidTemplate, message).hint(hint))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
    use std::path::Path;

    use super::*;
    use crate::testing::caged;

    const KEY: &str = "ssh-ed25519 AAAAC3 anna@desk";

    /// In a cage.
    fn system() -> Files {
        let root = Path::new("/root");
        let put = |path: &str, text: &str, mode| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        put("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n", 0o644);
        put("etc/shadow", "root:*:1::::::\n", 0o640);
        put("etc/group", "root:x:0:\nadm:x:4:\n", 0o644);
        put("etc/sudoers", "root ALL=(ALL:ALL) ALL\n@includedir /etc/sudoers.d\n", 0o440);
        put("usr/bin/sudo", "", 0o755);
        put("etc/skel/.profile", "umask 027\n", 0o644);
        put("etc/skel/.config/x", "y", 0o600);
        put("bin/bash", "", 0o755);
        symlink("/etc/motd", root.join("etc/skel/motd")).unwrap();
        std::os::unix::fs::chown(root.join("etc/shadow"), Some(0), Some(42)).unwrap();
        Files::of(root).unwrap()
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

    fn write(files: &Files, accounts: &[Account]) -> Result<(), Failure> {
        super::write(&Reporter::new(std::io::sink()), files, accounts)
    }

    fn facts(path: &str) -> (u32, u32, u32) {
        let facts = fs::symlink_metadata(Path::new("/root").join(path)).expect(path);
        (facts.mode() & 0o7777, facts.uid(), facts.gid())
    }

    #[test]
    fn a_new_account_can_log_in_and_use_sudo() {
        caged(|| {
            let files = system();
            let text = |path: &str| files.text(path).unwrap().unwrap();
            for _ in 0..2 {
                write(&files, &[anna()]).unwrap();
                assert_eq!(text("/etc/passwd").lines().last(), Some("anna:x:1000:1000::/home/anna:/bin/bash"));
                assert_eq!(text("/home/anna/.ssh/authorized_keys"), format!("{KEY}\n"));
                assert_eq!(text("/etc/group"), "root:x:0:\nadm:x:4:anna\nanna:x:1000:\n");
            }
            assert_eq!(text("/etc/sudoers.d/90-landfall-anna").lines().last(), Some("anna ALL=(ALL:ALL) NOPASSWD:ALL"));
            for (path, expected) in [
                ("etc/shadow", (0o640, 0, 42)),
                ("etc/passwd", (0o644, 0, 0)),
                ("etc/sudoers.d", (0o750, 0, 0)),
                ("etc/sudoers.d/90-landfall-anna", (0o440, 0, 0)),
                ("home", (0o755, 0, 0)),
                ("home/anna", (0o700, 1000, 1000)),
                ("home/anna/.profile", (0o644, 1000, 1000)),
                ("home/anna/.config/x", (0o600, 1000, 1000)),
                ("home/anna/.ssh", (0o700, 1000, 1000)),
                ("home/anna/.ssh/authorized_keys", (0o600, 1000, 1000)),
                ("home/anna/motd", (0o777, 1000, 1000)),
            ] {
                assert_eq!(facts(path), expected, "{path}");
            }
            assert_eq!(files.target("/home/anna/motd").as_deref(), Some("/etc/motd"));
        });
    }

    #[test]
    fn keys_that_are_there_stay_and_come_once() {
        let all = ["a".to_owned(), "b ".to_owned()];
        assert_eq!(with_keys("# own\na", &all), "# own\na\nb\n");
        assert_eq!(with_keys("b\na\n", &all), "b\na\n");
    }

    #[test]
    fn a_second_action_takes_sudo_from_no_account() {
        caged(|| {
            let files = system();
            write(&files, &[anna()]).unwrap();
            write(&files, &[Account { name: "a.b".into(), groups: Vec::new(), ..anna() }]).unwrap();
            assert_eq!(files.names(SUDOERS).unwrap(), ["90-landfall-a=b", "90-landfall-anna"]);
        });
    }

    #[test]
    fn keys_count_whatever_directory_the_image_has() {
        caged(|| {
            let files = system();
            fs::create_dir_all("/root/home/anna/.ssh").unwrap();
            fs::write("/root/home/anna/.ssh/authorized_keys", format!("{KEY}\n")).unwrap();
            for path in ["/root/home/anna/.ssh", "/root/home/anna/.ssh/authorized_keys"] {
                fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
            }
            let bob = Account { name: "bob".into(), ..anna() };
            let passwd = "root:x:0:0:root:/root:/bin/sh\nbob:x:1001:1001::/srv/bob:/bin/sh\n";
            fs::write("/root/etc/passwd", passwd).unwrap();
            write(&files, &[anna(), bob]).unwrap();
            for (path, expected) in [
                ("home/anna", (0o700, 1000, 1000)),
                ("home/anna/.ssh", (0o700, 1000, 1000)),
                ("home/anna/.ssh/authorized_keys", (0o600, 1000, 1000)),
                ("srv", (0o755, 0, 0)),
                ("srv/bob", (0o700, 1001, 1001)),
                ("srv/bob/.ssh", (0o700, 1001, 1001)),
            ] {
                assert_eq!(facts(path), expected, "{path}");
            }
        });
    }

    #[test]
    fn a_home_of_another_account_is_given_to_none() {
        caged(|| {
            let files = system();
            files.make("/home/anna", Attributes { mode: 0o700, owner: (1001, 1001) }).unwrap();
            let problem = write(&files, &[anna()]).unwrap_err().problem;
            assert!(problem.message.contains("/home/anna") && problem.message.contains("1001"), "{problem}");
            assert!(!files.text("/etc/passwd").unwrap().unwrap().contains("anna"));
        });
    }

    #[test]
    fn homes_and_keys_have_the_labels_that_sshd_reads() {
        caged(|| {
            let files = system();
            let label = c"security.selinux";
            for (path, kind) in [("/root/home", "home_root_t"), ("/root/root", "admin_home_t")] {
                fs::create_dir(path).unwrap();
                let old = format!("system_u:object_r:{kind}:s0");
                if let Err(error) = rustix::fs::setxattr(path, label, old.as_bytes(), rustix::fs::XattrFlags::empty()) {
                    eprintln!("SKIPPED: no labels can be set here: {error}");
                    return;
                }
            }
            let root = Account { name: "root".into(), sudo: false, groups: Vec::new(), ..anna() };
            write(&files, &[anna(), root]).unwrap();
            for (path, kind) in [
                ("/root/home/anna", "user_home_dir_t"),
                ("/root/home/anna/.profile", "user_home_t"),
                ("/root/home/anna/.ssh", "ssh_home_t"),
                ("/root/home/anna/.ssh/authorized_keys", "ssh_home_t"),
                ("/root/root", "admin_home_t"),
                ("/root/root/.ssh/authorized_keys", "ssh_home_t"),
            ] {
                let mut found = [0; 100];
                let length = rustix::fs::lgetxattr(path, label, &mut found[..]).unwrap();
                assert_eq!(String::from_utf8_lossy(&found[..length]), format!("system_u:object_r:{kind}:s0"), "{path}");
            }
        });
    }

    #[test]
    fn an_account_without_its_home_is_not_there() {
        caged(|| {
            let files = system();
            fs::write("/root/home", "").unwrap();
            let problem = write(&files, &[anna()]).unwrap_err().problem;
            assert!(problem.code == ErrorCode::DeviceIo && problem.subject == "/home/anna", "{problem}");
            assert!(!files.text("/etc/passwd").unwrap().unwrap().contains("anna"));
            fs::remove_file("/root/home").unwrap();
            write(&files, &[anna()]).unwrap();
            assert!(files.has("/home/anna/.ssh/authorized_keys"));
        });
    }

    #[test]
    fn what_the_system_lacks_is_named_before_any_change() {
        type Damage = fn(&Path, &mut Account);
        let damages: [(Damage, &str); 6] = [
            (|_, account| account.shell = Some("/bin/zsh".into()), "no /bin/zsh"),
            (|_, account| account.groups = vec!["docker".into()], "no group docker"),
            (|root, _| fs::remove_file(root.join("etc/sudoers")).unwrap(), "no sudo"),
            (|root, _| fs::remove_file(root.join("usr/bin/sudo")).unwrap(), "no sudo"),
            (|root, _| fs::write(root.join("etc/sudoers"), "root ALL=(ALL) ALL\n").unwrap(), "does not include"),
            (|root, _| fs::remove_file(root.join("etc/group")).unwrap(), "no /etc/group"),
        ];
        for (damage, said) in damages {
            caged(|| {
                let (files, mut account) = (system(), anna());
                damage(Path::new("/root"), &mut account);
                let problem = write(&files, &[account]).unwrap_err().problem;
                assert!(problem.message.contains(said) && !problem.hint.is_empty(), "{problem}");
                assert!(!files.has("/home") && !files.has(SUDOERS), "{said}");
            });
        }
    }
}
