//! How a machine was admitted, and its certificates.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// What a machine must prove to get a certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ProofKind {
    /// The one-time token of its boot script: this trusts the provisioning network. For a discovered machine a person's
    /// approval is also accepted.
    #[default]
    BootToken,
    /// A person's approval of its key, each time it starts the agent.
    Approval,
}

impl ProofKind {
    /// Whether it is the default, which serialisation omits.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How a machine was admitted, and its certificates.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EnrolmentStatus {
    /// Its unexpired certificates, the newest last; at most 8.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<CertificateStatus>,
    /// How often its certificates were revoked: boot tokens with an earlier count are refused.
    #[serde(skip_serializing_if = "is_zero")]
    pub revocations: u64,
    /// When its certificates were last revoked: since then only those in `certificates` are valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// The approved key; no other key enrols by approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved: Option<ApprovedKey>,
    /// Keys that wait for approval; at most 4.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingKey>,
    /// When it was discovered; absent if a person described it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discovered_at: Option<Timestamp>,
    /// The enrolment rule that was applied to it. A rule is applied once per document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<AppliedRule>,
}

impl EnrolmentStatus {
    /// Whether it has no content.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
    /// Discovered, and not approved.
    pub fn is_unapproved(&self) -> bool {
        self.discovered_at.is_some() && self.approved.is_none() && self.revocations == 0
    }
    /// Discovered, and no person let it in: a rule did, or none has.
    pub fn is_unseen(&self) -> bool {
        self.discovered_at.is_some()
            && self.approved.as_ref().is_none_or(|key| key.by.starts_with(ApprovedKey::BY_RULE))
    }
}

impl ApprovedKey {
    /// Stands in `by` before the rule's name, where a rule approved the key.
    pub const BY_RULE: &str = "rule/";
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A certificate of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateStatus {
    /// Serial number, lower-case hexadecimal.
    pub serial: String,
    /// When it ends.
    pub expires: Timestamp,
}

/// An approved key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovedKey {
    /// `sha256:…` over its SubjectPublicKeyInfo.
    pub fingerprint: String,
    /// The person, or `rule/<name>`.
    pub by: String,
    /// When.
    pub at: Timestamp,
}

/// A key that waits for approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingKey {
    /// `sha256:…` over its SubjectPublicKeyInfo; the machine's console shows the same.
    pub fingerprint: String,
    /// Where it asks from.
    pub address: String,
    /// When it first asked.
    pub since: Timestamp,
    /// When it last asked, to the minute.
    pub last_asked: Timestamp,
}

/// What an enrolment rule did.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedRule {
    /// The rule's name.
    pub name: String,
    /// When it was applied.
    pub at: Timestamp,
    /// The template that the rule named, whose workflow was started or could not be.
    pub template: Option<String>,
    /// The result of starting the template's workflow: the workflow's name, or why there is none. Absent: not tried
    /// yet.
    pub run: Option<String>,
}
