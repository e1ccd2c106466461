//! Signs EFI programs for Secure Boot: Authenticode (Windows Authenticode Portable Executable Signature Format, Microsoft; UEFI 2.10,
//! section 32.2). A PKCS #7 message over the program's digest stands behind the program. It has no time in it: same input, same
//! bytes.

use std::ops::Range;

use ring::rand::SystemRandom;
use ring::rsa::KeyPair;
use ring::signature::{KeyPair as _, RSA_PKCS1_SHA256};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use yasna::models::{ObjectIdentifier, TaggedDerValue};
use yasna::tags::TAG_INTEGER;
use yasna::{DERWriter, Tag, construct_der};

use crate::pe::{CERTIFICATES, CHECKSUM, DIRECTORIES, Headers, SIZE_OF_HEADERS, word};

/// The program and each of its signatures begin at a multiple of this.
const ALIGNMENT: usize = 8;
/// `WIN_CERTIFICATE`: its own length, revision 2.0, and `WIN_CERT_TYPE_PKCS_SIGNED_DATA`.
const CERTIFICATE_HEADER: usize = 8;
const REVISION: u16 = 0x200;
const PKCS_SIGNED_DATA: u16 = 2;

const SIGNED_DATA: &[u64] = &[1, 2, 840, 113_549, 1, 7, 2];
const CONTENT_TYPE: &[u64] = &[1, 2, 840, 113_549, 1, 9, 3];
const MESSAGE_DIGEST: &[u64] = &[1, 2, 840, 113_549, 1, 9, 4];
const RSA_ENCRYPTION: &[u64] = &[1, 2, 840, 113_549, 1, 1, 1];
const SHA_256: &[u64] = &[2, 16, 840, 1, 101, 3, 4, 2, 1];
/// `SPC_INDIRECT_DATA_OBJID` and `SPC_PE_IMAGE_DATAOBJ`.
const INDIRECT_DATA: &[u64] = &[1, 3, 6, 1, 4, 1, 311, 2, 1, 4];
const PE_IMAGE_DATA: &[u64] = &[1, 3, 6, 1, 4, 1, 311, 2, 1, 15];

/// Why a program is not signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The file.
    #[error("it is no EFI program that can be signed: {0}")]
    Program(&'static str),
    /// The private key.
    #[error(
        "the key is not valid: {0}; it is an RSA key of 2048 to 4096 bits as PEM, without a passphrase (openssl pkey -in KEY)"
    )]
    Key(String),
    /// The certificate.
    #[error("the certificate is not valid: {0}; it is an X.509 certificate as PEM or DER")]
    Certificate(String),
    /// Key and certificate do not belong together.
    #[error("the certificate is another key's")]
    Mismatch,
}

/// A key with its certificate.
pub struct SigningKey {
    key: KeyPair,
    certificate: Vec<u8>,
    /// As in the certificate, DER.
    issuer: Vec<u8>,
    serial: Vec<u8>,
}

impl SigningKey {
    /// Reads both files.
    ///
    /// # Errors
    /// [`SignError`]: one cannot be used, or they do not belong together.
    pub fn new(key: &[u8], certificate: &[u8]) -> Result<Self, SignError> {
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| SignError::Key(e.to_string()))?;
        let key = match &key {
            PrivateKeyDer::Pkcs8(key) => KeyPair::from_pkcs8(key.secret_pkcs8_der()),
            PrivateKeyDer::Pkcs1(key) => KeyPair::from_der(key.secret_pkcs1_der()),
            _ => return Err(SignError::Key("firmware knows RSA alone".to_owned())),
        };
        let key = key.map_err(|e| SignError::Key(e.to_string()))?;
        let certificate = match CertificateDer::from_pem_slice(certificate) {
            Ok(read) => read.to_vec(),
            Err(_) => certificate.to_vec(),
        };
        let (rest, parsed) =
            X509Certificate::from_der(&certificate).map_err(|e| SignError::Certificate(e.to_string()))?;
        if !rest.is_empty() {
            return Err(SignError::Certificate("something stands behind it".to_owned()));
        }
        if *parsed.public_key().subject_public_key.data != *key.public_key().as_ref() {
            return Err(SignError::Mismatch);
        }
        let (issuer, serial) = (parsed.issuer().as_raw().to_vec(), parsed.raw_serial().to_vec());
        Ok(Self { key, issuer, serial, certificate })
    }
}

/// The program with one signature more.
///
/// # Errors
/// [`SignError`].
pub fn sign(program: &[u8], signer: &SigningKey) -> Result<Vec<u8>, SignError> {
    let mut out = program.to_vec();
    let place = Place::of(program)?;
    if place.certificates.is_empty() {
        out.resize(program.len().next_multiple_of(ALIGNMENT), 0);
    }
    let message = message(&digest(&out)?, signer)?;
    let length = CERTIFICATE_HEADER + message.len();
    let begin = if place.certificates.is_empty() { out.len() } else { place.certificates.start };
    let large = |_| SignError::Program("it has more than 4 GiB");
    out.extend_from_slice(&u32::try_from(length).map_err(large)?.to_le_bytes());
    out.extend_from_slice(&REVISION.to_le_bytes());
    out.extend_from_slice(&PKCS_SIGNED_DATA.to_le_bytes());
    out.extend_from_slice(&message);
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
    let size = u32::try_from(out.len() - begin).map_err(large)?;
    out[place.directory..place.directory + 4].copy_from_slice(&u32::try_from(begin).map_err(large)?.to_le_bytes());
    out[place.directory + 4..place.directory + 8].copy_from_slice(&size.to_le_bytes());
    let sum = checksum(&out, place.checksum);
    out[place.checksum..place.checksum + 4].copy_from_slice(&sum.to_le_bytes());
    Ok(out)
}

