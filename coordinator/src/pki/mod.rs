//! The coordinator's own certificate authority.

/// The certificate authority.
#[derive(Debug)]
pub struct Pki {}
