//! What a vendor's update does to the programs that firmware refuses: their digests stand in the variable `dbx`, which OVMF has in the
//! file of its variables. While the machine is off, the one digest in it can be replaced in place.

use std::path::Path;

use crate::LabError;
use crate::efi_order::variables;

/// Bytes of a list with one SHA-256 digest (UEFI 2.10, `EFI_SIGNATURE_LIST`): its head of 28, the owner's GUID, the digest.
const LIST: usize = 28 + 16 + DIGEST;
const DIGEST: usize = 32;

/// Has the firmware refuse the program with this digest (Authenticode), signed or not.
///
/// # Errors
/// [`LabError`] if the file cannot be changed, or if its `dbx` is not a list with one digest, as that of Debian's OVMF is.
pub fn forbid(path: &Path, digest: &[u8; DIGEST]) -> Result<(), LabError> {
    let mut store = std::fs::read(path).map_err(LabError::file("cannot read", path))?;
    let found = variables(&store).into_iter().find(|(name, data)| name == "dbx" && data.len() == LIST);
    let (_, data) = found.ok_or_else(|| LabError::Format {
        path: path.to_owned(),
        message: "there is no variable dbx with one digest".to_owned(),
    })?;
    store[data.end - DIGEST..data.end].copy_from_slice(digest);
    std::fs::write(path, store).map_err(LabError::file("cannot write", path))
}
