//! The metadata service: NoCloud files and the basic EC2-style keys, for what is not secret.
//!
//! The machine is found by the source address, which proves nothing; that is why user data, which may hold secrets, is
//! never served here. It travels over the agent's session into an on-disk seed.

use std::net::Ipv4Addr;

use landfall_api::MacAddr;

use crate::policy::PublicFacts;

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// Its address.
    pub ip: Ipv4Addr,
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// Its machine.
    pub machine: PublicFacts,
}

/// Versions of the EC2 interface that are answered alike.
const EC2_VERSIONS: [&str; 2] = ["2009-04-04", "latest"];
/// The NoCloud seed directory.
const NOCLOUD: &str = "v1";
/// Always empty, because it must not contain secrets; cloud-init requires the file.
const EMPTY_CLOUD_CONFIG: &str = "#cloud-config\n{}\n";

type Key = (&'static str, fn(&Asker) -> String);

const EC2_KEYS: [Key; 5] = [
    ("hostname", |a| a.machine.name.clone()),
    ("instance-id", |a| a.machine.uid.to_string()),
    ("local-hostname", |a| a.machine.name.clone()),
    ("local-ipv4", |a| a.ip.to_string()),
    ("mac", |a| a.mac.to_string()),
];

/// The text at a path below `/metadata/`; `None` where there is nothing.
pub fn get(path: &str, asker: &Asker) -> Option<String> {
    let path = path.trim_end_matches('/');
    if path.is_empty() {
        return Some(format!("{}\n{NOCLOUD}\n", EC2_VERSIONS.join("\n")));
    }
    let (version, rest) = path.split_once('/').unwrap_or((path, ""));
    if version == NOCLOUD {
        return nocloud(rest, asker);
    }
    if !EC2_VERSIONS.contains(&version) {
        return None;
    }
    match rest {
        "" => Some("meta-data/\nuser-data\n".to_owned()),
        "user-data" => Some(EMPTY_CLOUD_CONFIG.to_owned()),
        "meta-data" => Some(EC2_KEYS.map(|(name, _)| name).join("\n")),
        key => {
            let key = key.strip_prefix("meta-data/")?;
            EC2_KEYS.iter().find(|(name, _)| *name == key).map(|(_, value)| value(asker))
        }
    }
}

fn nocloud(file: &str, asker: &Asker) -> Option<String> {
    let PublicFacts { name, uid, by_token_only: _ } = &asker.machine;
    match file {
        "" => Some("meta-data\nuser-data\nvendor-data\n".to_owned()),
        // Both are safe as bare YAML: a UUID, and a DNS label in quotes (one of digits alone would be a number).
        "meta-data" => Some(format!("instance-id: {uid}\nlocal-hostname: \"{name}\"\n")),
        "user-data" | "vendor-data" => Some(EMPTY_CLOUD_CONFIG.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn metadata_has_name_and_id_in_both_dialects() {
        let asker = Asker {
            ip: Ipv4Addr::new(10, 77, 0, 100),
            mac: "52:54:00:00:00:01".parse().unwrap(),
            machine: PublicFacts { name: "web-1".into(), uid: Uuid::nil(), by_token_only: true },
        };
        let uid = Uuid::nil();
        for (path, text) in [
            ("v1/meta-data", Some(format!("instance-id: {uid}\nlocal-hostname: \"web-1\"\n"))),
            ("v1/user-data", Some(EMPTY_CLOUD_CONFIG.into())),
            ("v1/network-config", None),
            ("latest/meta-data/local-ipv4", Some("10.77.0.100".into())),
            ("2009-04-04/meta-data/mac", Some("52:54:00:00:00:01".into())),
            ("latest/meta-data/", Some("hostname\ninstance-id\nlocal-hostname\nlocal-ipv4\nmac".into())),
            ("latest/meta-data/iam", None),
            ("2030-01-01/meta-data", None),
        ] {
            assert_eq!(get(path, &asker), text, "{path}");
        }
    }
}
