//! Detached OpenPGP signatures, version 4 (RFC 4880 and RFC 9580): RSA, Ed25519, and P-256 for small files, over SHA-256
//! or SHA-512.
//!
//! Written here rather than taken from the `pgp` crate, which is larger than all the room the agent has left. Strict:
//! what is not understood is refused, and whatever the key itself says against its use counts.

mod armour;
mod certificate;
mod key;
mod packet;
mod rsa;
mod statement;

use std::time::{SystemTime, UNIX_EPOCH};

use super::{Refused, SignatureVerifier};
use certificate::Certificate;
use key::{Key, Material};
use packet::Tag;
use statement::{Checker, Statement};

/// The largest key, bytes: some are signed by many.
const KEY_MAX: usize = 1 << 20;
/// How many signatures of one file are looked at.
const SIGNATURES: usize = 16;

/// A signature, and the one of the keys given that it must be of.
#[derive(Debug, Clone)]
pub(super) struct Detached {
    statement: Statement,
    key: Key,
}

impl Detached {
    pub(super) fn read(keys: &str, signature: &[u8]) -> Result<Self, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        Self::read_at(keys, signature, now)
    }

    /// `now`: seconds since 1970. A machine's clock may never have been set, so it counts as no earlier than the
    /// signature.
    fn read_at(keys: &str, signature: &[u8], now: u64) -> Result<Self, String> {
        if keys.len() > KEY_MAX {
            return Err(format!("the key given is larger than {KEY_MAX} bytes"));
        }
        let keys =
            armour::strip(keys.as_bytes(), "PGP PUBLIC KEY BLOCK").map_err(|why| format!("the key given {why}"))?;
        let certificates = Certificate::read_all(&keys).map_err(|why| format!("the key given {why}"))?;
        let signature = armour::strip(signature, "PGP SIGNATURE").map_err(|why| format!("its file {why}"))?;
        let packets = packet::split(&signature).map_err(|why| format!("its file {why}"))?;
        let mut reasons = Vec::new();
        for packet in packets.iter().take(SIGNATURES) {
            if packet.tag != Tag::Signature {
                return Err("its file holds more than detached signatures".into());
            }
            match Statement::read(packet.body).and_then(|statement| Self::of(statement, &certificates, now)) {
                Ok(found) => return Ok(found),
                Err(reason) => reasons.push(reason),
            }
        }
        Err(if reasons.is_empty() { "its file holds no signature".into() } else { reasons.join("; ") })
    }

    fn of(statement: Statement, certificates: &[Certificate], now: u64) -> Result<Self, String> {
        if statement.kind != statement::BINARY {
            return Err(format!(
                "it is of type {:#04x}, and only those of binary documents are supported",
                statement.kind
            ));
        }
        let now = now.max(u64::from(statement.created));
        if statement.expires().is_some_and(|end| end <= now) {
            return Err("the signature has expired".into());
        }
        let maker = statement.issuer.ok_or("it does not say which key made it")?;
        // A file may hold several states of one key: what any of them says against its use counts.
        let mut known = None;
        for certificate in certificates {
            let Some(key) = certificate.find(maker) else { continue };
            certificate.may_sign(key, &statement, now)?;
            known = Some(key);
        }
        let key =
            known.ok_or_else(|| format!("it was made with key {maker:016X}, with another key than the stated one"))?;
        Ok(Self { key: key.clone(), statement })
    }

    pub(super) fn can_stream(&self) -> Result<(), String> {
        match self.key.material {
            Material::P256(_) => Err("signatures with P-256 keys are supported for small files only; sign a file of \
                                      checksums, or use RSA or Ed25519"
                .into()),
            Material::Rsa { .. } | Material::Ed25519(_) => Ok(()),
        }
    }

    pub(super) fn check(&self, bytes: &[u8]) -> Result<(), String> {
        self.statement.check(&self.key, &[bytes])
    }

    pub(super) fn verifier(&self) -> Box<dyn SignatureVerifier + '_> {
        match self.can_stream() {
            Ok(()) => Box::new(Passing { checker: Checker::new(&self.statement), of: self }),
            Err(why) => Box::new(Refused(why)),
        }
    }

    pub(super) fn description(&self) -> String {
        let day =
            jiff::Timestamp::from_second(i64::from(self.statement.created)).map_or(String::new(), |t| t.to_string());
        format!("OpenPGP, key {}, made {day}", hex::encode_upper(self.key.fingerprint))
    }
}

struct Passing<'a> {
    checker: Checker,
    of: &'a Detached,
}

impl SignatureVerifier for Passing<'_> {
    fn update(&mut self, stored: &[u8]) {
        self.checker.update(stored);
    }
    fn finish(self: Box<Self>) -> Result<(), String> {
        self.checker.finish(&self.of.statement, &self.of.key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            // Only a panic would fail this test.
            let _ = (
                Certificate::read_all(&bytes),
                packet::split(&bytes),
                Statement::read(&bytes),
                Key::read(&bytes),
                armour::strip(&bytes, "PGP SIGNATURE"),
            );
        }
        #[test]
        fn no_packets_make_it_panic(bodies in prop::collection::vec((prop::sample::select(vec![2_u8, 6, 13, 14]), prop::collection::vec(any::<u8>(), 0..80)), 0..6)) {
            let mut bytes = Vec::new();
            for (tag, body) in bodies {
                bytes.extend_from_slice(&[0xc0 | tag, u8::try_from(body.len()).unwrap()]);
                // Version 4, so that what follows is looked at.
                bytes.extend(std::iter::once(4).chain(body.into_iter().skip(1)).take(usize::from(bytes[bytes.len() - 1])));
            }
            // Any answer will do: the test is that it does not panic.
            let _ = Certificate::read_all(&bytes);
        }
    }
}
