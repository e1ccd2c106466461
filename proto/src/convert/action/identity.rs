//! `identity`.

use landfall_api::{Account, InterfaceSpec, NetworkSpec, SystemIdentity, SystemIdentityResult};

use crate::convert::{codec::*, word::*};
use crate::v1;

wire! {
    SystemIdentity = v1::SystemIdentity {
        hostname: text, users: list, new_machine_id, new_host_keys, network: one_if_any, disk: selector_if_any,
    }
    Account = v1::SystemAccount {
        name: text, ssh_keys, password_hash: secret_if_any, sudo, groups, shell: text_if_any,
    }
    NetworkSpec = v1::SystemNetwork { format: word, interfaces: list }
    InterfaceSpec = v1::SystemInterface {
        mac: parsed_if_any, name: text_if_any, dhcp, addresses: all_parsed, gateways: all_parsed,
        nameservers: all_parsed, search_domains, mtu: number_if_any,
    }
    SystemIdentityResult = v1::SystemIdentityResult { root_device, written }
}

#[cfg(test)]
mod tests {
    use landfall_api::SystemIdentitySpec;

    use super::*;
    use crate::convert::testing::{refused, survives};

    fn identity() -> SystemIdentity {
        let spec = serde_json::json!({"hostname": "node-17.example.net", "machineId": "new", "hostKeys": "keep",
            "users": [{"name": "anna", "sshKeys": ["ssh-ed25519 AAAA anna"], "passwordHash": "$6$geheim$x", "sudo": true,
                "groups": ["adm"], "shell": "/bin/zsh"}],
            "network": {"format": "networkd", "interfaces": [
                {"mac": "52:54:00:12:34:56", "addresses": ["192.0.2.17/24", "2001:db8::17/64"], "mtu": 9000,
                    "gateways": ["192.0.2.1"], "nameservers": ["192.0.2.53"], "searchDomains": ["example.net"]},
                {"name": "eth1", "dhcp": true}]}});
        serde_json::from_value::<SystemIdentitySpec>(spec).unwrap().resolved("node-17").unwrap()
    }

    #[test]
    fn an_identity_survives_the_wire_and_shows_no_hash() {
        let plain = SystemIdentity { users: Vec::new(), network: None, ..identity() };
        for spec in [identity(), plain] {
            survives::<v1::SystemIdentity, _>(spec);
        }
    }

    #[test]
    fn an_identity_with_unreadable_parts_is_refused() {
        fn network(wire: &mut v1::SystemIdentity) -> &mut v1::SystemNetwork {
            wire.network.as_mut().unwrap()
        }
        refused::<v1::SystemIdentity, _>(
            identity(),
            &[
                ("network.interfaces.mac", |w| network(w).interfaces[0].mac = "52:54".into()),
                ("network.interfaces.addresses", |w| network(w).interfaces[0].addresses = vec!["192.0.2.1".into()]),
                ("hostname", |w| w.hostname.clear()),
                ("users.name", |w| w.users[0].name.clear()),
                ("network.format", |w| network(w).format = "wicked".into()),
            ],
        );
    }
}
