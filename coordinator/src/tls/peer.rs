//! Who is on the other end.

use std::net::SocketAddr;

use jiff::Timestamp;
use landfall_api::Role;
use uuid::Uuid;

/// Who is on the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// No certificate: may enrol, phone home, or show a bearer token.
    Anonymous,
    /// A machine's agent.
    Machine(MachineCert),
    /// A person or program with an operator's certificate.
    Operator(OperatorCert),
    /// A local user, over the Unix socket.
    Local {
        /// User id of the other process.
        uid: u32,
        /// Its name; the number where it has none.
        user: String,
    },
}

/// Who is on the other end, and from where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// Who.
    pub peer: Peer,
    /// From where.
    pub remote: SocketAddr,
}

/// What a machine's certificate says. Whether it is still good (not ended, not revoked) is checked per call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineCert {
    /// The machine's name when it was issued.
    pub name: String,
    /// The machine's uid.
    pub uid: Uuid,
    /// The certificate's serial number, lower-case hexadecimal.
    pub serial_hex: String,
    /// The fingerprint of its key, as of [`crate::pki::Pki::key_fingerprint`].
    pub key_fingerprint: String,
    /// When it ends.
    pub not_after: Timestamp,
}

/// What an operator's certificate says. Whether it is still good (not ended, not revoked) is checked per call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorCert {
    /// The name in it.
    pub name: String,
    /// The role of its holder.
    pub role: Role,
    /// When it was made, to the second.
    pub made: Timestamp,
    /// When it ends.
    pub not_after: Timestamp,
    /// Another coordinator asks with it, in the name of a caller that it has judged.
    pub stands_in: bool,
}

impl OperatorCert {
    /// What the store's list of withdrawn operators checks.
    pub fn checked(&self) -> landfall_store::access::Certificate<'_> {
        landfall_store::access::Certificate { name: &self.name, made: self.made, not_after: self.not_after }
    }
}
