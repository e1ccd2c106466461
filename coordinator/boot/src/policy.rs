//! What the boot services ask of the rest of the coordinator, and nothing more.
//!
//! The services below see machines only through this trait, so that they can be tested with a table of machines and run
//! by hand without a store.

use std::net::IpAddr;

use async_trait::async_trait;
use landfall_api::MacAddr;
use uuid::Uuid;

/// What a machine that asks is to boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Nobody described a machine with this address.
    Unknown,
    /// It has nothing to do: its own disk, at once.
    BootDisk {
        /// The machine's name.
        machine: String,
    },
    /// It has work: the agent.
    RunAgent {
        /// The machine's name.
        machine: String,
        /// One-time boot token for the kernel command line.
        token: String,
    },
    /// Somebody has to let it in: the agent, without a token.
    Approve {
        /// The machine's name, where it has one yet.
        machine: Option<String>,
    },
}

/// What is public about a machine: served to it without proof, so nothing secret belongs here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicFacts {
    /// The document's name, which is also the default host name.
    pub name: String,
    /// The document's uid.
    pub uid: Uuid,
}

/// A question to the engine that found no answer.
#[derive(Debug, thiserror::Error)]
#[error("the engine did not answer about {mac}: {reason}")]
pub struct PolicyError {
    /// Whom it was about.
    pub mac: MacAddr,
    /// What went wrong.
    pub reason: String,
}

/// What the boot services ask.
#[async_trait]
pub trait BootPolicy: Send + Sync + 'static {
    /// What the machine at `mac`, which asks from `from`, is to boot. May mint a boot token, so it is asked only when a
    /// script is rendered.
    ///
    /// # Errors
    /// [`PolicyError`] when it cannot be known; the caller then leaves the machine to its own disk.
    async fn decide(
        &self,
        mac: MacAddr,
        smbios_uuid: Option<Uuid>,
        from: Option<IpAddr>,
    ) -> Result<Decision, PolicyError>;

    /// Whether anybody described a machine with that address. Asked for every DHCP packet, so it is cheap.
    ///
    /// # Errors
    /// [`PolicyError`] when it cannot be known; the caller then stays silent.
    async fn known(&self, mac: MacAddr) -> Result<bool, PolicyError>;

    /// The machine with that address, if anybody described one.
    ///
    /// # Errors
    /// [`PolicyError`] when it cannot be known.
    async fn machine(&self, mac: MacAddr) -> Result<Option<PublicFacts>, PolicyError>;
}
