//! Signature packets, version 4: RFC 9580 section 5.2. What is unsupported or unsafe is refused when read.

use landfall_api::Digest;
use ring::signature::{ECDSA_P256_SHA256_FIXED, ED25519, UnparsedPublicKey};

use super::key::{Key, Material};
use super::packet::Reader;
use super::rsa;
use crate::pipeline::Hasher;

/// Types of signatures, RFC 9580 section 5.2.1.
pub(super) const BINARY: u8 = 0x00;
pub(super) const CERTIFICATIONS: std::ops::RangeInclusive<u8> = 0x10..=0x13;
pub(super) const SUBKEY_BINDING: u8 = 0x18;
pub(super) const PRIMARY_BINDING: u8 = 0x19;
pub(super) const DIRECT: u8 = 0x1f;
pub(super) const KEY_REVOCATION: u8 = 0x20;
pub(super) const SUBKEY_REVOCATION: u8 = 0x28;

/// May sign data: RFC 9580 section 5.2.3.29.
pub(super) const MAY_SIGN: u8 = 0x02;

/// Subpackets that say nothing against what we take a signature for: preferences, features, reasons, URLs, recipients.
const HARMLESS: [u8; 12] = [4, 7, 11, 21, 22, 23, 24, 25, 26, 28, 30, 35];

/// A signature: what was signed, and how.
#[derive(Debug, Clone)]
pub(super) struct Statement {
    pub(super) kind: u8,
    /// Seconds since 1970.
    pub(super) created: u32,
    /// Seconds after that; 0 or none: never.
    lifetime: Option<u32>,
    /// Of the key it is about, after that key's creation; as above.
    pub(super) key_lifetime: Option<u32>,
    /// What the key it is about may do, if said.
    pub(super) key_flags: Option<u8>,
    /// The maker's key id, by its own words.
    pub(super) issuer: Option<u64>,
    /// The subkey's consent, in a binding.
    pub(super) embedded: Option<Vec<u8>>,
    algorithm: u8,
    sha512: bool,
    /// The first two octets of the digest.
    left: [u8; 2],
    /// What is hashed after the document.
    hashed: Vec<u8>,
    /// The signature's own numbers.
    numbers: Vec<u8>,
}

impl Statement {
    /// # Errors
    /// A clause after "the signature of … does not hold: ".
    pub(super) fn read(body: &[u8]) -> Result<Self, String> {
        let cut = "it is cut or malformed";
        let mut reader = Reader(body);
        match reader.u8() {
            Some(4) => {}
            Some(other) => return Err(format!("it is of version {other}; only 4 is supported")),
            None => return Err(cut.into()),
        }
        let head = reader.take(3).ok_or(cut)?;
        let &[kind, algorithm, hash] = head else { return Err(cut.into()) };
        let sha512 = match hash {
            8 => false,
            10 => true,
            1 => return Err("it uses MD5, which proves nothing".into()),
            2 => return Err("it uses SHA-1, which proves nothing".into()),
            other => return Err(format!("it uses hash function {other}; SHA-256 and SHA-512 are supported")),
        };
        let length = usize::from(reader.u16().ok_or(cut)?);
        let hashed_subpackets = reader.take(length).ok_or(cut)?;
        let hashed = body.get(..6 + length).ok_or(cut)?;
        let length = usize::from(reader.u16().ok_or(cut)?);
        let unhashed = reader.take(length).ok_or(cut)?;
        let left = reader.take(2).and_then(|left| left.try_into().ok()).ok_or(cut)?;
        let mut statement = Self {
            kind,
            created: 0,
            lifetime: None,
            key_lifetime: None,
            key_flags: None,
            issuer: None,
            embedded: None,
            algorithm,
            sha512,
            left,
            hashed: hashed.to_vec(),
            numbers: reader.0.to_vec(),
        };
        let mut dated = false;
        for subpacket in subpackets(hashed_subpackets)? {
            statement.note(subpacket, &mut dated)?;
        }
        // Unhashed parts are not protected by the signature. Only two are used: which key to try, and the subkey's
        // consent, which has its own signature.
        for (kind, data) in subpackets(unhashed)? {
            match kind & 0x7f {
                16 if statement.issuer.is_none() => statement.issuer = Reader(data).take(8).and_then(key_id),
                33 if statement.issuer.is_none() => statement.issuer = Reader(data).take(21).and_then(key_id),
                32 if statement.embedded.is_none() => statement.embedded = Some(data.to_vec()),
                _ => {}
            }
        }
        if dated { Ok(statement) } else { Err("it does not say when it was made".into()) }
    }

    fn note(&mut self, (kind, data): (u8, &[u8]), dated: &mut bool) -> Result<(), String> {
        let mut reader = Reader(data);
        let cut = "it is cut or malformed";
        match kind & 0x7f {
            2 => (self.created, *dated) = (reader.u32().ok_or(cut)?, true),
            3 => self.lifetime = Some(reader.u32().ok_or(cut)?),
            9 => self.key_lifetime = Some(reader.u32().ok_or(cut)?),
            16 => self.issuer = key_id(reader.take(8).ok_or(cut)?),
            27 => self.key_flags = Some(reader.u8().unwrap_or(0)),
            32 => self.embedded = Some(data.to_vec()),
            33 => {
                let fingerprint = reader.take(21).ok_or(cut)?;
                self.issuer = key_id(fingerprint);
            }
            // A program that does not understand a critical notation must refuse the signature, and we understand none.
            other if kind & 0x80 != 0 && !HARMLESS.contains(&other) => {
                return Err(format!("it holds a critical part of type {other}, which is not understood"));
            }
            _ => {}
        }
        Ok(())
    }

