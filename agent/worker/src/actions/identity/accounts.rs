//! Accounts in the new system's own files: passwd, shadow, group, gshadow, subuid and subgid. Pure.
//!
//! They are edited and no `useradd` is run: some systems have none, it refuses an account of which an interrupted attempt made a
//! part, and it shows a hash among its arguments. Lines that are not concerned stay as they are, byte for byte.

use landfall_api::Account;

/// How many numbers a new account gets for its containers (login.defs(5), `SUB_UID_COUNT`).
const SUBORDINATES: u64 = 65536;
/// The first of them (`SUB_UID_MIN`).
const FIRST_SUBORDINATE: u64 = 100_000;
const PASSWD: &str = "/etc/passwd";
const SHADOW: &str = "/etc/shadow";
const GROUP: &str = "/etc/group";
const GSHADOW: &str = "/etc/gshadow";

/// The files, as they are or as they are to be; `None`: the system has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Databases {
    pub(super) passwd: String,
    pub(super) shadow: Option<String>,
    pub(super) group: String,
    pub(super) gshadow: Option<String>,
    pub(super) subuid: Option<String>,
    pub(super) subgid: Option<String>,
}

/// What the system gives to a new account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Defaults {
    /// The first and last number of a person's account.
    pub(super) numbers: (u32, u32),
    pub(super) shell: &'static str,
}

/// An account as it is afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// User and group.
    pub(super) owner: (u32, u32),
    pub(super) home: String,
    /// It was not there.
    pub(super) new: bool,
}

/// It cannot be added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("/etc/group of the new system has no group {0}")]
    NoGroup(String),
    #[error("every number from {0} to {1} is taken in the new system's /etc/passwd and /etc/group")]
    Full(u32, u32),
    #[error("the line of {1} in the new system's {0} cannot be understood")]
    Unreadable(&'static str, String),
    #[error("the new system has the group {0} for other purposes than an account of that name")]
    SystemGroup(String),
}

/// `UID_MIN` and `UID_MAX` of login.defs(5).
pub(super) fn numbers(login_defs: &str) -> (u32, u32) {
    let of = |key: &str| {
        let mut words = login_defs.lines().map(str::split_whitespace);
        words.find_map(|mut words| (words.next() == Some(key)).then(|| words.next()?.parse().ok()).flatten())
    };
    (of("UID_MIN").unwrap_or(1000), of("UID_MAX").unwrap_or(60000))
}

impl Databases {
    /// Adds the account, or what is stated of it to the one that is there.
    ///
    /// # Errors
    /// [`Fault`]; nothing has changed then.
    pub(super) fn add(&mut self, account: &Account, defaults: &Defaults) -> Result<Entry, Fault> {
        let mut new = self.clone();
        let entry = new.added(account, defaults)?;
        *self = new;
        Ok(entry)
    }

    fn added(&mut self, account: &Account, defaults: &Defaults) -> Result<Entry, Fault> {
        let name = account.name.as_str();
        let entry = match line(&self.passwd, name) {
            Some(there) => known(there).ok_or_else(|| Fault::Unreadable(PASSWD, name.into()))?,
            None => self.make(name, account.shell.as_deref().unwrap_or(defaults.shell), defaults.numbers)?,
        };
        if let Some(shell) = account.shell.as_deref().filter(|_| !entry.new) {
            set(&mut self.passwd, PASSWD, name, 6, shell)?;
        }
        self.password(account, entry.new)?;
        for group in &account.groups {
            if line(&self.group, group).is_none() {
                return Err(Fault::NoGroup(group.clone()));
            }
            join(&mut self.group, GROUP, group, name)?;
            if let Some(text) = &mut self.gshadow {
                join(text, GSHADOW, group, name)?;
            }
        }
        Ok(entry)
    }

