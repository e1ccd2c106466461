//! Enrolment: proof and public key in, certificate out.

use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use super::Identity;
use crate::{MachineFacts, SecretText};

/// An agent asks for a certificate.
#[derive(Debug, Clone, PartialEq)]
pub struct EnrollRequest {
    /// The agent's version, SemVer; empty if it was not said.
    pub software: String,
    /// The protocol revision that the agent speaks; 0 if it was not said.
    pub protocol: u32,
    /// Which computer it says it runs on.
    pub identity: Identity,
    /// `/proc/sys/kernel/random/boot_id`
    pub boot_id: String,
    /// PKCS#10, DER; never empty.
    pub csr_der: Vec<u8>,
    /// What it saw of its machine; enrolment rules for unknown machines read it.
    pub facts: Option<Box<MachineFacts>>,
    /// Why it may have the certificate.
    pub proof: Proof,
}

/// How an agent proves that it may have a machine's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// The one-time token of its boot script.
    BootToken(SecretText),
    /// A person compares this fingerprint of the key on the console with the one that the coordinator shows.
    Approval {
        /// As the agent prints it.
        fingerprint: String,
    },
    /// The certificate that the connection showed. The request is for the same key.
    Renewal,
}

/// The answer to an [`EnrollRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrollAnswer {
    /// What the agent's clock should say.
    pub coordinator_time: Timestamp,
    /// The certificate, or when to ask again.
    pub outcome: EnrollOutcome,
}

/// What came of an [`EnrollRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnrollOutcome {
    /// The machine has a certificate.
    Granted(MachineCredentials),
    /// A person has to approve the key first.
    Waiting {
        /// What the coordinator waits for, for the console.
        reason: String,
        /// When to ask again; never zero.
        retry_after: Duration,
    },
}

/// A machine's certificate and names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineCredentials {
    /// The machine's name.
    pub machine_name: String,
    /// The machine's uid.
    pub machine_uid: Uuid,
    /// The machine's certificate first, then the CA's; DER.
    pub certificate_chain_der: Vec<Vec<u8>>,
}
