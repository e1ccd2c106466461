//! `bmcAccount`: its fields, what is sent to the agent, and what comes of it.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::kind::{ActionInfo, Declaration};
use super::rules::{Rules, plain_text};
use crate::{BmcAddress, DurationSpec, SecretText, issue::join};

/// Sets an account in the machine's BMC, through the machine itself (IPMI over `/dev/ipmi0`), with which the coordinator then switches the
/// power. The coordinator makes the password and keeps it sealed in the Secret `bmc-MACHINE`; an account of `spec.bmc.credentials` is set as
/// it is. A machine without `spec.bmc` gets one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BmcAccountSpec {
    /// The account's name at the BMC, at most 16 letters, digits and `._-`. That of an applied Secret comes before it. Default: `landfall`.
    pub username: String,
    /// What the account may do. Default: `operator`, which is enough for power and boot device.
    pub privilege: BmcPrivilege,
    /// What the coordinator then speaks to the BMC, where the machine has no `spec.bmc` yet. Default: `ipmi`.
    pub protocol: BmcAccountProtocol,
    /// Sets a new password. The old one stays in use until the BMC has the new one. Default: `false`.
    pub rotate: bool,
}

impl Default for BmcAccountSpec {
    fn default() -> Self {
        Self {
            username: "landfall".into(),
            privilege: BmcPrivilege::default(),
            protocol: BmcAccountProtocol::default(),
            rotate: false,
        }
    }
}

words! {
    /// What an account of a BMC may do.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    BmcPrivilege {
        /// Read and switch the power, and set the boot device.
        #[default]
        Operator = "operator",
        /// All, accounts and settings too: some BMCs want it for the boot device.
        Administrator = "administrator",
    }
}

words! {
    /// What the coordinator speaks to a BMC.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    BmcAccountProtocol {
        /// IPMI 2.0 over LAN.
        #[default]
        Ipmi = "ipmi",
        /// Redfish over HTTPS, where the BMC has one list of accounts for both. A person approves its certificate.
        Redfish = "redfish",
    }
}

impl BmcAccountProtocol {
    /// What `spec.bmc.address` says of a BMC at this address. `None`: it is none that a document can name.
    pub fn address(self, bmc: IpAddr) -> Option<BmcAddress> {
        let scheme = match self {
            Self::Ipmi => "ipmi",
            Self::Redfish => "redfish+https",
        };
        let text = if bmc.is_ipv6() { format!("{scheme}://[{bmc}]") } else { format!("{scheme}://{bmc}") };
        text.parse().ok()
    }
}

/// `bmcAccount` as an agent is sent it, with the account in place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BmcAccount {
    /// The account's name.
    pub username: String,
    /// Its password.
    pub password: SecretText,
    /// What it may do.
    pub privilege: BmcPrivilege,
}

impl BmcAccount {
    /// The longest name, bytes (IPMI 2.0, 22.28).
    pub const MAX_USERNAME: usize = 16;
    /// The longest password, bytes (IPMI 2.0, 22.30).
    pub const MAX_PASSWORD: usize = 20;

    /// What a BMC could not take of a name and a password, if anything. The password is not in it.
    pub fn fault(username: &str, password: &str) -> Option<String> {
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if username.is_empty() || username.len() > Self::MAX_USERNAME || !plain(username) {
            let most = Self::MAX_USERNAME;
            return Some(format!(
                "a BMC takes names of 1 to {most} ASCII characters without spaces, and not \"{username}\""
            ));
        }
        let fits = !password.is_empty() && password.len() <= Self::MAX_PASSWORD && plain(password);
        (!fits).then(|| {
            let most = Self::MAX_PASSWORD;
            format!("a BMC takes passwords of 1 to {most} ASCII characters without spaces, and this one is another")
        })
    }
}

/// What came of a `bmcAccount`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BmcAccountResult {
    /// The BMC's address, as it says itself.
    pub address: IpAddr,
    /// The number that the account has there, 2 to 63.
    pub user: u8,
}

impl Declaration for BmcAccountSpec {
    const INFO: ActionInfo = ActionInfo {
        // Setting it again changes nothing, and a BMC may be busy.
        attempts: 3,
        no_branch: Some("remove its branch: a BMC has one list of accounts, and branches run at the same time"),
        ..ActionInfo::new(
            "Sets the account in the machine's BMC with which the coordinator switches its power.",
            DurationSpec::from_secs(5 * 60),
            13,
        )
    };

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        if let Some(name) = plain_text(spec, "username")
            && (BmcAccount::fault(name, "p").is_some()
                || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)))
        {
            let most = BmcAccount::MAX_USERNAME;
            let hint = format!("write 1 to {most} of the characters A-Z a-z 0-9 . _ -");
            rules.say(join(path, "username"), format!("\"{name}\" is no name for an account of a BMC"), hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_that_no_bmc_takes_is_refused_unseen() {
        assert_eq!(BmcAccount::fault("landfall", "0123456789abcdefghij"), None);
        for (name, password) in [
            ("", "geheim"),
            ("seventeen-letters", "geheim"),
            ("a b", "geheim"),
            ("a", ""),
            ("a", "geheim, aber zu lang!"),
        ] {
            let fault = BmcAccount::fault(name, password).unwrap();
            assert!(!fault.contains("geheim"), "{fault}");
        }
    }

    #[test]
    fn a_bmcs_address_is_one_of_a_document() {
        let both = |bmc: &str| {
            BmcAccountProtocol::ALL.map(|protocol| protocol.address(bmc.parse().unwrap()).unwrap().to_string())
        };
        assert_eq!(both("192.0.2.9"), ["ipmi://192.0.2.9", "redfish+https://192.0.2.9"]);
        assert_eq!(both("2001:db8::9"), ["ipmi://[2001:db8::9]", "redfish+https://[2001:db8::9]"]);
    }
}