/// The SHA-256 of a program as firmware computes it: without its checksum and its signatures. `dbx` may forbid a program by it.
///
/// # Errors
/// [`SignError::Program`].
pub fn digest(program: &[u8]) -> Result<[u8; 32], SignError> {
    let Place { checksum, directory, certificates } = Place::of(program)?;
    let end = if certificates.is_empty() { program.len() } else { certificates.start };
    let mut hash = Sha256::new();
    for part in [0..checksum, checksum + 4..directory, directory + 8..end] {
        hash.update(&program[part]);
    }
    // What is not signed yet is filled up before it is.
    hash.update(vec![0; end.next_multiple_of(ALIGNMENT) - end]);
    Ok(hash.finalize().into())
}

/// What of a program is not signed, as offsets in the file.
struct Place {
    checksum: usize,
    /// The entry of the certificates in the headers.
    directory: usize,
    /// The certificates there are, to the end of the file.
    certificates: Range<usize>,
}

impl Place {
    /// Firmware hashes headers and sections in the order of the file: one that has gaps between them would have another digest
    /// there than here.
    fn of(program: &[u8]) -> Result<Self, SignError> {
        let wrong = SignError::Program;
        let headers = Headers::read(program).ok_or(wrong("its headers are missing"))?;
        let field = |at: usize| word(program, headers.at + at).ok_or(wrong("its headers are cut off"));
        if field(DIRECTORIES)? < 5 {
            return Err(wrong("its headers have no room for a signature"));
        }
        let (begin, size) = (field(CERTIFICATES)? as usize, field(CERTIFICATES + 4)? as usize);
        let mut parts = vec![(0, field(SIZE_OF_HEADERS)? as usize)];
        for section in headers.each(program) {
            let (_, place, size, _) = section.ok_or(wrong("its section table is cut off"))?;
            parts.push((place as usize, size as usize));
        }
        parts.retain(|(_, size)| *size > 0);
        parts.sort_unstable();
        let mut end = 0;
        for (place, size) in parts {
            if place != end {
                return Err(wrong("its sections have gaps between them, or overlap"));
            }
            end = place + size;
        }
        let limit = if size == 0 { program.len() } else { begin };
        if end > limit
            || size > 0 && begin.checked_add(size) != Some(program.len())
            || begin % ALIGNMENT != 0
            || size % ALIGNMENT != 0
        {
            return Err(wrong("it is cut off, or something stands behind its signatures"));
        }
        let certificates = if size == 0 { 0..0 } else { begin..program.len() };
        let directory = headers.at + CERTIFICATES;
        if directory + 8 > end {
            return Err(wrong("its headers are cut off"));
        }
        Ok(Self { checksum: headers.at + CHECKSUM, directory, certificates })
    }
}

/// The sum of the file's 16-bit words with the carries, and its length (`ImageHlp`'s `CheckSumMappedFile`).
fn checksum(file: &[u8], field: usize) -> u32 {
    let mut sum: u64 = 0;
    for (at, pair) in file.chunks(2).enumerate().map(|(n, pair)| (2 * n, pair)) {
        if !(field..field + 4).contains(&at) {
            sum += u64::from(pair[0]) | u64::from(pair.get(1).copied().unwrap_or(0)) << 8;
        }
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (sum as u32).wrapping_add(file.len() as u32)
}

fn oid(number: &[u64]) -> ObjectIdentifier {
    ObjectIdentifier::from_slice(number)
}

/// An algorithm without parameters.
fn algorithm(writer: DERWriter<'_>, number: &[u64]) {
    writer.write_sequence(|writer| {
        writer.next().write_oid(&oid(number));
        writer.next().write_null();
    });
}

/// What is signed: that the program has this digest (`SpcIndirectDataContent`, without tag and length).
fn content(digest: &[u8; 32]) -> Vec<u8> {
    let image_data = construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_oid(&oid(PE_IMAGE_DATA));
            writer.next().write_sequence(|writer| {
                writer.next().write_bitvec_bytes(&[], 0);
                // A link to a file with an empty name, as every signer writes it.
                writer.next().write_tagged(Tag::context(0), |writer| {
                    writer.write_tagged(Tag::context(2), |writer| {
                        writer.write_tagged_implicit(Tag::context(0), |writer| writer.write_bmp_string(""));
                    });
                });
            });
        });
    });
    let digest = construct_der(|writer| {
        writer.write_sequence(|writer| {
            algorithm(writer.next(), SHA_256);
            writer.next().write_bytes(digest);
        });
    });
    [image_data, digest].concat()
}

