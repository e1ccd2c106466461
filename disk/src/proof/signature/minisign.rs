//! minisign's signatures: Ed25519 over BLAKE2b-512 of the bytes, or over the bytes themselves (the old way).

use minisign_verify::{Error, PublicKey, Signature, StreamVerifier};

use super::{Refused, SignatureVerifier};

/// A signature and the key it must be of.
#[derive(Clone)]
pub(super) struct Detached {
    key: PublicKey,
    signature: Signature,
}

impl std::fmt::Debug for Detached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.description())
    }
}

impl Detached {
    pub(super) fn read(key: &str, signature: &[u8]) -> Result<Self, String> {
        let line = key.lines().map(str::trim).find(|line| line.starts_with("RW"));
        let line =
            line.ok_or("the stated key is neither a minisign key (a line that starts with RW) nor an OpenPGP key")?;
        let key = PublicKey::from_base64(line).map_err(|_| "the stated key is not a complete minisign key")?;
        let text = std::str::from_utf8(signature).map_err(|_| "its file is not a minisign signature")?;
        let signature = Signature::decode(text).map_err(|_| "its file is not a minisign signature")?;
        Ok(Self { key, signature })
    }

    pub(super) fn can_stream(&self) -> Result<(), String> {
        self.key.verify_stream(&self.signature).map(drop).map_err(reason)
    }

    pub(super) fn check(&self, bytes: &[u8]) -> Result<(), String> {
        self.key.verify(bytes, &self.signature, true).map_err(reason)
    }

    pub(super) fn verifier(&self) -> Box<dyn SignatureVerifier + '_> {
        match self.key.verify_stream(&self.signature) {
            Ok(verifier) => Box::new(Passing(verifier)),
            Err(error) => Box::new(Refused(reason(error))),
        }
    }

    pub(super) fn description(&self) -> String {
        format!("minisign, {}", self.signature.trusted_comment())
    }
}

struct Passing<'a>(StreamVerifier<'a>);

impl SignatureVerifier for Passing<'_> {
    fn update(&mut self, stored: &[u8]) {
        self.0.update(stored);
    }
    fn finish(mut self: Box<Self>) -> Result<(), String> {
        self.0.finalize().map_err(reason)
    }
}

fn reason(error: Error) -> String {
    match error {
        Error::InvalidSignature => "the content is not what was signed".into(),
        Error::UnexpectedKeyId => "it was made with another key than the stated one".into(),
        Error::UnsupportedLegacyMode => {
            "it has minisign's legacy format, which needs the whole image in memory; sign with minisign -H".into()
        }
        other => other.to_string(),
    }
}
