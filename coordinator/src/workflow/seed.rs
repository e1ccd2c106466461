//! The NoCloud seed: what `cloudInit` puts on the installed disk, as cloud-init reads it.
//!
//! JSON is YAML, so what is stated as a mapping is written as pretty JSON under cloud-init's own header: no quoting rules of ours.
//! What is stated as a text is never written anew: as it is, or as it is within a MIME message.

mod network;

use landfall_api::{CloudInitSpec, Machine, UserDataSpec, UserSpec, network_section};
use serde_json::{Map, Value, json};

use self::network::of_interfaces;
use super::multipart;

pub use self::network::NetworkError;

/// The files of a NoCloud seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeedFiles {
    /// `user-data`, of any kind.
    pub user_data: String,
    /// `vendor-data`, of any kind; empty if there is none.
    pub vendor_data: String,
    /// `meta-data`.
    pub meta_data: String,
    /// `network-config`, of version 1 or 2.
    pub network_config: String,
}

/// Builds the files. `instance_id` must change with every run, so that cloud-init treats a re-install as a new instance.
///
/// # Errors
/// [`NetworkError`] of the machine's network, where `spec` states no other.
pub fn seed_files(spec: &CloudInitSpec, machine: &Machine, instance_id: &str) -> Result<SeedFiles, NetworkError> {
    let hostname = spec.hostname.as_deref().unwrap_or(&machine.metadata.name);
    let network = match &spec.network {
        Some(network) => network_section(network).clone(),
        None if machine.spec.network.is_empty() => dhcp_everywhere(),
        None => {
            let facts = machine.status.as_ref().and_then(|status| status.facts.as_ref());
            of_interfaces(&machine.spec.network, facts.map(|facts| facts.nics.as_slice()).unwrap_or_default())?
        }
    };
    let user_data = match &spec.user_data {
        Some(UserDataSpec::Text(text)) => multipart::file(text, of_text(spec).map(cloud_config).as_deref()),
        Some(UserDataSpec::Config(config)) => cloud_config(of_mapping(spec, hostname, config.clone())),
        None => cloud_config(of_mapping(spec, hostname, [])),
    };
    let vendor_data = match &spec.vendor_data {
        Some(UserDataSpec::Text(text)) => multipart::file(text, None),
        Some(UserDataSpec::Config(config)) => cloud_config(config.clone().into_iter().collect()),
        None => String::new(),
    };
    Ok(SeedFiles {
        user_data,
        vendor_data,
        meta_data: format!("{}\n", pretty(&json!({ "instance-id": instance_id, "local-hostname": short(hostname) }))),
        network_config: format!("{}\n", pretty(&network)),
    })
}

/// The part before the first dot: what `hostname` prints.
fn short(hostname: &str) -> &str {
    hostname.split('.').next().unwrap_or(hostname)
}

fn cloud_config(config: Map<String, Value>) -> String {
    format!("#cloud-config\n{}\n", pretty(&Value::Object(config)))
}

/// The structured fields and a mapping in one: the structured ones win, because they are what the template's author can check.
fn of_mapping(
    spec: &CloudInitSpec, hostname: &str, free: impl IntoIterator<Item = (String, Value)>,
) -> Map<String, Value> {
    let mut config: Map<String, Value> = free.into_iter().collect();
    name(&mut config, hostname);
    if !spec.users.is_empty() {
        config.insert("users".into(), spec.users.iter().map(user).collect());
    }
    config
}

/// The structured fields beside a text, of which nothing is known: only those that are stated. The machine's name is in the
/// meta-data anyway.
fn of_text(spec: &CloudInitSpec) -> Option<Map<String, Value>> {
    let mut config = Map::new();
    if let Some(hostname) = &spec.hostname {
        name(&mut config, hostname);
    }
    if !spec.users.is_empty() {
        config.insert("users".into(), spec.users.iter().map(user).collect());
    }
    (!config.is_empty()).then_some(config)
}

fn name(config: &mut Map<String, Value>, hostname: &str) {
    config.insert("hostname".into(), short(hostname).into());
    if hostname.contains('.') {
        config.insert("fqdn".into(), hostname.into());
    }
    config.entry("preserve_hostname").or_insert(false.into());
}

fn user(user: &UserSpec) -> Value {
    let mut fields = Map::new();
    fields.insert("name".into(), user.name.as_str().into());
    fields.insert("shell".into(), user.shell.as_deref().unwrap_or("/bin/bash").into());
    // Keys are the only way in.
    fields.insert("lock_passwd".into(), true.into());
    if user.sudo {
        fields.insert("sudo".into(), "ALL=(ALL) NOPASSWD:ALL".into());
    }
    if !user.groups.is_empty() {
        fields.insert("groups".into(), user.groups.clone().into());
    }
    if !user.ssh_keys.is_empty() {
        fields.insert("ssh_authorized_keys".into(), user.ssh_keys.clone().into());
    }
    Value::Object(fields)
}

