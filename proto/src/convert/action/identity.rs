//! `identity`.

use landfall_api::{Account, InterfaceSpec, NetworkSpec, SystemIdentity, SystemIdentityResult};

use crate::{
    convert::{codec::*, word::*},
    v1,
};

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
    use landfall_api::{NetworkFormat, SecretText};

    use super::*;
    use crate::convert::testing::{refused, survives};

    fn identity() -> SystemIdentity {
        SystemIdentity {
            hostname: "node-17.example.net".into(),
            users: vec![Account {
                name: "anna".into(),
                ssh_keys: vec!["ssh-ed25519 AAAA anna".into()],
                password_hash: Some(SecretText::new("$6$geheim$x")),
                sudo: true,
                groups: vec!["adm".into()],
                shell: Some("/bin/zsh".into()),
            }],
            new_machine_id: true,
            new_host_keys: false,
            network: Some(NetworkSpec {
                format: NetworkFormat::Networkd,
                interfaces: vec![
                    InterfaceSpec {
                        mac: Some("52:54:00:12:34:56".parse().unwrap()),
                        addresses: vec!["192.0.2.17/24".parse().unwrap(), "2001:db8::17/64".parse().unwrap()],
                        gateways: vec!["192.0.2.1".parse().unwrap()],
                        nameservers: vec!["192.0.2.53".parse().unwrap()],
                        search_domains: vec!["example.net".into()],
                        mtu: Some(9000),
                        ..InterfaceSpec::default()
                    },
                    InterfaceSpec { name: Some("eth1".into()), dhcp: Some(true), ..InterfaceSpec::default() },
                ],
            }),
            disk: None,
        }
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
