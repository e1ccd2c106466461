//! DHCP: ProxyDHCP beside an existing server, or the only server of a lab network.
//!
//! The decisions are pure ([`proxy`], [`full`]): a parsed [`packet::Request`] in, a [`reply::Reply`] or a [`Silence`] with
//! its reason out. [`service`] owns the sockets and the log, [`leases`] the addresses. What goes to whom:
//!
//! | client | by | gets |
//! |---|---|---|
//! | PXE firmware | option 60 `PXEClient`, 93 | a loader by TFTP |
//! | UEFI HTTP Boot | option 60 `HTTPClient`, 93 | the loader's URL |
//! | iPXE, in ROM or loaded by us | option 77 `iPXE` | the URL of its machine's script |
//! | anything else | | an address, if this is the only server |
//!
//! An unknown machine gets no answer unless `dhcp.discovery` is on. Even then described machines have priority: unknown
//! machines get at most [`UNKNOWN_A_SECOND`] answers a second and half of the range, with leases of ten minutes.

pub mod bootfile;
pub mod full;
pub mod lease_file;
pub mod leases;
pub mod packet;
pub mod probe;
pub mod proxy;
pub mod reply;
mod rival;
pub mod service;
pub mod socket;
mod standing;
pub mod v6;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::{io, time::Duration};

/// Why a packet gets no answer. Every one is logged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Silence {
    /// Too short, or without the magic cookie.
    #[error("not a DHCP packet")]
    NotDhcp,
    /// A server's reply.
    #[error("a reply, not a request")]
    NotARequest,
    /// No unicast Ethernet address of 6 bytes.
    #[error("the client's hardware address is not a unicast Ethernet address")]
    NotEthernet,
    /// No option 53.
    #[error("plain BOOTP, without a message type")]
    Bootp,
    /// A message type that servers do not answer here.
    #[error("this kind of message needs no answer")]
    Kind,
    /// An ordinary DHCP client where only boot information is given.
    #[error("does not netboot")]
    NotNetbooting,
    /// No document describes it, and discovery is off.
    #[error("no machine has this address; describe it with `landfall apply`, or set dhcp.discovery")]
    UnknownMachine,
    /// The client chose another server.
    #[error("meant for the DHCP server {0}")]
    OtherServer(Ipv4Addr),
    /// Another coordinator may have taken this one's place, and answers.
    #[error("this coordinator has lost its store; another one answers in its place")]
    NotActive,
    /// 32-bit UEFI.
    #[error("32-bit UEFI (architecture 6 or 15) is not supported; switch the firmware to 64-bit UEFI or to BIOS")]
    Uefi32,
    /// arm64 UEFI without a loader to give it.
    #[error(
        "arm64 UEFI, but boot.bootloaders has no snponly-arm64.efi; firmware that boots from HTTP needs only boot.arm64.uki"
    )]
    NoArm64Loader,
    /// No loader for this one.
    #[error("no loader for client architecture {0}")]
    Architecture(u16),
    /// The client did not say what it is.
    #[error("netboots, but states no architecture (option 93)")]
    NoArchitecture,
    /// The relay is in a subnet that there is no range for.
    #[error("relayed from the subnet of {0}, which has no range; add it to [[dhcp.subnets]]")]
    Relayed(Ipv4Addr),
    /// Every address is taken.
    #[error("every address of the subnet's range is taken; widen it")]
    NoAddress,
    /// The reply does not fit its fields.
    #[error("the boot URL is longer than DHCP's 127 bytes")]
    UrlTooLong,
    /// Unknown machines send more requests than are answered.
    #[error("unknown machines send more requests than are answered")]
    TooManyUnknown,
    /// DHCPv6: neither the client's identifier nor its address shows its port.
    #[error(
        "neither the client's identifier (DUID) nor its link-local address has its Ethernet address; let it make its \
            link-local address of that (EUI-64), or give it an address by hand"
    )]
    NoMac,
    /// DHCPv6: no option 1.
    #[error("the client states no identifier (option 1)")]
    NoClientId,
    /// DHCPv6: passed on by a relay.
    #[error("DHCPv6 relays are not supported; serve that subnet from a coordinator on its link")]
    RelayedV6,
    /// DHCPv6: the client chose another server.
    #[error("meant for another DHCPv6 server")]
    AnotherServer,
    /// DHCPv6 beside another server: only UEFI HTTP Boot takes a second answer.
    #[error(
        "beside another DHCPv6 server only UEFI HTTP Boot is served; let that server give the loader's URL (option 59)"
    )]
    NoProxyV6,
    /// The machine's document could not be looked up in time.
    #[error("cannot look up the machine: {0}")]
    Lookup(String),
}

/// Why the DHCP service cannot start or go on.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum DhcpError {
    /// The configuration lacks something that the mode needs, or contradicts itself.
    #[error("{key}: {what}; {hint}")]
    Config { key: &'static str, what: String, hint: &'static str },
    /// A socket cannot be had.
    #[error("cannot listen for DHCP on {interface} port {port}; check for another DHCP server or client on this host")]
    Bind { interface: String, port: u16, source: io::Error },
    /// Another server answers there.
    #[error(
        "another DHCP server, {server}, answers on {interface}; two servers conflict: stop it, or set dhcp.mode = \
            \"proxy\" to work beside it"
    )]
    OtherServer { server: Ipv4Addr, interface: String },
    /// Another server answers there, over IPv6.
    #[error(
        "another DHCPv6 server, {server}, answers on {interface}; two servers conflict: stop it, or set dhcp.mode = \
            \"proxy\" to serve UEFI HTTP Boot beside it"
    )]
    OtherServerV6 { server: Ipv6Addr, interface: String },
    /// The question whether there is another server could not be asked.
    #[error("cannot check for another DHCP server on {interface}")]
    Probe { interface: String, source: io::Error },
    /// The hosts of the link cannot learn that there is a DHCPv6 server.
    #[error("cannot send router advertisements on {interface}; check that IPv6 is on there, and the process's rights")]
    Adverts { interface: String, source: io::Error },
    /// The kept leases cannot be read.
    #[error("cannot read the stored leases {file}; correct or remove the file (addresses may then change)")]
    Leases { file: String, source: io::Error },
    /// Receiving failed for good.
    #[error("receiving DHCP packets on {interface} failed")]
    Receive { interface: String, source: io::Error },
}

/// Answers per second to unknown machines, all of them together.
pub const UNKNOWN_A_SECOND: u32 = 20;

/// How long one look-up of a machine may hold up the service.
pub(crate) const LOOKUP_LIMIT: Duration = Duration::from_secs(2);

/// Whether the packet's sender is served at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// A document describes it.
    Known,
    /// None does, but discovery is on.
    Discovered,
    /// None does.
    Unknown,
}

impl Standing {
    /// Refuses unknown machines.
    ///
    /// # Errors [`Silence::UnknownMachine`] for an unknown machine.
    pub fn check(self) -> Result<(), Silence> {
        if self == Self::Unknown { Err(Silence::UnknownMachine) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
