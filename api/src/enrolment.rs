//! How a machine came to be let in, and what it was given.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a machine must show before it is given a certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ProofKind {
    /// The one-time token of its boot script: trusts the provisioning network. Of a machine that was discovered, a person's
    /// approval does too.
    #[default]
    BootToken,
    /// A person's approval of its key, each time that it starts the agent.
    Approval,
}

impl ProofKind {
    /// Whether it is the default, for leaving it out.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How a machine came to be let in, and what it was given.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EnrolmentStatus {
    /// Its certificates that have not ended, the newest last; at most 8.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<CertificateStatus>,
    /// How often its certificates were revoked: boot tokens of an earlier count open nothing.
    #[serde(skip_serializing_if = "is_zero")]
    pub revocations: u64,
    /// When its certificates were last revoked: since then only those in `certificates` are good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// The key that was approved; no other enrols by approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved: Option<ApprovedKey>,
    /// Keys that wait for approval; at most 4.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingKey>,
    /// When it was discovered; absent where a person described it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discovered_at: Option<Timestamp>,
    /// The enrolment rule that was applied to it. Once in the life of the document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<AppliedRule>,
}

impl EnrolmentStatus {
    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
    /// Discovered, and nobody has let it in.
    pub fn is_stranger(&self) -> bool {
        self.discovered_at.is_some() && self.approved.is_none() && self.revocations == 0
    }
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

/// A key that somebody approved.
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedRule {
    /// The rule's name.
    pub name: String,
    /// When it was applied.
    pub at: Timestamp,
    /// The template it named, and whose run was started or could not be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// What came of starting the template's run: the run's name, or why there is none. Absent: not tried yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}