    /// When it ends, seconds since 1970.
    pub(super) fn expires(&self) -> Option<u64> {
        self.lifetime.filter(|lifetime| *lifetime > 0).map(|lifetime| u64::from(self.created) + u64::from(lifetime))
    }

    /// Checks it against a complete document, given in parts.
    ///
    /// # Errors
    /// A clause.
    pub(super) fn check(&self, key: &Key, document: &[&[u8]]) -> Result<(), String> {
        let mut checker = Checker::new(self);
        document.iter().for_each(|part| checker.update(part));
        let Material::P256(point) = &key.material else { return checker.finish(self, key) };
        // ring hashes by itself, and for this curve with SHA-256.
        let mut numbers = Reader(&self.numbers);
        let (r, s) = numbers.number().zip(numbers.number()).ok_or("it is cut or malformed")?;
        let signature = [padded::<32>(r).ok_or(WRONG)?, padded::<32>(s).ok_or(WRONG)?].concat();
        if self.algorithm != 19 || self.sha512 {
            return Err("a signature with a P-256 key must be ECDSA with SHA-256".into());
        }
        checker.digest(self)?;
        let message = [&document.concat(), &self.hashed[..], &trailer(self.hashed.len())].concat();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(&message, &signature).map_err(|_| WRONG.into())
    }
}

const WRONG: &str = "the content is not what was signed";

/// Hashes a document as it passes.
pub(super) struct Checker(Hasher);

impl Checker {
    pub(super) fn new(statement: &Statement) -> Self {
        let like = if statement.sha512 { Digest::from_sha512([0; 64]) } else { Digest::from_sha256([0; 32]) };
        Self(Hasher::like(&like))
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// What was signed, if it looks like it.
    fn digest(mut self, statement: &Statement) -> Result<Digest, String> {
        self.0.update(&statement.hashed);
        self.0.update(&trailer(statement.hashed.len()));
        let digest = self.0.finish();
        if digest.as_bytes().starts_with(&statement.left) { Ok(digest) } else { Err(WRONG.into()) }
    }

    /// For keys that sign a digest: all but P-256's.
    pub(super) fn finish(self, statement: &Statement, key: &Key) -> Result<(), String> {
        let digest = self.digest(statement)?;
        let mut numbers = Reader(&statement.numbers);
        let holds = match (&key.material, statement.algorithm) {
            (Material::Rsa { modulus, exponent }, 1 | 3) => {
                let signature = numbers.number().ok_or("it is cut or malformed")?;
                rsa::verify(modulus, *exponent, digest.as_bytes(), signature)
            }
            (Material::Ed25519(point), 22) => {
                let (r, s) = numbers.number().zip(numbers.number()).ok_or("it is cut or malformed")?;
                let signature = [padded::<32>(r).ok_or(WRONG)?, padded::<32>(s).ok_or(WRONG)?].concat();
                UnparsedPublicKey::new(&ED25519, point).verify(digest.as_bytes(), &signature).is_ok()
            }
            (Material::Ed25519(point), 27) => {
                let signature = numbers.take(64).ok_or("it is cut or malformed")?;
                UnparsedPublicKey::new(&ED25519, point).verify(digest.as_bytes(), signature).is_ok()
            }
            _ => return Err("it was not made with the kind of key that is given".into()),
        };
        if holds { Ok(()) } else { Err(WRONG.into()) }
    }
}

/// RFC 9580 section 5.2.4.
fn trailer(hashed: usize) -> [u8; 6] {
    let [a, b, c, d] = u32::try_from(hashed).unwrap_or(u32::MAX).to_be_bytes();
    [4, 0xff, a, b, c, d]
}

/// The id at the end of an id or of a version octet and fingerprint.
fn key_id(bytes: &[u8]) -> Option<u64> {
    bytes.last_chunk().map(|id| u64::from_be_bytes(*id))
}

/// With leading zeroes; `None` if it is longer.
fn padded<const N: usize>(number: &[u8]) -> Option<[u8; N]> {
    let mut out = [0; N];
    out.get_mut(N.checked_sub(number.len())?..)?.copy_from_slice(number);
    Some(out)
}

/// Type, with its critical bit, and content.
fn subpackets(bytes: &[u8]) -> Result<Vec<(u8, &[u8])>, String> {
    let mut reader = Reader(bytes);
    let mut out = Vec::new();
    while !reader.0.is_empty() {
        let one = subpacket_length(&mut reader).and_then(|length| reader.take(length)).and_then(<[u8]>::split_first);
        let (kind, data) = one.ok_or("it is cut or malformed")?;
        out.push((*kind, data));
    }
    Ok(out)
}

/// As a packet's, but every first octet from 192 to 254 means two octets.
fn subpacket_length(reader: &mut Reader<'_>) -> Option<usize> {
    match reader.0.first()? {
        high @ 224..=254 => {
            reader.take(1)?;
            Some(((usize::from(*high) - 192) << 8) + usize::from(reader.u8()?) + 192)
        }
        _ => reader.length(),
    }
}
