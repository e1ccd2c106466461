//! What vendors and persons do to the keys of Secure Boot, in the file of OVMF's variables while the machine is off: an update
//! forbids a program in `dbx`, whose one digest is replaced in place; a person at shim's MokManager enrols a certificate.

use std::path::Path;

use crate::LabError;
use crate::efi_store::{append, variables};

/// Bytes in front of what a list holds (UEFI 2.10, `EFI_SIGNATURE_LIST`): its head of 28, the owner's GUID.
const HEAD: usize = 28 + 16;
const DIGEST: usize = 32;
/// `EFI_CERT_X509_GUID`.
const X509: [u8; 16] = [0xa1, 0x59, 0xc0, 0xa5, 0xe4, 0x94, 0xa7, 0x4a, 0x87, 0xb5, 0xab, 0x15, 0x5c, 0x2b, 0xf0, 0x72];
/// Shim's variables: 605dab50-e046-4300-abb6-3dd810dd8b23.
const SHIM: [u8; 16] = [0x50, 0xab, 0x5d, 0x60, 0x46, 0xe0, 0x00, 0x43, 0xab, 0xb6, 0x3d, 0xd8, 0x10, 0xdd, 0x8b, 0x23];
/// Kept, and seen by no system (`EFI_VARIABLE_NON_VOLATILE | EFI_VARIABLE_BOOTSERVICE_ACCESS`): shim trusts no other list.
const BEFORE_SYSTEMS: u32 = 3;

/// Has the firmware refuse the program with this digest (Authenticode), signed or not.
///
/// # Errors
/// [`LabError`] if the file cannot be changed, or if its `dbx` is not a list with one digest, as that of Debian's OVMF is.
pub fn forbid(path: &Path, digest: &[u8; DIGEST]) -> Result<(), LabError> {
    change(path, "there is no variable dbx with one digest", |store| {
        let mut found = variables(store).into_iter();
        let (_, data) = found.find(|(name, data)| name == "dbx" && data.len() == HEAD + DIGEST)?;
        store[data.end - DIGEST..data.end].copy_from_slice(digest);
        Some(())
    })
}

/// Has shim trust programs that this certificate (DER) signed: it is the first machine owner's key.
///
/// # Errors
/// [`LabError`] if the file cannot be changed, or has no room.
pub fn enrol_in_shim(path: &Path, certificate: &[u8]) -> Result<(), LabError> {
    let bytes = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    let owner = [0; 16];
    let one = bytes(owner.len() + certificate.len());
    let list = [&X509[..], &bytes(HEAD + certificate.len()), &bytes(0), &one, &owner, certificate].concat();
    change(path, "there is no room for MokList", |store| append(store, "MokList", &SHIM, BEFORE_SYSTEMS, &list))
}

fn change(path: &Path, missing: &str, how: impl FnOnce(&mut [u8]) -> Option<()>) -> Result<(), LabError> {
    let mut store = std::fs::read(path).map_err(LabError::file("cannot read", path))?;
    how(&mut store).ok_or_else(|| LabError::Format { path: path.to_owned(), message: missing.to_owned() })?;
    std::fs::write(path, store).map_err(LabError::file("cannot write", path))
}
