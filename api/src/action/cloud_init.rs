//! `cloudInit`

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    kind::{ActionInfo, Declaration, Download, Then},
    rules::{LOGIN_NAME_HINT, Rules, is_host_name, is_login_name, plain_text},
};
use crate::{
    DiskSelector, DurationSpec,
    dns_label::LABEL_HINT,
    issue::{has_expression, join},
};

/// A NoCloud seed on the installed disk: host name, accounts, network, any other cloud-config; and the unit that phones home.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CloudInitSpec {
    /// Which disk. Default: the disk that this workflow wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskSelector>,
    /// The installed system's host name. Default: the machine's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Accounts to create.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<UserSpec>,
    /// Netplan version 2 `network` mapping. Default: DHCP on every port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<serde_json::Value>,
    /// More cloud-config, merged under the fields above (which win).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub user_data: BTreeMap<String, serde_json::Value>,
    /// The phone-home unit. Default: installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phone_home: Option<PhoneHomeSpec>,
}

/// The phone-home unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PhoneHomeSpec {
    /// Whether the unit is installed. Without it the workflow succeeds at its reboot.
    pub enabled: bool,
    /// How long the installed system has to phone home, from the reboot. Default: 15m, unless the coordinator's configuration says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<DurationSpec>,
}

/// An account.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UserSpec {
    /// Login name.
    pub name: String,
    /// Public keys for `authorized_keys`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ssh_keys: Vec<String>,
    /// May use sudo without a password.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sudo: bool,
    /// Supplementary groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Login shell. Default: `/bin/bash`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
}

impl Declaration for CloudInitSpec {
    const INFO: ActionInfo = ActionInfo {
        about: "Puts a NoCloud seed on the installed disk.",
        timeout: DurationSpec::from_secs(5 * 60),
        attempts: 1,
        protocol: 1,
        tools: false,
        then: Then::Next,
        writes_image: false,
        means_written_disk: true,
        after_failure: false,
        no_branch: None,
        secrets: &["users", "userData", "network"],
    };

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        rules.selector(spec.get("disk"), &join(path, "disk"));
        if let Some(name) = plain_text(spec, "hostname")
            && !is_host_name(name)
        {
            rules.say(join(path, "hostname"), format!("\"{name}\" cannot be a host name"), LABEL_HINT);
        }
        let users = spec.get("users").and_then(Value::as_array);
        for (i, user) in users.into_iter().flatten().enumerate() {
            let name = user.get("name").and_then(Value::as_str).filter(|n| !has_expression(n));
            if let Some(name) = name.filter(|n| !is_login_name(n)) {
                let at = format!("{path}.users[{i}].name");
                rules.say(at, format!("\"{name}\" cannot be a login name"), LOGIN_NAME_HINT);
            }
        }
    }

    fn downloads(&self) -> Vec<Download> {
        Vec::new()
    }
}