    fn make(&mut self, name: &str, shell: &str, (first, last): (u32, u32)) -> Result<Entry, Fault> {
        let own = line(&self.group, name).map(|line| field(line, 2)?.parse::<u32>().ok());
        let own = own.map(|number| number.ok_or_else(|| Fault::Unreadable(GROUP, name.into()))).transpose()?;
        // `docker`, `wheel`: who has it as its own group may do what its members may.
        if own.is_some_and(|number| !(first..=last).contains(&number)) {
            return Err(Fault::SystemGroup(name.into()));
        }
        let users = taken(&self.passwd);
        let groups = taken(&self.group);
        // What an interrupted attempt began with comes out again.
        let begun = own.filter(|number| !users.contains(number));
        let free = |number: &u32| !users.contains(number) && !groups.contains(number);
        let user = begun.or_else(|| (first..=last).find(free)).ok_or(Fault::Full(first, last))?;
        let group = own.unwrap_or(user);
        if own.is_none() {
            append(&mut self.group, &format!("{name}:x:{group}:"));
        }
        if let Some(gshadow) = self.gshadow.as_mut().filter(|text| line(text, name).is_none()) {
            append(gshadow, &format!("{name}:!::"));
        }
        for ranges in [&mut self.subuid, &mut self.subgid].into_iter().flatten() {
            subordinates(ranges, name);
        }
        let home = format!("/home/{name}");
        append(&mut self.passwd, &format!("{name}:x:{user}:{group}::{home}:{shell}"));
        Ok(Entry { owner: (user, group), home, new: true })
    }

    /// `*`: no password opens it. `!` would lock it, for keys too, where sshd does not use PAM.
    fn password(&mut self, account: &Account, new: bool) -> Result<(), Fault> {
        let (name, stated) = (account.name.as_str(), account.password_hash.as_ref().map(|hash| hash.expose()));
        let Some(hash) = stated.or(new.then_some("*")) else { return Ok(()) };
        match &mut self.shadow {
            Some(shadow) if line(shadow, name).is_some() => {
                set(shadow, SHADOW, name, 1, hash)?;
                // The day of the last change: images have 0 there, which asks for another password at once.
                set(shadow, SHADOW, name, 2, "")?;
            }
            // The days of login.defs(5); no day of the last change: a wrong clock must not let it expire.
            Some(shadow) => append(shadow, &format!("{name}:{hash}::0:99999:7:::")),
            None => return set(&mut self.passwd, PASSWD, name, 1, hash),
        }
        set(&mut self.passwd, PASSWD, name, 1, "x")
    }
}

/// The line whose first field is this.
fn line<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find(|line| field(line, 0) == Some(name))
}

fn field(line: &str, n: usize) -> Option<&str> {
    line.split(':').nth(n)
}

fn known(line: &str) -> Option<Entry> {
    let number = |n| field(line, n)?.parse().ok();
    Some(Entry { owner: (number(2)?, number(3)?), home: field(line, 5)?.to_owned(), new: false })
}

/// The numbers in the third field, which passwd and group have in common.
fn taken(text: &str) -> std::collections::BTreeSet<u32> {
    text.lines().filter_map(|line| field(line, 2)?.parse().ok()).collect()
}

/// Replaces one field of the name's line in that file.
fn set(text: &mut String, file: &'static str, name: &str, n: usize, value: &str) -> Result<(), Fault> {
    change(text, file, name, n, |field| *field = value.to_owned())
}

/// Makes it a member of a group, in the last field. gshadow may lack the group.
fn join(text: &mut String, file: &'static str, group: &str, name: &str) -> Result<(), Fault> {
    change(text, file, group, 3, |members| {
        if members.split(',').all(|member| member != name) {
            let comma = if members.is_empty() { "" } else { "," };
            members.push_str(&format!("{comma}{name}"));
        }
    })
}

/// Changes one field of every line of that name.
fn change(text: &mut String, file: &'static str, name: &str, n: usize, how: impl Fn(&mut String)) -> Result<(), Fault> {
    let changed = text.split_inclusive('\n').map(|line| {
        let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
        if field(body, 0) != Some(name) {
            return Ok(line.to_owned());
        }
        let mut fields: Vec<String> = body.split(':').map(str::to_owned).collect();
        how(fields.get_mut(n).ok_or_else(|| Fault::Unreadable(file, name.into()))?);
        Ok(fields.join(":") + end)
    });
    *text = changed.collect::<Result<_, _>>()?;
    Ok(())
}

