//! Who is on the other end.

use uuid::Uuid;

/// Who is on the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// No certificate: may enrol or phone home, with a proof of its own.
    Anonymous,
    /// A machine's agent.
    Machine(MachineCert),
    /// A person or program with an operator's certificate.
    Operator {
        /// The name in it.
        name: String,
    },
    /// A local user, over the Unix socket.
    Local {
        /// User id of the other process.
        uid: u32,
        /// Its name; the number where it has none.
        user: String,
    },
}

/// What a machine's certificate says. Whether it is still good (newest issued, not revoked) is checked per call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineCert {
    /// The machine's name when it was issued.
    pub name: String,
    /// The machine's uid.
    pub uid: Uuid,
    /// The certificate's serial number, lower-case hexadecimal.
    pub serial_hex: String,
}
