//! What can be wrong with the CA, and what to do about it.

use std::{io, path::PathBuf};

use landfall_api::{ErrorCode, Problem};
use landfall_store::StoreError;

/// The CA cannot be used, or a certificate cannot be issued.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file or directory cannot be read or written.
    #[error("cannot {doing} {path}")]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    /// One of the two halves is gone.
    #[error(
        "{path} is missing, but the rest of the certificate authority is there; restore it from a backup. Machines \
            pin this CA. To create a new one, which locks out all machines that know the old one, remove both the pki \
            and the admin directory"
    )]
    Missing { path: PathBuf },
    /// A file is not what it should be.
    #[error("{path} is damaged: {what}; restore it from a backup")]
    Damaged { path: PathBuf, what: String },
    /// A file or directory that must not be written over.
    #[error("{path} already exists; use another name, or remove it first")]
    Exists { path: PathBuf },
    /// A time that no certificate should last.
    #[error("an operator's certificate must last from one hour to 825 days")]
    Life,
    /// A private key that others may read.
    #[error("other users can read {path} (mode {mode:04o}); run chmod 600 on it, and consider who may have read it")]
    Exposed { path: PathBuf, mode: u32 },
    /// A certificate request that cannot be honoured.
    #[error("the certificate request is refused: {0}")]
    Request(String),
    /// A name that cannot stand in a certificate.
    #[error("\"{0}\" is not allowed in a certificate; use letters, digits, dots, hyphens, underscores and @")]
    Name(String),
    /// The system's clock reads a time that no certificate can carry.
    #[error("the system's clock reads an impossible time; set it")]
    Time,
    /// Signing failed.
    #[error("cannot create a certificate")]
    Sign(#[from] rcgen::Error),
    /// The store has the CA of another host.
    #[error(
        "{path} is not the certificate authority that the coordinators of this store share; a host that joins them has none of its own: \
            move its pki and admin directories away"
    )]
    Another { path: PathBuf },
    /// What the store has is not a CA.
    #[error("the certificate authority in the store cannot be read")]
    Shared(#[source] serde_json::Error),
    /// The store does not answer.
    #[error("cannot look for the certificate authority in the store")]
    Store(#[from] StoreError),
    /// rustls does not take our own key or certificate.
    #[error("cannot use the server's certificate")]
    Tls(#[from] rustls::Error),
}

impl PkiError {
    /// As a caller from the network may see it.
    pub fn to_problem(&self) -> Problem {
        match self {
            Self::Request(_) => Problem::new(ErrorCode::InvalidDocument, self.to_string())
                .hint("send a PKCS#10 request, DER, signed with an ECDSA P-256 key")
                .at("csr_der"),
            Self::Name(_) => Problem::new(ErrorCode::InvalidDocument, self.to_string()).at("metadata.name"),
            _ => Problem::new(ErrorCode::Internal, self.to_string())
                .caused_by(self)
                .hint("read the coordinator's log and check its data directory"),
        }
    }
}