/// Adds a line at the end, but before those of NIS (`+…`), behind which no account is looked for.
fn append(text: &mut String, new: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let lines = text.split_inclusive('\n');
    let at = lines.take_while(|line| !line.starts_with('+')).map(str::len).sum();
    text.insert_str(at, &format!("{new}\n"));
}

/// Gives it the numbers behind those that are given away.
fn subordinates(text: &mut String, name: &str) {
    if line(text, name).is_some() {
        return;
    }
    let end = |line: &str| Some(field(line, 1)?.parse::<u64>().ok()?.saturating_add(field(line, 2)?.parse().ok()?));
    let first = text.lines().filter_map(end).max().unwrap_or(0).max(FIRST_SUBORDINATE);
    append(text, &format!("{name}:{first}:{SUBORDINATES}"));
}

#[cfg(test)]
mod tests {
    use landfall_api::SecretText;

    use super::*;

    const DEFAULTS: Defaults = Defaults { numbers: (1000, 60000), shell: "/bin/bash" };

    fn debian() -> Databases {
        Databases {
            passwd: "root:x:0:0:root:/root:/bin/bash\ngames:x:5:60::/usr/games:/usr/sbin/nologin\n".into(),
            shadow: Some("root:*:19700:0:99999:7:::\ngames:*:19700:0:99999:7:::\n".into()),
            group: "root:x:0:\nsudo:x:27:\nadm:x:4:syslog\n".into(),
            gshadow: Some("root:*::\nsudo:*::\nadm:*::syslog\n".into()),
            subuid: Some(String::new()),
            subgid: Some("ubuntu:100000:65536\n".into()),
        }
    }

    fn account(name: &str) -> Account {
        let (ssh_keys, groups) = (Vec::new(), Vec::new());
        Account { name: name.into(), ssh_keys, password_hash: None, sudo: false, groups, shell: None }
    }

    #[test]
    fn a_new_account_has_its_line_in_every_file() {
        let mut files = debian();
        let anna = Account { groups: vec!["adm".into(), "sudo".into()], ..account("anna") };
        let entry = files.add(&anna, &DEFAULTS).unwrap();
        assert_eq!(entry, Entry { owner: (1000, 1000), home: "/home/anna".into(), new: true });
        let expected = Databases {
            passwd: debian().passwd + "anna:x:1000:1000::/home/anna:/bin/bash\n",
            shadow: debian().shadow.map(|text| text + "anna:*::0:99999:7:::\n"),
            group: "root:x:0:\nsudo:x:27:anna\nadm:x:4:syslog,anna\nanna:x:1000:\n".into(),
            gshadow: Some("root:*::\nsudo:*::anna\nadm:*::syslog,anna\nanna:!::\n".into()),
            subuid: Some("anna:100000:65536\n".into()),
            subgid: Some("ubuntu:100000:65536\nanna:165536:65536\n".into()),
        };
        assert_eq!(files, expected);
        // Once more: nothing is there twice.
        assert_eq!(files.add(&anna, &DEFAULTS), Ok(Entry { new: false, ..entry }));
        assert_eq!(files, expected);
    }

    #[test]
    fn an_account_that_is_there_gets_what_is_stated() {
        let mut files = debian();
        let hash = Some(SecretText::new("$6$a$b"));
        let root = Account { password_hash: hash, shell: Some("/bin/zsh".into()), ..account("root") };
        let entry = files.add(&root, &DEFAULTS).unwrap();
        assert_eq!(entry, Entry { owner: (0, 0), home: "/root".into(), new: false });
        assert!(files.passwd.starts_with("root:x:0:0:root:/root:/bin/zsh\ngames"), "{}", files.passwd);
        assert!(files.shadow.unwrap().starts_with("root:$6$a$b::0:99999:7:::\ngames:*"));
        let mut files = debian();
        files.add(&account("games"), &DEFAULTS).unwrap();
        assert_eq!(files, debian(), "nothing is stated");
    }

