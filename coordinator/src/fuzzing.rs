//! Doors for the fuzz targets of `coordinator/fuzz`: parsers that are private otherwise, with plain data on the outside. Public
//! for them alone, and hidden: no promise is made of it.

use jiff::Timestamp;
use uuid::Uuid;

use crate::tls::MachineCert;
use landfall_boot::tftp;

pub use crate::workflow::MAX_RENDERED;

/// A TFTP client's wish to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TftpRequest {
    /// The path as sent.
    pub path: String,
    /// Bytes of a block.
    pub block: u16,
    /// The wait it asked for, seconds.
    pub timeout: Option<u8>,
    /// What its options are answered with.
    pub option_ack: Option<Vec<u8>>,
}

/// Reads a TFTP packet; what it asks for, of a file of `size` bytes, if it is a wish to read.
pub fn tftp_request(packet: &[u8], size: usize) -> Option<TftpRequest> {
    tftp::fuzzing_request(packet, size).map(|(path, block, timeout, option_ack)| TftpRequest {
        path,
        block,
        timeout,
        option_ack,
    })
}

/// What the TLS port says of a machine whose certificate is good.
pub fn machine_certificate(name: &str, uid: Uuid) -> MachineCert {
    MachineCert {
        name: name.to_owned(),
        uid,
        serial_hex: "01".into(),
        key_fingerprint: "sha256:00".into(),
        not_after: Timestamp::MAX,
    }
}
