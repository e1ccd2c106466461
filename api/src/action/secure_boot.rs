//! `secureBoot`: its fields, and what comes of it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use super::kind::{ActionInfo, Declaration};
use super::rules::{Rules, plain_text};
use crate::{DurationSpec, issue::join};

/// Enrols keys of your own for Secure Boot, on a machine whose firmware is in Setup Mode: it has no platform key. Where it has these keys
/// already, nothing is written; where it has others, the action fails. A person must start the workflow. Each field is a signed variable (`.auth`, as `sbvarsign` and `sign-efi-sig-list` write it) in base64.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecureBootSpec {
    /// The platform key: who owns the firmware's keys. Signed by itself.
    pub pk: String,
    /// The key exchange keys: who may change `db` and `dbx`.
    pub kek: String,
    /// The certificates and digests of the programs that the firmware starts.
    pub db: String,
    /// Those of the programs that it refuses. Default: what is there stays.
    pub dbx: Option<String>,
}

impl SecureBootSpec {
    /// The variables, by the firmware's own names, in the order in which they are to be written: the platform key ends Setup Mode.
    pub fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let dbx = self.dbx.as_deref().map(|dbx| ("dbx", dbx));
        dbx.into_iter().chain([("db", self.db.as_str()), ("KEK", &self.kek), ("PK", &self.pk)])
    }
}

/// What came of a `secureBoot`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecureBootResult {
    /// Whether anything was written; if not, the firmware had these keys.
    pub enrolled: bool,
}

/// A variable's new value and the signature over it: `EFI_VARIABLE_AUTHENTICATION_2`, then the value (UEFI 2.10, 8.2.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedVariable {
    bytes: Vec<u8>,
    value_at: usize,
}

/// A text is no signed variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignedVariableError {
    /// Not base64.
    #[error("it is not base64")]
    Encoding,
    /// Longer than firmware takes.
    #[error("it has more than {} bytes", SignedVariable::MAX_BYTES)]
    TooLong,
    /// No `EFI_VARIABLE_AUTHENTICATION_2` at its beginning.
    #[error("it does not begin with a time and a PKCS #7 signature, as a signed variable does")]
    Unsigned,
    /// The value is no list of signatures.
    #[error("what is signed is not a list of certificates or digests (EFI_SIGNATURE_LIST)")]
    Value,
}

impl SignedVariable {
    /// The longest, bytes: with it OVMF's memory for variables is full.
    pub const MAX_BYTES: usize = 64 << 10;
    /// Bytes of the time, `EFI_TIME`.
    const TIME: usize = 16;
    /// Bytes of `WIN_CERTIFICATE_UEFI_GUID` before the signature.
    const HEADER: usize = 24;
    /// Its revision, its type (`WIN_CERT_TYPE_EFI_GUID`), and `EFI_CERT_TYPE_PKCS7_GUID`.
    const PKCS7: [u8; 20] = [
        0, 2, 0xf1, 0x0e, 0x9d, 0xd2, 0xaf, 0x4a, 0xdf, 0x68, 0xee, 0x49, 0x8a, 0xa9, 0x34, 0x7d, 0x37, 0x56, 0x65,
        0xa7,
    ];

    /// Reads one from base64; line ends in it do not count.
    ///
    /// # Errors
    /// [`SignedVariableError`] with what is wrong. Whether the signature holds is the firmware's to say.
    pub fn parse(text: &str) -> Result<Self, SignedVariableError> {
        let text: String = text.split_ascii_whitespace().collect();
        if text.len() / 4 * 3 > Self::MAX_BYTES {
            return Err(SignedVariableError::TooLong);
        }
        let bytes = BASE64_STANDARD.decode(text).map_err(|_| SignedVariableError::Encoding)?;
        let value_at = Self::value_of(&bytes).ok_or(SignedVariableError::Unsigned)?;
        let one = Self { bytes, value_at };
        if one.is_list() { Ok(one) } else { Err(SignedVariableError::Value) }
    }