    #[test]
    fn a_power_cut_between_two_files_changes_no_number() {
        let mut whole = debian();
        let anna = account("anna");
        whole.add(&anna, &DEFAULTS).unwrap();
        for (shadow, group) in [(true, false), (false, true), (true, true)] {
            let mut cut = debian();
            if shadow {
                cut.shadow.clone_from(&whole.shadow);
            }
            if group {
                (cut.group, cut.subuid) = (whole.group.clone(), whole.subuid.clone());
            }
            assert!(cut.add(&anna, &DEFAULTS).unwrap().new);
            assert_eq!(cut, whole, "{shadow} {group}");
        }
    }

    #[test]
    fn numbers_of_people_and_groups_are_never_given_twice() {
        let mut files = debian();
        files.passwd += "ann:x:1000:1000::/home/ann:/bin/sh\n+::::::";
        files.group += "ann:x:1000:\nlab:x:1001:\n";
        assert_eq!(files.add(&account("bob"), &DEFAULTS).unwrap().owner, (1002, 1002));
        assert!(files.passwd.ends_with("bob:x:1002:1002::/home/bob:/bin/bash\n+::::::\n"), "{}", files.passwd);
        let few = Defaults { numbers: (1000, 1002), ..DEFAULTS };
        let before = files.clone();
        assert_eq!(files.add(&account("eve"), &few), Err(Fault::Full(1000, 1002)));
        let nemo = Account { groups: vec!["nemo".into()], ..account("eve") };
        assert_eq!(files.add(&nemo, &DEFAULTS), Err(Fault::NoGroup("nemo".into())));
        assert_eq!(files, before);
    }

    #[test]
    fn a_system_without_shadow_has_its_hash_in_passwd() {
        let mut files = Databases { passwd: "root::0:0::/:/bin/sh\n".into(), ..Databases::default() };
        let hash = Some(SecretText::new("$6$a$b"));
        files.add(&Account { password_hash: hash, ..account("anna") }, &DEFAULTS).unwrap();
        assert_eq!(files.passwd, "root::0:0::/:/bin/sh\nanna:$6$a$b:1000:1000::/home/anna:/bin/bash\n");
        files.passwd += "odd:x\n";
        assert_eq!(files.add(&account("odd"), &DEFAULTS), Err(Fault::Unreadable(PASSWD, "odd".into())));
    }

    #[test]
    fn what_cannot_be_joined_or_set_is_refused_unchanged() {
        let mut files = debian();
        files.group += "short:x:7\n";
        files.passwd += "short:x:8:8::/\n";
        let before = files.clone();
        let of = |name: &str, groups: &[&str]| {
            let groups = groups.iter().map(|group| (*group).to_owned()).collect();
            Account { groups, ..account(name) }
        };
        let shell = Account { shell: Some("/bin/zsh".into()), ..account("short") };
        for (account, fault) in [
            (of("anna", &["short"]), Fault::Unreadable(GROUP, "short".into())),
            (of("games", &["games"]), Fault::NoGroup("games".into())),
            (shell, Fault::Unreadable(PASSWD, "short".into())),
            (of("sudo", &[]), Fault::SystemGroup("sudo".into())),
        ] {
            assert_eq!(files.add(&account, &DEFAULTS), Err(fault));
            assert_eq!(files, before);
        }
        files.add(&of("anna", &["anna"]), &DEFAULTS).unwrap();
        assert!(files.group.ends_with("anna:x:1000:anna\n"), "{}", files.group);
    }

    #[test]
    fn the_systems_own_range_of_numbers_holds() {
        assert_eq!(numbers("# UID_MIN 5\nUID_MIN\t\t  500\nSYS_UID_MIN 201\nUID_MAX 600\n"), (500, 600));
        assert_eq!(numbers(""), (1000, 60000));
    }
}
