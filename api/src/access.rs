//! Who may do what: roles, tokens, approval, and the audit log's entries.

use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::DurationSpec;

words! {
    /// What a person or program may do. Each role includes the rights of those before it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
    Role {
        /// Reads everything except secrets' values, tokens, backups and the audit log.
        Viewer = "viewer",
        /// Changes machines, templates and workflows.
        Operator = "operator",
        /// Everything.
        Admin = "admin",
    } else UnknownRole "\"{0}\" is not a role; the roles are viewer, operator and admin"
}

/// The body of `POST …/tokens`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenRequest {
    /// A DNS label, unique among tokens; the audit log uses it for the caller.
    pub name: String,
    /// What the holder may do.
    pub role: Role,
    /// Its lifetime: at least a minute, at most 366 days. Default 30 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<DurationSpec>,
}

/// A bearer token, without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenInfo {
    /// Its name.
    pub name: String,
    /// The role of its holder.
    pub role: Role,
    /// Who made it.
    pub created_by: String,
    /// When.
    pub created: Timestamp,
    /// When it ends.
    pub expires: Timestamp,
    /// When it was last used, to the minute; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used: Option<Timestamp>,
}

/// The answer to `POST …/tokens`: the only time that the value is shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenIssued {
    /// What is kept of it.
    pub token: TokenInfo,
    /// For `Authorization: Bearer`. Only its hash is kept.
    pub value: String,
}

impl fmt::Debug for TokenIssued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenIssued").field("token", &self.token).finish_non_exhaustive()
    }
}

/// The answer to `GET …/tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenList {
    /// By name, including those that expired less than a day ago.
    pub items: Vec<TokenInfo>,
}

/// The answer to `POST …/operators/{name}/revoke`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorRevoked {
    /// The name in the certificates.
    pub name: String,
    /// Certificates of that name made until then are refused.
    pub revoked_at: Timestamp,
}

/// The body of `POST …/machines/{name}/approve`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApproveRequest {
    /// The key's fingerprint as shown on the machine's console; colons, spaces and case do not matter.
    pub fingerprint: String,
}

/// The result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
    /// It was done.
    Done,
    /// It was allowed, but failed; `code` says why.
    Failed,
    /// It was not allowed; `code` says why.
    Refused,
}

/// One line of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// Rises with every entry, from 1: `?after=` continues from here.
    pub position: u64,
    /// When, by the coordinator's clock.
    pub time: Timestamp,
    /// Who: `admin/ann`, `token/ci`, `local/root`, `machine/node-1`, `anonymous`, `coordinator`.
    pub who: String,
    /// From where: an address, or `unix` for the local socket.
    pub from: String,
    /// What: method and path of a request, name of a call, or one word such as `IdentityAlarm`.
    pub action: String,
    /// Its subject, such as `machine/node-1`; empty if the action says everything.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// The result.
    pub outcome: AuditOutcome,
    /// The problem's code, where there is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// More for people. Never a secret.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_includes_those_before_it() {
        assert!(Role::Viewer < Role::Operator && Role::Operator < Role::Admin);
        let error = "Admin".parse::<Role>().unwrap_err().to_string();
        assert_eq!(error, "\"Admin\" is not a role; the roles are viewer, operator and admin");
    }

    #[test]
    fn a_tokens_value_is_in_no_debug_output() {
        let token = TokenInfo {
            name: "ci".into(),
            role: Role::Viewer,
            created_by: "ann".into(),
            created: Timestamp::UNIX_EPOCH,
            expires: Timestamp::UNIX_EPOCH,
            last_used: None,
        };
        assert!(!format!("{:?}", TokenIssued { token, value: "hunter2".into() }).contains("hunter2"));
    }
}
