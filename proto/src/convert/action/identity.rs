//! `identity`.

use std::str::FromStr;

use landfall_api::{
    Account, InterfaceSpec, NetworkFormat, NetworkSpec, SecretText, SystemIdentity, SystemIdentityResult,
};

use super::super::{
    ConvertError, Within as _,
    scalar::{text, text_if_any},
    selector::{selector_if_any, selector_to_wire},
};
use crate::v1;

impl TryFrom<v1::SystemIdentity> for SystemIdentity {
    type Error = ConvertError;

    fn try_from(wire: v1::SystemIdentity) -> Result<Self, ConvertError> {
        let users = wire.users.into_iter().map(Account::try_from).collect::<Result<_, _>>();
        Ok(Self {
            hostname: text("hostname", wire.hostname)?,
            users: users.within("users")?,
            new_machine_id: wire.new_machine_id,
            new_host_keys: wire.new_host_keys,
            network: wire.network.map(NetworkSpec::try_from).transpose().within("network")?,
            disk: selector_if_any(wire.disk),
        })
    }
}

impl From<SystemIdentity> for v1::SystemIdentity {
    fn from(spec: SystemIdentity) -> Self {
        Self {
            hostname: spec.hostname,
            users: spec.users.into_iter().map(Into::into).collect(),
            new_machine_id: spec.new_machine_id,
            new_host_keys: spec.new_host_keys,
            network: spec.network.map(Into::into),
            disk: spec.disk.map(selector_to_wire).unwrap_or_default(),
        }
    }
}

impl TryFrom<v1::SystemAccount> for Account {
    type Error = ConvertError;

    fn try_from(wire: v1::SystemAccount) -> Result<Self, ConvertError> {
        Ok(Self {
            name: text("name", wire.name)?,
            ssh_keys: wire.ssh_keys,
            password_hash: text_if_any(wire.password_hash).map(SecretText::new),
            sudo: wire.sudo,
            groups: wire.groups,
            shell: text_if_any(wire.shell),
        })
    }
}

impl From<Account> for v1::SystemAccount {
    fn from(account: Account) -> Self {
        Self {
            name: account.name,
            ssh_keys: account.ssh_keys,
            password_hash: account.password_hash.map(SecretText::into_exposed).unwrap_or_default(),
            sudo: account.sudo,
            groups: account.groups,
            shell: account.shell.unwrap_or_default(),
        }
    }
}

impl TryFrom<v1::SystemNetwork> for NetworkSpec {
    type Error = ConvertError;

    fn try_from(wire: v1::SystemNetwork) -> Result<Self, ConvertError> {
        let format = NetworkFormat::ALL.into_iter().find(|format| format.as_str() == wire.format);
        let interfaces = wire.interfaces.into_iter().map(InterfaceSpec::try_from).collect::<Result<_, _>>();
        Ok(Self {
            format: format.ok_or_else(|| ConvertError::new("format", "it is none that is known"))?,
            interfaces: interfaces.within("interfaces")?,
        })
    }
}

impl From<NetworkSpec> for v1::SystemNetwork {
    fn from(spec: NetworkSpec) -> Self {
        let interfaces = spec.interfaces.into_iter().map(Into::into).collect();
        Self { format: spec.format.as_str().to_owned(), interfaces }
    }
}

impl TryFrom<v1::SystemInterface> for InterfaceSpec {
    type Error = ConvertError;

    fn try_from(wire: v1::SystemInterface) -> Result<Self, ConvertError> {
        Ok(Self {
            mac: text_if_any(wire.mac).map(|mac| parsed("mac", &mac)).transpose()?,
            name: text_if_any(wire.name),
            dhcp: wire.dhcp,
            addresses: all("addresses", &wire.addresses)?,
            gateways: all("gateways", &wire.gateways)?,
            nameservers: all("nameservers", &wire.nameservers)?,
            search_domains: wire.search_domains,
            mtu: Some(wire.mtu).filter(|mtu| *mtu != 0),
        })
    }
}

impl From<InterfaceSpec> for v1::SystemInterface {
    fn from(spec: InterfaceSpec) -> Self {
        let texts = |ips: &[std::net::IpAddr]| ips.iter().map(ToString::to_string).collect();
        Self {
            mac: spec.mac.map(|mac| mac.to_string()).unwrap_or_default(),
            name: spec.name.unwrap_or_default(),
            dhcp: spec.dhcp,
            addresses: spec.addresses.iter().map(ToString::to_string).collect(),
            gateways: texts(&spec.gateways),
            nameservers: texts(&spec.nameservers),
            search_domains: spec.search_domains,
            mtu: spec.mtu.unwrap_or_default(),
        }
    }
}

fn all<T: FromStr<Err: std::fmt::Display>>(field: &str, texts: &[String]) -> Result<Vec<T>, ConvertError> {
    texts.iter().map(|text| parsed(field, text)).collect()
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(field: &str, text: &str) -> Result<T, ConvertError> {
    text.parse().map_err(|error| ConvertError::new(field, error))
}

impl From<v1::SystemIdentityResult> for SystemIdentityResult {
    fn from(wire: v1::SystemIdentityResult) -> Self {
        Self { root_device: wire.root_device, written: wire.written }
    }
}

impl From<SystemIdentityResult> for v1::SystemIdentityResult {
    fn from(result: SystemIdentityResult) -> Self {
        Self { root_device: result.root_device, written: result.written }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(!format!("{:?}", identity()).contains("geheim"));
        let plain = SystemIdentity { users: Vec::new(), network: None, ..identity() };
        for spec in [identity(), plain] {
            assert_eq!(SystemIdentity::try_from(v1::SystemIdentity::from(spec.clone())), Ok(spec));
        }
        let result = SystemIdentityResult { root_device: "/dev/vda2".into(), written: "hostname a".into() };
        assert_eq!(SystemIdentityResult::from(v1::SystemIdentityResult::from(result.clone())), result);
    }

    #[test]
    fn an_identity_with_unreadable_parts_is_refused() {
        type Damage = fn(&mut v1::SystemIdentity);
        let port = |wire: &mut v1::SystemIdentity| wire.network.as_mut().unwrap().interfaces.remove(0);
        let put = |wire: &mut v1::SystemIdentity, port| wire.network.as_mut().unwrap().interfaces.push(port);
        let mut bad_mac = v1::SystemIdentity::from(identity());
        let first = port(&mut bad_mac);
        put(&mut bad_mac, v1::SystemInterface { mac: "52:54".into(), ..first.clone() });
        let mut bad_address = v1::SystemIdentity::from(identity());
        port(&mut bad_address);
        put(&mut bad_address, v1::SystemInterface { addresses: vec!["192.0.2.1".into()], ..first });
        for (wire, field) in [(bad_mac, "network.interfaces.mac"), (bad_address, "network.interfaces.addresses")] {
            assert_eq!(SystemIdentity::try_from(wire).unwrap_err().field(), field);
        }
        let damages: [(Damage, &str); 3] = [
            (|wire| wire.hostname.clear(), "hostname"),
            (|wire| wire.users[0].name.clear(), "users.name"),
            (|wire| wire.network.as_mut().unwrap().format = "wicked".into(), "network.format"),
        ];
        for (damage, field) in damages {
            let mut wire = v1::SystemIdentity::from(identity());
            damage(&mut wire);
            assert_eq!(SystemIdentity::try_from(wire).unwrap_err().field(), field);
        }
    }
}
