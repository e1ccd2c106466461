//! What the engine needs of a certificate authority.

use jiff::Timestamp;
use landfall_api::{Pin, Problem};
use uuid::Uuid;

use crate::pki::Pki;

/// A certificate just made.
#[derive(Debug, Clone)]
pub struct IssuedCertificate {
    /// The machine's, then the CA's; DER.
    pub chain_der: Vec<Vec<u8>>,
    /// The machine's certificate's serial, lower-case hex.
    pub serial_hex: String,
    /// When it ends.
    pub not_after: Timestamp,
}

/// Issues certificates to machines.
pub trait CertificateAuthority: Send + Sync {
    /// A digest of the request's public key, after checking the request's signature: who asks holds the private key.
    ///
    /// # Errors
    /// [`Problem`] if it is not a valid PKCS#10 request.
    fn key_of_request(&self, csr_der: &[u8]) -> Result<String, Problem>;

    /// A client certificate for the request's key, naming this machine.
    ///
    /// # Errors
    /// [`Problem`] if the request is not valid or signing failed.
    fn issue_machine(&self, name: &str, uid: Uuid, csr_der: &[u8]) -> Result<IssuedCertificate, Problem>;

    /// `sha256:<hex>` of every CA key that may sign the server's certificate.
    fn pins(&self) -> Vec<Pin>;
}

impl CertificateAuthority for Pki {
    fn key_of_request(&self, csr_der: &[u8]) -> Result<String, Problem> {
        self.key_fingerprint(csr_der).map_err(|error| error.to_problem())
    }

    fn issue_machine(&self, name: &str, uid: Uuid, csr_der: &[u8]) -> Result<IssuedCertificate, Problem> {
        let issued = Pki::issue_machine(self, csr_der, name, uid).map_err(|error| error.to_problem())?;
        Ok(IssuedCertificate {
            chain_der: issued.chain_der,
            serial_hex: issued.serial_hex,
            not_after: issued.not_after,
        })
    }

    fn pins(&self) -> Vec<Pin> {
        vec![self.ca_pin()]
    }
}
