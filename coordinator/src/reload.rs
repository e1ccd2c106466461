//! What a new configuration changes in a running process, and what only a restart can.

use landfall_boot::config::OtherImage;
use serde_json::Value;

use crate::config::Config;

/// Keys that a reload can change; a trailing dot means all below. The example file marks the same ones.
const CAN_CHANGE: [&str; 12] = [
    "limits.", "discovery.", "manifests.", "log.filter", "dhcp.discovery", "boot.kernel", "boot.initramfs", "boot.iso",
    "boot.tools", "boot.arm64.", "boot.images", "boot.kernel_args",
];
/// Keys below those that it cannot.
const CANNOT: [&str; 2] = ["limits.certificate_ttl", "boot.arm64.uki"];

/// One that it cannot change where several coordinators may have one database.
const LEASE: &str = "limits.lease";

/// Whether a reload changes this key.
pub fn can_change(key: &str) -> bool {
    let listed = |known: &str| known == key || known.ends_with('.') && key.starts_with(known);
    CAN_CHANGE.iter().any(|known| listed(known)) && !CANNOT.contains(&key)
}

/// What differs between two configurations.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Keys that change now.
    pub now: Vec<String>,
    /// Keys that wait for a restart.
    pub at_restart: Vec<String>,
}

impl Plan {
    /// Compares the configuration that runs with a new one.
    pub fn between(running: &Config, new: &Config) -> Self {
        let mut plan = Self::default();
        // Both serialise: they were read from a file.
        let tree = |config: &Config| serde_json::to_value(config).unwrap_or_default();
        differences(&tree(running), &tree(new), "", &mut plan);
        if running.store.url.is_some() {
            // Other coordinators wait as long as the documents say that was promised.
            plan.at_restart.extend(plan.now.extract_if(.., |key| key == LEASE));
        }
        plan
    }
}

fn differences(old: &Value, new: &Value, at: &str, plan: &mut Plan) {
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, value) in b {
                let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                differences(a.get(key).unwrap_or(&Value::Null), value, &path, plan);
            }
        }
        _ if old == new => {}
        _ if can_change(at) => plan.now.push(at.to_owned()),
        _ => plan.at_restart.push(at.to_owned()),
    }
}

/// The configuration that runs after a reload: the new one in what can change, the old one in everything else.
#[must_use]
pub fn merged(running: &Config, new: &Config) -> Config {
    let mut config = running.clone();
    config.limits = new.limits.clone();
    config.limits.certificate_ttl = running.limits.certificate_ttl;
    if running.store.url.is_some() {
        config.limits.lease = running.limits.lease;
    }
    config.discovery = new.discovery.clone();
    config.manifests = new.manifests.clone();
    config.log.filter.clone_from(&new.log.filter);
    config.dhcp.discovery = new.dhcp.discovery;
    config.boot.kernel.clone_from(&new.boot.kernel);
    config.boot.initramfs.clone_from(&new.boot.initramfs);
    config.boot.iso.clone_from(&new.boot.iso);
    config.boot.tools.clone_from(&new.boot.tools);
    let uki = config.boot.arm64.uki.take();
    config.boot.arm64 = OtherImage { uki, ..new.boot.arm64.clone() };
    config.boot.images.clone_from(&new.boot.images);
    config.boot.kernel_args.clone_from(&new.boot.kernel_args);
    config
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const TEXT: &str = include_str!("../../docs/coordinator.toml");

    fn config(text: &str) -> Config {
        Config::parse(Path::new("c.toml"), text).unwrap()
    }

    #[test]
    fn every_configuration_change_is_applied_or_reported() {
        let running = config(TEXT);
        let text = TEXT
            .replace("heartbeat = \"5s\"", "heartbeat = \"9s\"")
            .replace("certificate_ttl = \"12h\"", "certificate_ttl = \"13h\"")
            .replace("# directory = ", "directory = ")
            .replace("0.0.0.0:7443", "0.0.0.0:7444")
            .replace("discovery = false", "discovery = true");
        let new = config(&text);
        let plan = Plan::between(&running, &new);
        assert_eq!(plan.now, ["dhcp.discovery", "limits.heartbeat", "manifests.directory"]);
        assert_eq!(plan.at_restart, ["tls.listen", "limits.certificate_ttl"]);
        let merged = merged(&running, &new);
        // What was made runs; what waits is named again at the next reload.
        assert_eq!(Plan::between(&merged, &new), Plan { now: vec![], at_restart: plan.at_restart });
        assert_eq!(Plan::between(&running, &merged).now, plan.now);
        assert_eq!(Plan::between(&running, &running), Plan::default());
    }

    #[test]
    fn beside_others_the_lease_changes_at_a_restart() {
        let with = |lease: &str, text: &str| config(&text.replace("lease = \"10m\"", lease));
        let both = |text: &str| (with("lease = \"10m\"", text), with("lease = \"20m\"", text));
        let (running, new) = both(TEXT);
        assert_eq!(Plan::between(&running, &new).now, ["limits.lease"]);
        let (running, new) = both(&TEXT.replace("# url = \"postgresql:", "url = \"postgresql:"));
        let expected = Plan { now: Vec::new(), at_restart: vec!["limits.lease".to_owned()] };
        assert_eq!(Plan::between(&running, &new), expected);
        assert_eq!(merged(&running, &new).limits.lease, running.limits.lease);
    }

    #[test]
    fn the_example_marks_what_a_reload_changes_and_nothing_else() {
        let (mut section, mut marked) = (String::new(), false);
        for line in TEXT.lines() {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = format!("{name}.");
            }
            let bare = line.strip_prefix("# ").unwrap_or(line);
            let key = bare.split_once(" = ").map(|(key, _)| key);
            match key.filter(|key| key.chars().all(|c| c.is_ascii_lowercase() || c == '_')) {
                Some(key) => {
                    assert_eq!(can_change(&format!("{section}{key}")), marked, "{section}{key}");
                    marked = false;
                }
                None if line.starts_with("# [reload]") => marked = true,
                None => {}
            }
        }
    }
}
