//! `cloudInit`: what it may be given, and what can be seen to be wrong with it before a machine is touched.

mod kinds;
mod network;
mod user_data;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

pub use self::{kinds::UserDataKind, network::network_section, user_data::UserDataSpec};
use super::kind::{ActionInfo, Declaration};
use super::rules::{LOGIN_NAME_HINT, Rules, is_host_name, is_login_name, plain_text};
use crate::dns_label::LABEL_HINT;
use crate::issue::{has_expression, join};
use crate::{DiskSelector, DurationSpec};

/// A NoCloud seed on the installed disk: host name, accounts, network, any other cloud-config; and the unit that phones home.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CloudInitSpec {
    /// Which disk. Default: the disk that this workflow wrote.
    pub disk: Option<DiskSelector>,
    /// The installed system's host name. Default: the machine's name.
    pub hostname: Option<String>,
    /// Accounts to create.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<UserSpec>,
    /// Network configuration of version 1 or 2 as a mapping, or `config: disabled`. Default: the network of the machine's
    /// document, else DHCP on every port.
    pub network: Option<serde_json::Value>,
    /// More cloud-config as a mapping, or a text of any kind that cloud-init knows by its first line. The fields above win.
    pub user_data: Option<UserDataSpec>,
    /// Vendor-data, in the same forms. What user-data says wins.
    pub vendor_data: Option<UserDataSpec>,
    /// The phone-home unit. Default: installed.
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
        means_written_disk: true,
        secrets: &["users", "userData", "vendorData", "network"],
        ..ActionInfo::new("Puts a NoCloud seed on the installed disk.", DurationSpec::from_secs(5 * 60), 1)
    };
    const LATER: &'static [(&'static str, u32)] = &[("vendorData", 8)];

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        rules.selector(spec.get("disk"), &join(path, "disk"));
        if let Some(name) = plain_text(spec, "hostname")
            && !is_host_name(name)
        {
            rules.say(join(path, "hostname"), format!("\"{name}\" cannot be a host name"), LABEL_HINT);
        }
        for field in ["userData", "vendorData"] {
            rules.fault(join(path, field), spec.get(field).and_then(Value::as_str).and_then(user_data::fault));
        }
        if let Some(network) = spec.get("network").filter(|network| !network.is_null()) {
            network::check(network, &join(path, "network"), rules);
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
}
