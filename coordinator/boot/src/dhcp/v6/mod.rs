//! DHCPv6 (RFC 8415, with the boot options of RFC 5970): on a network where the coordinator's own address is of IPv6.
//!
//! No lease is kept: an address follows from the port's Ethernet address and the client's own number for the address
//! ([`address`]), so a restart forgets nothing, and no file is to be kept. What goes to whom:
//!
//! | client | by | gets |
//! |---|---|---|
//! | PXE firmware | option 16 `PXEClient`, 61 | the URL of a loader by TFTP |
//! | UEFI HTTP Boot | option 16 `HTTPClient`, 61 | the loader's URL |
//! | iPXE, in ROM or loaded by us | option 15 `iPXE` | the URL of its machine's script |
//! | anything else | | an address, if this is the only server |
//!
//! Beside another DHCPv6 server UEFI HTTP Boot alone is answered: it takes the address from the one and the URL from the other. PXE over
//! IPv6 has no such thing, and iPXE takes the first answer with an address.

pub mod address;
pub mod answer;
pub mod packet;
pub mod probe;
pub mod service;
pub mod socket;

#[cfg(test)]
mod tests;
