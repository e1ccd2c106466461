//! Detached signatures: minisign's and OpenPGP's, distinguished by what they look like.

mod minisign;
mod openpgp;

/// A signature whose maker's key was given; it can be held against the bytes.
#[derive(Debug, Clone)]
pub struct DetachedSignature(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Minisign(minisign::Detached),
    OpenPgp(openpgp::Detached),
}

/// Looks at the signed bytes as they pass.
pub trait SignatureVerifier: Send {
    /// The next bytes.
    fn update(&mut self, stored: &[u8]);
    /// There are no more.
    ///
    /// # Errors
    /// Why the signature does not hold: a clause.
    fn finish(self: Box<Self>) -> Result<(), String>;
}

impl DetachedSignature {
    /// From a public key as its maker publishes it and the content of the signature's file.
    ///
    /// # Errors
    /// A clause: what is wrong with either, or that one does not belong to the other.
    pub fn read(key: &str, signature: &[u8]) -> Result<Self, String> {
        if key.contains("-----BEGIN PGP PUBLIC KEY BLOCK-----") {
            return openpgp::Detached::read(key, signature).map(Kind::OpenPgp).map(Self);
        }
        minisign::Detached::read(key, signature).map(Kind::Minisign).map(Self)
    }

    /// Whether the bytes may pass by rather than be held as a whole.
    ///
    /// # Errors
    /// Why not: a clause.
    pub fn can_stream(&self) -> Result<(), String> {
        match &self.0 {
            Kind::Minisign(signature) => signature.can_stream(),
            Kind::OpenPgp(signature) => signature.can_stream(),
        }
    }

    /// Holds it against bytes that are all there.
    ///
    /// # Errors
    /// Why it does not hold: a clause.
    pub fn check(&self, bytes: &[u8]) -> Result<(), String> {
        match &self.0 {
            Kind::Minisign(signature) => signature.check(bytes),
            Kind::OpenPgp(signature) => signature.check(bytes),
        }
    }

    /// Holds it against bytes that pass by. A signature that cannot be streamed fails at the end.
    pub fn verifier(&self) -> Box<dyn SignatureVerifier + '_> {
        match &self.0 {
            Kind::Minisign(signature) => signature.verifier(),
            Kind::OpenPgp(signature) => signature.verifier(),
        }
    }

    /// Whose it is and what its maker says of it, for the log. To be believed only after it held.
    pub fn description(&self) -> String {
        let text = match &self.0 {
            Kind::Minisign(signature) => signature.description(),
            Kind::OpenPgp(signature) => signature.description(),
        };
        text.chars().take(300).map(|char| if char.is_control() { ' ' } else { char }).collect()
    }
}

/// What is said at the end of a stream that could not be looked at.
struct Refused(String);

impl SignatureVerifier for Refused {
    fn update(&mut self, _: &[u8]) {}
    fn finish(self: Box<Self>) -> Result<(), String> {
        Err(self.0)
    }
}