    fn value_of(bytes: &[u8]) -> Option<usize> {
        let header = bytes.get(Self::TIME..Self::TIME + Self::HEADER)?;
        let (length, kind) = header.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length) as usize;
        let at = Self::TIME.checked_add(length)?;
        (kind == Self::PKCS7 && length >= Self::HEADER && at <= bytes.len()).then_some(at)
    }

    /// Type of 16 bytes, sizes of the list, of a header and of each signature; then all of them (UEFI 2.10, 32.4.1).
    fn is_list(&self) -> bool {
        let mut rest = self.value();
        while let Some((head, _)) = rest.split_first_chunk::<28>() {
            let size = u32::from_le_bytes([head[16], head[17], head[18], head[19]]) as usize;
            match rest.get(size.max(28)..) {
                Some(next) if size > 28 => rest = next,
                _ => return false,
            }
        }
        rest.is_empty() && !self.value().is_empty()
    }

    /// All of it, as the firmware takes it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What the variable holds afterwards.
    pub fn value(&self) -> &[u8] {
        &self.bytes[self.value_at..]
    }
}

impl Declaration for SecureBootSpec {
    const INFO: ActionInfo = ActionInfo {
        no_branch: Some("remove its branch: the firmware has one set of keys, and branches run at the same time"),
        ..ActionInfo::new(
            "Enrols keys of your own for Secure Boot in a firmware that has none (Setup Mode).",
            DurationSpec::from_secs(5 * 60),
            12,
        )
    };

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        for (field, name) in [("pk", "PK"), ("kek", "KEK"), ("db", "db"), ("dbx", "dbx")] {
            let Some(Err(error)) = plain_text(spec, field).map(SignedVariable::parse) else { continue };
            let hint = format!("make {name}.auth with sbvarsign, and write here what base64 -w0 {name}.auth prints");
            rules.say(join(path, field), error.to_string(), hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time, a signature of these bytes, and this value.
    fn signed(signature: &[u8], value: &[u8]) -> Vec<u8> {
        let length = (SignedVariable::HEADER + signature.len()) as u32;
        [&[7; 16][..], &length.to_le_bytes(), &SignedVariable::PKCS7, signature, value].concat()
    }

    fn list(signatures: usize) -> Vec<u8> {
        let size = (28 + signatures * 48) as u32;
        [&[9; 16][..], &size.to_le_bytes(), &[0; 4], &48_u32.to_le_bytes(), &vec![5; signatures * 48]].concat()
    }

    #[test]
    fn a_signed_variable_is_read_and_others_are_refused() {
        let parse = |bytes: &[u8]| SignedVariable::parse(&BASE64_STANDARD.encode(bytes));
        let two = [list(1), list(3)].concat();
        let whole = signed(&[1; 300], &two);
        let one = parse(&whole).unwrap();
        assert_eq!((one.bytes(), one.value()), (whole.as_slice(), two.as_slice()));
        let wrapped = BASE64_STANDARD
            .encode(&whole)
            .as_bytes()
            .chunks(76)
            .fold(String::new(), |text, line| text + std::str::from_utf8(line).unwrap() + "\n");
        assert_eq!(SignedVariable::parse(&wrapped), Ok(one));
        assert_eq!(SignedVariable::parse("no base64!"), Err(SignedVariableError::Encoding));
        let mut other_kind = whole.clone();
        other_kind[24] ^= 1;
        let mut too_far = whole.clone();
        too_far[19] = 0xff;
        for bytes in [&[][..], &two, &other_kind, &too_far, &whole[..39]] {
            assert_eq!(parse(bytes), Err(SignedVariableError::Unsigned));
        }
        for value in [&[][..], &[0; 27], &list(0), &two[..two.len() - 1], &[two.as_slice(), &[0]].concat()] {
            assert_eq!(parse(&signed(&[1; 300], value)), Err(SignedVariableError::Value), "{} bytes", value.len());
        }
        assert_eq!(parse(&vec![0; SignedVariable::MAX_BYTES + 3]), Err(SignedVariableError::TooLong));
    }
}
