//! `identity`: its fields, what is sent to the agent, and what comes of it.

mod account;
mod address;
mod network;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

pub use self::account::{Account, AccountSpec};
pub use self::address::IpWithPrefix;
pub use self::network::{InterfaceSpec, NetworkFormat, NetworkSpec};
use super::kind::{ActionInfo, Declaration};
use super::rules::{Rules, is_host_name, plain_text};
use crate::{DiskSelector, DurationSpec, dns_label::LABEL_HINT, issue::join};

/// Makes the installed system this machine and no copy of another: host name, accounts, machine-id, SSH host keys and network, as
/// files of the system itself. For systems without cloud-init.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SystemIdentitySpec {
    /// Its host name, with or without a domain. Default: the machine's name.
    pub hostname: Option<String>,
    /// Accounts. One that is there already keeps its number and home, and gets what is stated here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<AccountSpec>,
    /// `new` (default): it gets a machine-id of its own when it starts. `keep`: it keeps that of its image or archive.
    #[serde(default, skip_serializing_if = "Renewal::is_new")]
    pub machine_id: Renewal,
    /// `new` (default): its SSH server gets host keys of its own now. `keep`: it keeps those of its image or archive.
    #[serde(default, skip_serializing_if = "Renewal::is_new")]
    pub host_keys: Renewal,
    /// Its network. Default: as its image or archive has it.
    pub network: Option<NetworkSpec>,
    /// Which disk. Default: the disk that this workflow wrote.
    pub disk: Option<DiskSelector>,
}

/// Whether something of the image is made anew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Renewal {
    /// Made anew.
    #[default]
    New,
    /// Left as it is.
    Keep,
}

impl Renewal {
    /// Whether it is made anew.
    pub const fn is_new(&self) -> bool {
        matches!(self, Self::New)
    }
}

/// `identity` as an agent is sent it: every default stated, every secret in place.
#[derive(Debug, Clone, PartialEq)]
pub struct SystemIdentity {
    /// Its host name, with or without a domain.
    pub hostname: String,
    /// Accounts.
    pub users: Vec<Account>,
    /// Whether it gets a machine-id of its own.
    pub new_machine_id: bool,
    /// Whether its SSH server gets host keys of its own.
    pub new_host_keys: bool,
    /// Its network; `None`: as it is.
    pub network: Option<NetworkSpec>,
    /// Which disk; `None`: the disk that this workflow wrote.
    pub disk: Option<DiskSelector>,
}

/// What came of an `identity`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SystemIdentityResult {
    /// The installed root file system's device.
    pub root_device: String,
    /// What was written, for people: `hostname node-17, users anna, network (netplan)`.
    pub written: String,
}

/// What a secret or an expression put in cannot be used: the rules of a template cannot see it. It shows nothing of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("users[{account}].{field} is {lacks}")]
pub struct UnusableAccount {
    /// Its place in the list, from 0.
    pub account: usize,
    /// Its field.
    pub field: &'static str,
    /// What it is not.
    pub lacks: &'static str,
}

impl SystemIdentitySpec {
    /// What an agent is sent. `machine`: the machine's name.
    ///
    /// # Errors
    /// [`UnusableAccount`]
    pub fn resolved(self, machine: &str) -> Result<SystemIdentity, UnusableAccount> {
        let Self { hostname, users, machine_id, host_keys, network, disk } = self;
        Ok(SystemIdentity {
            hostname: hostname.unwrap_or_else(|| machine.to_owned()),
            users: account::resolved(users)?,
            new_machine_id: machine_id.is_new(),
            new_host_keys: host_keys.is_new(),
            network,
            disk,
        })
    }
}

impl Declaration for SystemIdentitySpec {
    const INFO: ActionInfo = ActionInfo {
        // Files are put in place whole, and what is written twice is there once.
        attempts: 3,
        tools: true,
        means_written_disk: true,
        // What else an account has is shown, as a name in paths and in what was written.
        secrets: &["users.sshKeys", "users.passwordHash"],
        ..ActionInfo::new(
            "Gives the installed system its host name, accounts, machine-id, SSH host keys and network.",
            DurationSpec::from_secs(5 * 60),
            8,
        )
    };

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        rules.selector(spec.get("disk"), &join(path, "disk"));
        if let Some(name) = plain_text(spec, "hostname").filter(|name| !is_host_name(name)) {
            rules.say(join(path, "hostname"), format!("\"{name}\" cannot be a host name"), LABEL_HINT);
        }
        account::check(spec.get("users"), &join(path, "users"), rules);
        if let Some(network) = spec.get("network").and_then(Value::as_object) {
            network::check(network, &join(path, "network"), rules);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGFubmE anna@desk";

    #[test]
    fn a_resolved_identity_has_a_name_and_usable_hashes() {
        let resolved = SystemIdentitySpec::default().resolved("node-17").unwrap();
        assert_eq!(
            (resolved.hostname.as_str(), resolved.new_machine_id, resolved.new_host_keys),
            ("node-17", true, true)
        );
        let anna = || AccountSpec { name: "anna".into(), ..AccountSpec::default() };
        for (user, field) in [
            (AccountSpec { password_hash: Some("$6$a$b".into()), ssh_keys: vec![KEY.into()], ..anna() }, None),
            (
                AccountSpec { password_hash: Some("$6$a$b\nroot::0:0::/:/bin/sh".into()), ..anna() },
                Some("passwordHash"),
            ),
            (AccountSpec { password_hash: Some(String::new()), ..anna() }, Some("passwordHash")),
            (AccountSpec { ssh_keys: vec![KEY.into(), format!("{KEY}\n{KEY}")], ..anna() }, Some("sshKeys")),
            (AccountSpec { name: "x\nevil::0:0::/:/bin/sh".into(), ..AccountSpec::default() }, Some("name")),
            (AccountSpec { name: "root".into(), ..AccountSpec::default() }, Some("name")),
            (AccountSpec { groups: vec!["adm,root".into()], ..anna() }, Some("groups")),
            (AccountSpec { shell: Some("/bin/sh:x".into()), ..anna() }, Some("shell")),
        ] {
            let root = AccountSpec { name: "root".into(), ..AccountSpec::default() };
            let spec = SystemIdentitySpec { users: vec![root, user], ..SystemIdentitySpec::default() };
            let resolved = spec.resolved("node-17");
            assert_eq!(
                resolved.as_ref().err().map(|error| (error.account, error.field)),
                field.map(|field| (1, field))
            );
            let shown = resolved.map_or_else(|error| format!("{error} {error:?}"), |fine| format!("{fine:?}"));
            assert!(!shown.contains("$6$") && !shown.contains("evil"), "{shown}");
        }
    }
}
