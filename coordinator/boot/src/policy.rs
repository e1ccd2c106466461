//! What the boot services need from the rest of the coordinator.
//!
//! The services below see machines only through this trait, so that they can be tested with a table of machines and run
//! by hand without a store.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use async_trait::async_trait;
use landfall_api::{MacAddr, NetworkInterface};
use uuid::Uuid;

/// What a machine boots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// No document describes a machine with this address.
    Unknown,
    /// It has nothing to do: its own disk, at once.
    BootDisk {
        /// The machine's name.
        machine: String,
        /// The receipt that the disk to be started carries, if one is known.
        receipt: Option<ReceiptOf>,
    },
    /// It has work: the agent.
    RunAgent {
        /// The machine's name.
        machine: String,
        /// One-time boot token for the kernel command line.
        token: String,
        /// What the agent sets up of the network.
        network: Vec<NetworkInterface>,
    },
    /// A person must approve it: the agent, without a token.
    Approve {
        /// The machine's name, if it has one.
        machine: Option<String>,
        /// What the agent sets up of the network.
        network: Vec<NetworkInterface>,
    },
}

/// Which receipt is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiptOf {
    /// Of this workflow.
    pub workflow: Uuid,
    /// Of the action with this index in its list, where several disks carry its receipts.
    pub action: Option<u32>,
}

/// What is public about a machine: served to it without proof, so nothing secret belongs here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicFacts {
    /// The document's name, which is also the default host name.
    pub name: String,
    /// The document's uid.
    pub uid: Uuid,
    /// It enrols with a boot token alone: no approval counts.
    pub by_token_only: bool,
}

/// Which boot service was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// DHCP: where the loader is.
    Dhcp,
    /// HTTP: the script or the kernel image.
    Http,
}

/// A request of a netbooting port that was not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unserved {
    /// The port's address.
    pub mac: MacAddr,
    /// Which service was asked.
    pub service: Service,
    /// What asked: `pxe`, `http`, `ipxe` or `agent`.
    pub client: &'static str,
    /// The relay, or the address it came from, if it had one.
    pub from: Option<IpAddr>,
    /// No document describes a machine with this address.
    pub unknown: bool,
    /// Why, and what to do.
    pub reason: String,
}

/// A failed request to the engine.
#[derive(Debug, thiserror::Error)]
#[error("the engine did not answer for {mac}: {reason}")]
pub struct PolicyError {
    /// The machine's address.
    pub mac: MacAddr,
    /// What went wrong.
    pub reason: String,
}

/// The addresses that machines' documents reserve: at most one a port, and one port an address. Asked for every DHCP packet, so it
/// is cheap.
pub trait Reservations: Send + Sync {
    /// The address reserved for this port.
    fn address_for(&self, _mac: MacAddr) -> Option<Ipv4Addr> {
        None
    }
    /// The port that this address is reserved for.
    fn reserved_for(&self, _address: Ipv4Addr) -> Option<MacAddr> {
        None
    }
}

/// Nothing is reserved.
impl Reservations for () {}

/// What is written in place of what was found, `None` before the first write: unlike anything that another coordinator writes.
pub type TakeOver<'a> = &'a (dyn Fn(Option<Vec<u8>>) -> io::Result<Vec<u8>> + Send + Sync);

/// A place for the file that several coordinators share, of which one serves at a time.
#[async_trait]
pub trait SharedFile: Send + Sync {
    /// Replaces it, in one step, and answers by what. From then on what another one writes is refused, until that one takes it over.
    async fn take_over(&self, own: TakeOver<'_>) -> io::Result<Vec<u8>>;
    /// Replaces it, whole.
    async fn write(&self, bytes: &[u8]) -> io::Result<()>;
}

/// What the boot services ask.
#[async_trait]
pub trait BootPolicy: Reservations + 'static {
    /// What the machine at `mac`, which asks from `from`, is to boot. May mint a boot token, so it is asked only when a
    /// script is rendered.
    ///
    /// # Errors
    /// [`PolicyError`] when it cannot be known; the caller then leaves the machine to its own disk.
    async fn decide(
        &self, mac: MacAddr, smbios_uuid: Option<Uuid>, from: Option<IpAddr>,
    ) -> Result<Decision, PolicyError>;

    /// Whether a document describes a machine with that address, or reserves one for it. Asked for every DHCP packet, so it is cheap.
    ///
    /// # Errors
    /// [`PolicyError`] when it cannot be known; the caller then stays silent.
    async fn known(&self, mac: MacAddr) -> Result<bool, PolicyError>;

    /// The machine with that address, if a document describes one.
    ///
    /// # Errors
    /// [`PolicyError`] when it cannot be known.
    async fn machine(&self, mac: MacAddr) -> Result<Option<PublicFacts>, PolicyError>;

    /// Whether this coordinator is the one that gives addresses, as far as it knows: another one may have taken its place.
    fn gives_addresses(&self) -> bool {
        true
    }

    /// Whether a machine may be led here: not if this coordinator has lost its store, and others may have it.
    fn can_serve(&self) -> bool {
        true
    }

    /// Where the DHCP server keeps its leases, if other coordinators take this one's place: they must know them. `None`: in the data
    /// directory.
    fn shared_file(&self) -> Option<Arc<dyn SharedFile>> {
        None
    }

    /// A netbooting port was not served. A policy that shows no operator what it missed drops it.
    fn unserved(&self, _request: Unserved) {}

    /// A port was served: what [`BootPolicy::unserved`] said of it and of this service is over.
    fn served(&self, _mac: MacAddr, _service: Service) {}
}
