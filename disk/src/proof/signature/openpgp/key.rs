//! Public keys, version 4: RFC 9580 section 5.5.

use ring::digest;

use super::packet::Reader;

/// OIDs of curves, RFC 9580 section 9.2.
const ED25519_LEGACY: [u8; 9] = [0x2b, 0x06, 0x01, 0x04, 0x01, 0xda, 0x47, 0x0f, 0x01];
const P256: [u8; 8] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];

/// A key that can verify.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    /// Seconds since 1970.
    pub(super) created: u32,
    pub(super) material: Material,
    /// SHA-1 of the key, by which version 4 names keys; nothing is believed because of it.
    pub(super) fingerprint: [u8; 20],
    /// The packet's body: what its signatures are about.
    pub(super) body: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Material {
    /// Big-endian, without leading zeroes.
    Rsa {
        modulus: Vec<u8>,
        exponent: u64,
    },
    Ed25519([u8; 32]),
    /// 0x04, x, y.
    P256([u8; 65]),
}

impl Key {
    /// # Errors
    /// A clause after "the key given …".
    pub(super) fn read(body: &[u8]) -> Result<Self, String> {
        let mut reader = Reader(body);
        match reader.u8() {
            Some(4) => {}
            Some(other) => return Err(format!("has a key of version {other}; only 4 is supported")),
            None => return Err("has an empty key packet".into()),
        }
        let (created, algorithm) = reader.u32().zip(reader.u8()).ok_or("is cut")?;
        let material = material(algorithm, &mut reader)?;
        let length = u16::try_from(body.len()).map_err(|_| "has a key that is too long")?;
        let named = [&[0x99], &length.to_be_bytes()[..], body].concat();
        let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &named);
        let fingerprint = hash.as_ref().try_into().map_err(|_| "cannot be named")?;
        Ok(Self { created, material, fingerprint, body: body.to_vec() })
    }

    /// The last 8 octets of the fingerprint.
    pub(super) fn id(&self) -> u64 {
        self.fingerprint.last_chunk().map_or(0, |last| u64::from_be_bytes(*last))
    }

    /// What a signature over this key hashes of it.
    pub(super) fn prefix(&self) -> [u8; 3] {
        let [high, low] = u16::try_from(self.body.len()).unwrap_or(u16::MAX).to_be_bytes();
        [0x99, high, low]
    }
}

fn material(algorithm: u8, reader: &mut Reader<'_>) -> Result<Material, String> {
    let cut = "has a key that is cut or malformed";
    match algorithm {
        1 | 3 => {
            let (modulus, exponent) = reader.number().zip(reader.number()).ok_or(cut)?;
            let exponent = exponent.iter().try_fold(0_u64, |sum, byte| Some(sum.checked_mul(256)? | u64::from(*byte)));
            let exponent =
                exponent.filter(|e| *e >= 3 && e % 2 == 1).ok_or("has an RSA key with a strange exponent")?;
            if modulus.len() < 256 {
                return Err("has an RSA key of less than 2048 bits".into());
            }
            if modulus.last().is_none_or(|last| last % 2 == 0) {
                return Err(cut.into());
            }
            Ok(Material::Rsa { modulus: modulus.to_vec(), exponent })
        }
        19 | 22 => {
            let length = usize::from(reader.u8().ok_or(cut)?);
            let (curve, point) = reader.take(length).zip(reader.number()).ok_or(cut)?;
            match (algorithm, point) {
                (22, [0x40, point @ ..]) if curve == ED25519_LEGACY => {
                    Ok(Material::Ed25519(point.try_into().map_err(|_| cut)?))
                }
                (19, [0x04, ..]) if curve == P256 => Ok(Material::P256(point.try_into().map_err(|_| cut)?)),
                _ => Err("has a key on a curve other than Ed25519 and P-256".into()),
            }
        }
        27 => Ok(Material::Ed25519(reader.take(32).and_then(|key| key.try_into().ok()).ok_or(cut)?)),
        other => Err(format!("has a key of algorithm {other}; RSA, Ed25519 and P-256 are supported")),
    }
}
