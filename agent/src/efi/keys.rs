//! The firmware's keys for Secure Boot, written while it has none.

use std::path::{Path, PathBuf};
use std::{fs, io};

use landfall_api::SignedVariable;
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use super::{EfiError, VARIABLES, Writable, data, file};

/// The namespace of `db` and `dbx`: `EFI_IMAGE_SECURITY_DATABASE_GUID` (UEFI 2.10, 32.6.1).
const DATABASES: &str = "d719b2cb-3d3a-4596-a3bc-dad00e67656f";
/// Kept without power, there before and after the system takes over, written with a time and a signature.
const ATTRIBUTES: [u8; 4] = [0x27, 0, 0, 0];

/// Why the keys are not the firmware's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    /// They cannot be made writable.
    #[error("the firmware's variables cannot be made writable")]
    ReadOnly(#[source] EfiError),
    /// One cannot be read.
    #[error("the firmware's variable {name} cannot be read")]
    Unreadable { name: &'static str, source: io::Error },
    /// It does not say whether it takes keys.
    #[error(
        "the firmware has no variable SetupMode: it knows no Secure Boot, or the kernel cannot reach its variables"
    )]
    Unknown,
    /// It has keys, and not these.
    #[error("the firmware is not in Setup Mode: it has a platform key, and {0} is not the one of this action")]
    OtherKeys(&'static str),
    /// It refuses one.
    #[error("the firmware refuses {name}")]
    Refused { name: &'static str, source: io::Error },
    /// It has no room for one.
    #[error("the firmware has no room for {name}")]
    NoRoom { name: &'static str, source: io::Error },
    /// It took one and holds something else.
    #[error("the firmware does not hold {0} as it was written")]
    NotHeld(&'static str),
    /// It is still in Setup Mode.
    #[error("the firmware took the platform key and is still in Setup Mode")]
    StillOpen,
}

/// Whether the firmware has these, or would take them. Nothing is written.
///
/// # Errors
/// [`KeyError::OtherKeys`], [`KeyError::Unknown`], [`KeyError::Unreadable`].
pub(crate) fn check(variables: &[(&'static str, SignedVariable)]) -> Result<(), KeyError> {
    missing_in(Path::new(VARIABLES), variables).map(drop)
}

/// Enrols these, in their order; the last one is the platform key. False: the firmware had them all. Blocking.
///
/// # Errors
/// [`KeyError`]. Until the platform key is in, the firmware starts everything as before.
pub(crate) fn enrol(variables: &[(&'static str, SignedVariable)]) -> Result<bool, KeyError> {
    enrol_in(Path::new(VARIABLES), variables, Writable::new)
}

fn enrol_in<W>(
    directory: &Path, variables: &[(&'static str, SignedVariable)], writable: impl FnOnce() -> Result<W, EfiError>,
) -> Result<bool, KeyError> {
    let missing = missing_in(directory, variables)?;
    if missing.is_empty() {
        return if is_open(directory)? { Err(KeyError::StillOpen) } else { Ok(false) };
    }
    let _writable = writable().map_err(KeyError::ReadOnly)?;
    for (name, wanted) in missing {
        let path = place(directory, name);
        let refused = |source: io::Error| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::FileTooLarge => KeyError::NoRoom { name, source },
            _ => KeyError::Refused { name, source },
        };
        make_mutable(&path).map_err(refused)?;
        fs::write(&path, [&ATTRIBUTES, wanted.bytes()].concat()).map_err(refused)?;
        if held(directory, name)?.as_deref() != Some(wanted.value()) {
            return Err(KeyError::NotHeld(name));
        }
    }
    if is_open(directory)? { Err(KeyError::StillOpen) } else { Ok(true) }
}

/// Those that the firmware does not have, and can be given.
fn missing_in<'v>(
    directory: &Path, variables: &'v [(&'static str, SignedVariable)],
) -> Result<Vec<(&'static str, &'v SignedVariable)>, KeyError> {
    let mut missing = Vec::new();
    for (name, wanted) in variables {
        if held(directory, name)?.as_deref() != Some(wanted.value()) {
            missing.push((*name, wanted));
        }
    }
    match missing.first() {
        Some((first, _)) if !is_open(directory)? => Err(KeyError::OtherKeys(first)),
        _ => Ok(missing),
    }
}

fn place(directory: &Path, name: &str) -> PathBuf {
    match name {
        "db" | "dbx" => directory.join(format!("{name}-{DATABASES}")),
        _ => file(directory, name),
    }
}

/// What a variable holds; `None`: there is none.
fn held(directory: &Path, name: &'static str) -> Result<Option<Vec<u8>>, KeyError> {
    match data(&place(directory, name)) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(KeyError::Unreadable { name, source }),
    }
}

/// Whether the firmware is in Setup Mode (UEFI 2.10, 3.3).
fn is_open(directory: &Path) -> Result<bool, KeyError> {
    Ok(held(directory, "SetupMode")?.ok_or(KeyError::Unknown)?.first() == Some(&1))
}

/// The kernel keeps most variables from being written by mistake.
fn make_mutable(path: &Path) -> io::Result<()> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let flags = ioctl_getflags(&file)?;
    if flags.contains(IFlags::IMMUTABLE) {
        ioctl_setflags(&file, flags.difference(IFlags::IMMUTABLE))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    const HEAD: [u8; 4] = ATTRIBUTES;

    /// A time, no signature, and a list of one digest of these bytes.
    fn variable(of: u8) -> SignedVariable {
        let kind = [
            0, 2, 0xf1, 0x0e, 0x9d, 0xd2, 0xaf, 0x4a, 0xdf, 0x68, 0xee, 0x49, 0x8a, 0xa9, 0x34, 0x7d, 0x37, 0x56, 0x65,
            0xa7,
        ];
        let list = [&[9; 16][..], &76_u32.to_le_bytes(), &[0; 4], &48_u32.to_le_bytes(), &[of; 48]].concat();
        let bytes = [&[0; 16][..], &24_u32.to_le_bytes(), &kind, &list].concat();
        SignedVariable::parse(&BASE64_STANDARD.encode(bytes)).unwrap()
    }

    #[test]
    fn keys_that_are_there_are_enough_and_others_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, value: &[u8]| fs::write(place(dir.path(), name), [&HEAD[..], value].concat()).unwrap();
        let wanted = [("db", variable(1)), ("KEK", variable(2)), ("PK", variable(3))];
        let enrol = || enrol_in(dir.path(), &wanted, || -> Result<(), EfiError> { panic!("nothing may be written") });
        assert!(matches!(enrol(), Err(KeyError::Unknown)), "no Secure Boot");
        put("SetupMode", &[0]);
        assert!(matches!(enrol(), Err(KeyError::OtherKeys("db"))), "none is there");
        for (name, variable) in &wanted {
            put(name, variable.value());
        }
        assert!(!enrol().unwrap());
        put("SetupMode", &[1]);
        assert!(matches!(enrol(), Err(KeyError::StillOpen)), "a second try finds the keys, and the firmware as open");
        put("SetupMode", &[0]);
        put("PK", &[9; 76]);
        let error = enrol().unwrap_err();
        assert_eq!(
            error.to_string(),
            "the firmware is not in Setup Mode: it has a platform key, and PK is not the one of this action"
        );
    }

    #[test]
    fn what_the_firmware_does_not_hold_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(place(dir.path(), "SetupMode"), [&HEAD[..], &[1]].concat()).unwrap();
        let wanted = [("db", variable(1)), ("PK", variable(3))];
        // A plain directory keeps the signature, which a firmware takes off.
        let error = enrol_in(dir.path(), &wanted, || Ok(())).unwrap_err();
        assert!(matches!(error, KeyError::NotHeld("db")), "{error}");
        assert!(!place(dir.path(), "PK").exists(), "the platform key comes last");
    }
}