/// Netplan version 2: DHCP on every Ethernet port. `optional`, so that a port without a cable does not hold the boot up.
fn dhcp_everywhere() -> Value {
    json!({ "version": 2, "ethernets": { "all": { "match": { "name": "e*" }, "dhcp4": true, "optional": true } } })
}

fn pretty(value: &Value) -> String {
    // A tree of plain values always serialises: its keys are strings.
    serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(spec: &CloudInitSpec, instance_id: &str) -> SeedFiles {
        let machine = json!({ "apiVersion": "landfall.dev/v1alpha1", "kind": "Machine", "metadata": { "name": "node-1" },
            "spec": { "identity": { "macs": [] } } });
        seed_files(spec, &serde_json::from_value(machine).unwrap(), instance_id).unwrap()
    }

    fn parsed(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn every_seed_is_as_recorded() {
        let all = json!({
            "hostname": "web.example.org",
            "userData": {"packages": ["vim"], "runcmd": [["systemctl", "disable", "apt-daily.timer"]]},
            "users": [
                {"name": "ops", "sshKeys": ["ssh-ed25519 AAAA ops"], "sudo": true, "groups": ["adm"], "shell": "/bin/zsh"},
                {"name": "guest", "sshKeys": ["ssh-ed25519 BBBB guest"]}
            ],
            "network": {"version": 2, "ethernets": {"eno1": {"addresses": ["10.0.0.7/24"], "gateway4": "10.0.0.1"}}},
        });
        let script = json!({
            "userData": "#!/bin/sh\necho grüße\n",
            "vendorData": {"packages": ["curl"]},
            "hostname": "web",
            "network": {"network": {"version": 1, "config": [{"type": "physical", "name": "eno1"}]}},
        });
        for (name, spec) in [("default", json!({})), ("all", all), ("script", script)] {
            let files = seed(&serde_json::from_value(spec).unwrap(), "6f9619ff-8b86-4d01-b42d-00cf4fc964ff");
            landfall_golden::same(&format!("seed/{name}/user-data"), &files.user_data);
            if files.vendor_data.is_empty() {
                assert_ne!(name, "script");
            } else {
                landfall_golden::same(&format!("seed/{name}/vendor-data"), &files.vendor_data);
            }
            landfall_golden::same(&format!("seed/{name}/meta-data"), &files.meta_data);
            landfall_golden::same(&format!("seed/{name}/network-config"), &files.network_config);
        }
    }

    #[test]
    fn an_empty_seed_uses_the_machines_name_and_dhcp() {
        let files = seed(&CloudInitSpec::default(), "id-7");
        assert_eq!(parsed(&files.meta_data), json!({"instance-id": "id-7", "local-hostname": "node-1"}));
        let user_data = parsed(files.user_data.strip_prefix("#cloud-config\n").unwrap());
        assert_eq!(user_data, json!({"hostname": "node-1", "preserve_hostname": false}));
        assert_eq!(parsed(&files.network_config)["ethernets"]["all"]["dhcp4"], json!(true));
    }

    #[test]
    fn a_text_alone_is_the_file_itself() {
        for text in
            ["#!/bin/sh\ntrue\n", "#cloud-config\n# 0644 stays what it is\nmode: 0644\n", "MIME-Version: 1.0\n\nx"]
        {
            let spec: CloudInitSpec = serde_json::from_value(json!({"userData": text, "vendorData": text})).unwrap();
            let files = seed(&spec, "id");
            assert_eq!((files.user_data.as_str(), files.vendor_data.as_str()), (text, text));
            assert_eq!(parsed(&files.meta_data)["local-hostname"], "node-1");
        }
    }

    #[test]
    fn a_network_below_its_own_name_is_unwrapped() {
        let spec = json!({"network": {"network": {"version": 2}}});
        let files = seed(&serde_json::from_value(spec).unwrap(), "id");
        assert_eq!(parsed(&files.network_config), json!({"version": 2}));
    }

    #[test]
    fn structured_fields_win_over_free_ones() {
        let spec: CloudInitSpec = serde_json::from_value(json!({
            "hostname": "web.example.org",
            "userData": {"hostname": "other", "packages": ["vim"]},
            "users": [{"name": "ops", "sshKeys": ["ssh-ed25519 AAAA"], "sudo": true}],
        }))
        .unwrap();
        let files = seed(&spec, "id");
        let user_data = parsed(files.user_data.strip_prefix("#cloud-config\n").unwrap());
        assert_eq!(user_data["hostname"], "web");
        assert_eq!(user_data["fqdn"], "web.example.org");
        assert_eq!(user_data["packages"], json!(["vim"]));
        assert_eq!(user_data["users"][0]["ssh_authorized_keys"], json!(["ssh-ed25519 AAAA"]));
        assert_eq!(user_data["users"][0]["lock_passwd"], json!(true));
    }
}