/// The PKCS #7 message (RFC 2315, 9.1).
fn message(digest: &[u8; 32], signer: &SigningKey) -> Result<Vec<u8>, SignError> {
    let content = content(digest);
    let attribute = |writer: DERWriter<'_>, number: &[u64], value: &dyn Fn(DERWriter<'_>)| {
        writer.write_sequence(|writer| {
            writer.next().write_oid(&oid(number));
            writer.next().write_set(|writer| value(writer.next()));
        });
    };
    let attributes = construct_der(|writer| {
        writer.write_set_of(|writer| {
            attribute(writer.next(), CONTENT_TYPE, &|writer| writer.write_oid(&oid(INDIRECT_DATA)));
            attribute(writer.next(), MESSAGE_DIGEST, &|writer| writer.write_bytes(&Sha256::digest(&content)));
        });
    });
    let mut signature = vec![0; signer.key.public().modulus_len()];
    signer
        .key
        .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), &attributes, &mut signature)
        .map_err(|_| SignError::Key("signing failed".to_owned()))?;
    // Signed as a set, written with the tag of its place (RFC 2315, 9.3).
    let mut tagged = attributes;
    tagged[0] = 0xa0;
    Ok(construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_oid(&oid(SIGNED_DATA));
            writer.next().write_tagged(Tag::context(0), |writer| {
                writer.write_sequence(|writer| {
                    writer.next().write_u8(1);
                    writer.next().write_set(|writer| algorithm(writer.next(), SHA_256));
                    writer.next().write_sequence(|writer| {
                        writer.next().write_oid(&oid(INDIRECT_DATA));
                        writer.next().write_tagged(Tag::context(0), |writer| {
                            writer.write_sequence(|writer| writer.next().write_der(&content));
                        });
                    });
                    writer.next().write_tagged_implicit(Tag::context(0), |writer| {
                        writer.write_set(|writer| writer.next().write_der(&signer.certificate));
                    });
                    writer.next().write_set(|writer| {
                        writer.next().write_sequence(|writer| {
                            writer.next().write_u8(1);
                            writer.next().write_sequence(|writer| {
                                writer.next().write_der(&signer.issuer);
                                let serial = TaggedDerValue::from_tag_and_bytes(TAG_INTEGER, signer.serial.clone());
                                writer.next().write_tagged_der(&serial);
                            });
                            algorithm(writer.next(), SHA_256);
                            writer.next().write_der(&tagged);
                            algorithm(writer.next(), RSA_ENCRYPTION);
                            writer.next().write_bytes(&signature);
                        });
                    });
                });
            });
        });
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uki::tests::stub;

    fn program() -> Vec<u8> {
        stub(&[".text", ".sbat"])
    }

    #[test]
    fn a_digest_leaves_out_checksum_and_signatures_alone() {
        let program = program();
        let place = Place::of(&program).unwrap();
        let expected = digest(&program).unwrap();
        for at in 0..program.len() {
            let mut changed = program.clone();
            changed[at] ^= 0x40;
            // One that names other sections or signatures is refused.
            let Ok(found) = digest(&changed) else { continue };
            // A place of no signatures means nothing.
            let left_out = [place.checksum, place.directory].iter().any(|field| (*field..field + 4).contains(&at));
            assert_eq!(found == expected, left_out, "byte {at}");
        }
        let mut signed = program.clone();
        signed.resize(program.len().next_multiple_of(8), 0);
        let begin = u32::try_from(signed.len()).unwrap();
        signed[place.directory..place.directory + 4].copy_from_slice(&begin.to_le_bytes());
        signed[place.directory + 4] = 16;
        signed.extend_from_slice(&[7; 16]);
        assert_eq!(digest(&signed).unwrap(), expected);
    }

    #[test]
    fn a_program_that_firmware_hashes_otherwise_is_refused() {
        let good = program();
        let table = Headers::read(&good).unwrap().table;
        let gap = |at: usize, value: u8| {
            let mut program = good.clone();
            program[at] = value;
            digest(&program).unwrap_err().to_string()
        };
        assert!(gap(table + 21, 5).contains("gaps"), "the first section begins later");
        assert!(gap(table + 40 + 21, 4).contains("gaps"), "both begin at one place");
        assert!(gap(table + 40 + 18, 1).contains("cut off"), "the second ends beyond the file");
        for at in 0..good.len() {
            assert!(at >= 0x800 || digest(&good[..at]).is_err(), "{at} bytes");
            for value in [0, 0x7f, 0xff] {
                let mut wrong = good.clone();
                wrong[at] = value;
                drop(digest(&wrong));
            }
        }
    }

    #[test]
    fn what_is_no_key_or_certificate_is_named() {
        let fails = |key: &[u8], certificate: &[u8]| SigningKey::new(key, certificate).err().unwrap().to_string();
        assert!(fails(b"", b"").starts_with("the key is not valid"));
        let sealed = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        assert!(fails(sealed, b"").contains("without a passphrase"));
    }
}
