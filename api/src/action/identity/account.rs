//! Accounts of an installed system, and what is wrong with them.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use super::super::rules::{LOGIN_NAME_HINT, Rules, is_login_name, plain_text};
use super::UnusableAccount;
use crate::{SecretText, issue::has_expression};

/// An account of the installed system.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccountSpec {
    /// Login name; `root` too.
    pub name: String,
    /// Public keys, one item each; they may be secrets. Those that its `authorized_keys` has already stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ssh_keys: Vec<String>,
    /// What crypt(3) makes of its password, as `openssl passwd -6` prints it; it may be a secret. Default: a new account has no
    /// password, and none opens it.
    pub password_hash: Option<String>,
    /// May use sudo without a password.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sudo: bool,
    /// Supplementary groups, which the installed system must have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Login shell, which the installed system must have. Default: `/bin/bash` if it has one, else `/bin/sh`.
    pub shell: Option<String>,
}

/// An account as an agent is sent it.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    /// Login name.
    pub name: String,
    /// Public keys.
    pub ssh_keys: Vec<String>,
    /// A hash of crypt(3), without `:` and line ends; `None`: as it is.
    pub password_hash: Option<SecretText>,
    /// May use sudo without a password.
    pub sudo: bool,
    /// Supplementary groups.
    pub groups: Vec<String>,
    /// Login shell; `None`: as it is, or the default of a new account.
    pub shell: Option<String>,
}

/// Accounts as an agent is sent them: checked once more, now with what expressions and secrets put in.
pub(super) fn resolved(users: Vec<AccountSpec>) -> Result<Vec<Account>, UnusableAccount> {
    let mut names = BTreeSet::new();
    let one = |(account, user): (usize, AccountSpec)| {
        let AccountSpec { name, ssh_keys, password_hash, sudo, groups, shell } = user;
        for (right, field, lacks) in [
            (is_login_name(&name), "name", "no login name"),
            (names.insert(name.clone()), "name", "the name of an earlier item"),
            (ssh_keys.iter().all(|key| is_public_key(key)), "sshKeys", "no list of public keys"),
            (password_hash.as_deref().is_none_or(is_hash), "passwordHash", "no hash of crypt(3)"),
            (groups.iter().all(|group| is_login_name(group)), "groups", "no list of groups"),
            (shell.as_deref().is_none_or(is_shell), "shell", "no path of a login shell"),
        ] {
            if !right {
                return Err(UnusableAccount { account, field, lacks });
            }
        }
        Ok(Account { name, ssh_keys, password_hash: password_hash.map(SecretText::new), sudo, groups, shell })
    };
    users.into_iter().enumerate().map(one).collect()
}

/// The list of accounts at `path`.
pub(super) fn check(users: Option<&Value>, path: &str, rules: &mut Rules<'_>) {
    let mut names = BTreeSet::new();
    for (i, user) in users.and_then(Value::as_array).into_iter().flatten().enumerate() {
        let Some(user) = user.as_object() else { continue };
        let at = |field: &str| format!("{path}[{i}].{field}");
        if let Some(name) = plain_text(user, "name") {
            if !is_login_name(name) {
                rules.say(at("name"), format!("\"{name}\" cannot be a login name"), LOGIN_NAME_HINT);
            } else if !names.insert(name) {
                rules.say(at("name"), format!("the account {name} is there twice"), "write all of it into one item");
            }
        }
        for (n, key) in texts(user.get("sshKeys")).filter(|(_, key)| !is_public_key(key)) {
            let message =
                if key.contains("PRIVATE KEY") { "a private key belongs to no server" } else { "it is no public key" };
            let hint = "write the one line of a file such as id_ed25519.pub, beginning with its type";
            rules.say(at(&format!("sshKeys[{n}]")), message, hint);
        }
        if plain_text(user, "passwordHash").is_some_and(|hash| !is_hash(hash)) {
            let hint = "write what openssl passwd -6 prints, better as a secret: \"{{ secrets.NAME.KEY }}\"";
            rules.say(at("passwordHash"), "it is no hash of crypt(3)", hint);
        }
        for (n, group) in texts(user.get("groups")).filter(|(_, group)| !is_login_name(group)) {
            let message = format!("\"{group}\" cannot be a group");
            rules.say(at(&format!("groups[{n}]")), message, "write the name of a group, one item each");
        }
        if let Some(shell) = plain_text(user, "shell").filter(|shell| !is_shell(shell)) {
            rules.say(at("shell"), format!("\"{shell}\" cannot be a login shell"), "write a path such as /bin/bash");
        }
    }
}

/// The texts of a list that are no expressions, with their places.
fn texts(list: Option<&Value>) -> impl Iterator<Item = (usize, &str)> {
    let items = list.and_then(Value::as_array).into_iter().flatten().enumerate();
    items.filter_map(|(n, item)| Some((n, item.as_str().filter(|text| !has_expression(text))?)))
}

/// One line of `authorized_keys` (sshd(8)): options or not, a type, and base64.
fn is_public_key(text: &str) -> bool {
    let kinds = ["ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-"];
    let mut words = text.split(' ');
    let begins = words.by_ref().any(|word| kinds.iter().any(|kind| word.starts_with(kind)));
    begins && words.next().is_some_and(|body| body.starts_with("AAAA")) && !text.contains(char::is_control)
}

/// `$id$…`, of what such a hash consists of (crypt(5)); none of it ends a field or a line of `/etc/shadow`.
fn is_hash(text: &str) -> bool {
    let part = |b: u8| b.is_ascii_alphanumeric() || b"./$=,+-_".contains(&b);
    // `$2b$12$` is followed by salt and digest in one part; every other kind has a part for each.
    let whole =
        matches!(text.split('$').collect::<Vec<_>>()[..], ["", id, _, .., last] if !id.is_empty() && !last.is_empty());
    text.len() <= 512 && whole && text.bytes().all(part)
}

fn is_shell(text: &str) -> bool {
    text.starts_with('/') && text.bytes().all(|b| b.is_ascii_graphic() && b != b':')
}
