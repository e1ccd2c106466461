//! `identity`: its fields, what is sent to the agent, and what comes of it.

mod account;
mod address;
mod network;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::{
    account::{Account, AccountSpec},
    address::IpWithPrefix,
    network::{InterfaceSpec, NetworkFormat, NetworkSpec},
};
use super::{
    kind::{ActionInfo, Declaration},
    rules::{Rules, is_host_name, plain_text},
};
use crate::{DiskSelector, DurationSpec, dns_label::LABEL_HINT, issue::join};

/// Makes the installed system this machine and no copy of another: host name, accounts, machine-id, SSH host keys and network, as
/// files of the system itself. For systems without cloud-init.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SystemIdentitySpec {
    /// Its host name, with or without a domain. Default: the machine's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkSpec>,
    /// Which disk. Default: the disk that this workflow wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    use serde_json::json;

    use super::*;
    use crate::validate::tests::faults;

    const AT: &str = "spec.actions[0].identity";
    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGFubmE anna@desk";

    fn of(mut spec: Value) -> Vec<String> {
        spec["disk"] = json!({"name": "vda"});
        faults(json!([{"name": "who", "identity": spec}])).into_iter().map(|(path, _)| path).collect()
    }

    fn port(more: Value) -> Value {
        let mut port = json!({"mac": "52:54:00:12:34:56"});
        for (field, value) in more.as_object().unwrap() {
            port[field] = value.clone();
        }
        json!({"network": {"interfaces": [port]}})
    }

    #[test]
    fn each_fault_of_an_account_is_named_at_its_field() {
        let user = |more: Value| {
            let mut user = json!({"name": "anna"});
            for (field, value) in more.as_object().unwrap() {
                user[field] = value.clone();
            }
            json!({"users": [user]})
        };
        assert_eq!(of(json!({"hostname": "a b"})), [format!("{AT}.hostname")]);
        for (more, field) in [
            (json!({"name": "Anna"}), "name"),
            (json!({"name": "anna:x"}), "name"),
            (json!({"sshKeys": [KEY, "hello"]}), "sshKeys[1]"),
            (json!({"sshKeys": ["-----BEGIN OPENSSH PRIVATE KEY-----"]}), "sshKeys[0]"),
            (json!({"sshKeys": [format!("{KEY}\n{KEY}")]}), "sshKeys[0]"),
            (json!({"passwordHash": "geheim"}), "passwordHash"),
            (json!({"passwordHash": "$6$x:0:0"}), "passwordHash"),
            (json!({"passwordHash": "$6$salt"}), "passwordHash"),
            (json!({"passwordHash": "$6$salt$"}), "passwordHash"),
            (json!({"name": "{{ secrets.a.b }}"}), "name"),
            (json!({"groups": ["{{ secrets.a.b }}"]}), "groups[0]"),
            (json!({"shell": "{{ secrets.a.b }}"}), "shell"),
            (json!({"groups": ["adm,root"]}), "groups[0]"),
            (json!({"shell": "bash"}), "shell"),
            (json!({"shell": "/bin/sh:x"}), "shell"),
            (json!({"password": "x"}), "password"),
        ] {
            assert_eq!(of(user(more.clone())), [format!("{AT}.users[0].{field}")], "{more}");
        }
        let twice = json!({"users": [{"name": "anna"}, {"name": "anna"}]});
        assert_eq!(of(twice), [format!("{AT}.users[1].name")]);
    }

    #[test]
    fn each_fault_of_an_interface_is_named_at_its_field() {
        let at = format!("{AT}.network.interfaces");
        for (more, field) in [
            (json!({"mac": "52:54"}), ".mac"),
            (json!({"name": "eth0"}), ".name"),
            (json!({"mac": null}), ".mac"),
            (json!({"mac": null, "name": "a b"}), ".name"),
            (json!({"mac": null, "name": "eth/0"}), ".name"),
            (json!({"mac": null, "name": "a-long-interface"}), ".name"),
            (json!({"addresses": ["10.0.0.1"]}), ".addresses[0]"),
            (json!({"addresses": ["10.0.0.1/33"]}), ".addresses[0]"),
            (json!({"addresses": ["10.0.0.1/24"], "dhcp": true}), ".dhcp"),
            (json!({"addresses": ["10.0.0.1/24"], "gateways": ["fd00::1"]}), ".gateways[0]"),
            (json!({"addresses": ["10.0.0.1/24"], "gateways": ["10.0.0.2", "10.0.0.3"]}), ".gateways[1]"),
            (json!({"gateways": ["10.0.0.2"]}), ".gateways"),
            (json!({"dhcp": false}), ".dhcp"),
            (json!({"addresses": ["10.0.0.1/24"], "gateways": ["10.0.1.2"]}), ".gateways[0]"),
            (json!({"addresses": ["10.0.0.1/32"], "gateways": ["10.0.0.2"]}), ".gateways[0]"),
            (json!({"addresses": ["10.0.0.1/24"], "gateways": ["10.0.0.1"]}), ".gateways[0]"),
            (json!({"addresses": ["10.0.0.1/24"], "gateways": ["0.0.0.0"]}), ".gateways[0]"),
            (json!({"addresses": ["10.0.0.1/0"]}), ".addresses[0]"),
            (json!({"addresses": ["127.0.0.1/8"]}), ".addresses[0]"),
            (json!({"addresses": ["ff02::1/64"]}), ".addresses[0]"),
            (json!({"nameservers": ["dns.example"]}), ".nameservers[0]"),
            (json!({"nameservers": ["::"]}), ".nameservers[0]"),
            (json!({"searchDomains": ["a b"]}), ".searchDomains[0]"),
            (json!({"mtu": 20}), ".mtu"),
            (json!({"mac": null, "name": "e*", "addresses": ["10.0.0.1/24"]}), ".addresses"),
        ] {
            assert_eq!(of(port(more.clone())), [format!("{at}[0]{field}")], "{more}");
        }
        assert_eq!(of(json!({"network": {"interfaces": []}})), [at.as_str()]);
        let twice = json!({"network": {"interfaces": [{"name": "eth0"}, {"name": "eth0"}]}});
        assert_eq!(of(twice), [format!("{at}[1].name")]);
        let pattern = json!({"network": {"interfaces": [{"name": "eth0"}, {"name": "e?h*"}]}});
        assert_eq!(of(pattern), [format!("{at}[1].name")]);
        let routed = |name: &str| json!({"name": name, "addresses": ["10.0.0.1/24"], "gateways": ["10.0.0.2"]});
        let routers = json!({"network": {"interfaces": [routed("eth0"), routed("eth1")]}});
        assert_eq!(of(routers), [format!("{at}[1].gateways[0]")]);
        let format = json!({"network": {"format": "wicked", "interfaces": [{"name": "eth0"}]}});
        assert_eq!(of(format), [format!("{AT}.network.format")]);
    }

    #[test]
    fn whole_identities_and_expressions_are_taken() {
        for right in [
            json!({}),
            json!({"hostname": "node-17.example.net", "machineId": "keep", "hostKeys": "keep"}),
            json!({"hostname": "{{ params.release }}", "users": "{{ params.release }}", "network": "{{ params.release }}"}),
            json!({"users": [{"name": "anna", "sshKeys": [KEY, "{{ secrets.a.b }}"], "passwordHash": "{{ secrets.a.b }}", "sudo": true,
                "groups": ["adm"], "shell": "/bin/zsh"}, {"name": "root", "passwordHash": "$y$j9T$a/b.c$d"}]}),
            port(json!({})),
            port(json!({"dhcp": true, "mtu": 9000})),
            port(json!({"addresses": ["10.0.0.17/24", "fd00::17/64"], "gateways": ["10.0.0.1", "fd00::1"],
                "nameservers": ["10.0.0.53"], "searchDomains": ["example.net"]})),
            port(
                json!({"addresses": ["{{ params.release }}"], "mac": "{{ params.release }}", "gateways": ["10.0.0.1"]}),
            ),
            port(json!({"addresses": ["2001:db8::17/64"], "gateways": ["fe80::1"], "nameservers": ["127.0.0.1"]})),
            port(json!({"mac": null, "name": "e*"})),
        ] {
            assert_eq!(of(right.clone()), [""; 0], "{right}");
        }
    }

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
