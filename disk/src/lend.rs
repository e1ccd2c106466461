//! Whether a disk may be handed to a program that writes what it likes and keeps no receipt.
//!
//! Two kinds of disk may: one that this workflow has installed, whose receipt then must outlive the program; and one without a
//! receipt, under the rule of every write: blank, or a person requested it. A receipt of another install would become untrue, so
//! that disk is wiped first.

use std::{fs::File, os::unix::fs::MetadataExt as _};

use landfall_api::{DiskFacts, DiskReceipt, Receipt, ReceiptState};
use uuid::Uuid;

use crate::authorise::{authorise, same_mark, words};
use crate::device::lock;
use crate::forgiving::Forgiving;
use crate::write::{in_use, known_here, opened, same_disk};
use crate::{
    Authority, BlockDevice as _, LogLevel, Observer, ReadAt, RealDevice, WriteError, blank, device_path, receipt,
};

/// One disk for a program.
#[derive(Debug, Clone)]
pub struct LendRequest {
    /// The disk, as [`crate::Disk::select`] gave it. Its identity is checked again.
    pub disk: DiskFacts,
    /// On whose authority.
    pub authority: Authority,
    /// Workflows whose installs this one continues.
    pub earlier_runs: Vec<Uuid>,
}

/// A disk that a program may write.
#[derive(Debug)]
pub struct Lent {
    /// The disk.
    pub disk: DiskFacts,
    /// Its device number, as the kernel encodes it.
    pub number: u64,
    /// The receipt of this workflow that it carries.
    pub mark: Option<DiskReceipt>,
    /// While this is open, nothing else of Landfall on this machine opens the disk to write it.
    pub held: Option<File>,
}

/// Checks that a program may write the disk, and holds it for that program; nothing is changed.
///
/// **Blocking**, as [`crate::write_image`].
///
/// # Errors
/// [`WriteError`]: the disk is in use, read-only or not the chosen one; it carries a receipt of another install, or an unexpected one;
/// or it is not blank and no person requested this.
pub fn lend(request: &LendRequest, observer: &dyn Observer) -> Result<Lent, WriteError> {
    let path = device_path(&request.disk);
    let name = path.display().to_string();
    if request.disk.read_only {
        return Err(WriteError::ReadOnly { device: name });
    }
    request.authority.may_act(&name)?;
    same_disk(&request.disk, &path, &name)?;
    // The kernel refuses this for a disk with anything on it that is mounted or held.
    let held = File::open(&path).and_then(|file| lock(&file).map(|()| file)).map_err(|source| in_use(source, &name))?;
    let device = opened(RealDevice::open_held(&path), &request.disk, &name)?;
    let mark = judge(request, &device, &name, observer)?;
    let stated = std::fs::metadata(&path);
    let stated =
        stated.map_err(|source| WriteError::DeviceIo { device: name.clone(), action: "look at".into(), source })?;
    drop(device);
    same_disk(&request.disk, &path, &name)?;
    request.authority.selection.check(&name)?;
    Ok(Lent { disk: request.disk.clone(), number: stated.rdev(), mark, held: Some(held) })
}

/// Takes a disk back once the program has ended, however it ended: what it wrote is brought to the disk, and the kernel reads its
/// table again. The receipt must still be there, and the disk still start, where it had the receipt `mark`.
///
/// **Blocking**, as [`crate::write_image`].
///
/// # Errors
/// [`WriteError::MarkLost`]; the disk is still in use, or fails.
pub fn take_back(disk: &DiskFacts, mark: Option<&DiskReceipt>, observer: &dyn Observer) -> Result<(), WriteError> {
    let path = device_path(disk);
    let name = path.display().to_string();
    let device = opened(RealDevice::open_held(&path), disk, &name)?;
    let failed = |source| WriteError::DeviceIo { device: name.clone(), action: "flush".into(), source };
    device.flush().map_err(failed)?;
    if let Err(error) = device.reread_table() {
        observer.log(LogLevel::Warn, &format!("the kernel did not read the table of {name} again: {error}"));
    }
    let Some(mark) = mark else { return Ok(()) };
    let unreadable = |source| WriteError::Unreadable { device: name.clone(), action: "read the receipt of", source };
    let now = receipt::read_mark(&device).map_err(unreadable)?;
    let stands = now.is_some_and(|now| same_mark(&now.receipt, &mark.receipt));
    if stands { Ok(()) } else { Err(WriteError::MarkLost { device: name }) }
}

/// The receipt of this workflow on the disk; `None`: it has none, and may be written.
fn judge(
    request: &LendRequest, device: &RealDevice, name: &str, observer: &dyn Observer,
) -> Result<Option<DiskReceipt>, WriteError> {
    let LendRequest { disk, authority, .. } = request;
    let unreadable = |action| {
        let device = name.to_owned();
        move |source| WriteError::Unreadable { device, action, source }
    };
    let looked = Forgiving::new(device, authority.forced());
    let found = receipt::read_mark(&looked).map_err(unreadable("read the receipt of"))?;
    let marked = found.is_some();
    let found = found.filter(|mark| known_here(mark, &disk.id, authority, name, observer));
    let content = content(&looked, marked && found.is_none()).map_err(unreadable("look at the content of"))?;
    let content = content.or_else(|| (!looked.lost().is_empty()).then(|| "sectors that cannot be read".to_owned()));
    decide(request, found, content.as_deref(), name)
}

fn content(disk: &(impl ReadAt + ?Sized), foreign: bool) -> std::io::Result<Option<String>> {
    Ok(blank::what_is_there(disk)?.or_else(|| foreign.then(|| "a receipt of another disk".to_owned())))
}

fn decide(
    request: &LendRequest, found: Option<DiskReceipt>, content: Option<&str>, name: &str,
) -> Result<Option<DiskReceipt>, WriteError> {
    let authority = &request.authority;
    let run = &authority.receipt;
    let own = |receipt: &Receipt| {
        receipt.state == ReceiptState::Done
            && receipt.machine_uid == run.machine_uid
            && (receipt.workflow_uid == run.workflow_uid || request.earlier_runs.contains(&receipt.workflow_uid))
    };
    match found {
        Some(mark) if own(&mark.receipt) => Ok(Some(mark)),
        Some(mark) => Err(WriteError::Marked { device: name.into(), found: words(Some(&mark.receipt)) }),
        None => authorise(&request.disk.id, authority, None, content, None).map(|_| None),
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::ErrorCode;

    use super::*;
    use crate::receipt::tests::mark;

    /// Of the workflow of [`mark`], with no receipt expected.
    fn request(person: bool) -> LendRequest {
        let mut authority = Authority::of_tests(person);
        let own = mark(ReceiptState::Done, 0);
        authority.receipt.machine_uid = own.receipt.machine_uid;
        authority.receipt.workflow_uid = own.receipt.workflow_uid;
        authority.expected = Vec::new();
        LendRequest { disk: DiskFacts { id: own.disk, ..DiskFacts::default() }, authority, earlier_runs: Vec::new() }
    }

    fn code(request: &LendRequest, found: Option<DiskReceipt>, content: Option<&str>) -> Result<bool, ErrorCode> {
        decide(request, found, content, "/dev/vda").map(|mark| mark.is_some()).map_err(|e| e.code())
    }

    #[test]
    fn a_disk_of_this_workflow_is_lent_once_done() {
        let rule = request(false);
        let done = mark(ReceiptState::Done, 0);
        assert_eq!(code(&rule, Some(done.clone()), Some("a GPT")), Ok(true));
        let begun = mark(ReceiptState::Intent, 0);
        assert_eq!(code(&rule, Some(begun), Some("a GPT")), Err(ErrorCode::ReceiptMismatch));
        let mut later = rule;
        later.authority.receipt.workflow_uid = Uuid::from_u128(77);
        assert_eq!(code(&later, Some(done.clone()), Some("a GPT")), Err(ErrorCode::ReceiptMismatch));
        later.earlier_runs = vec![done.receipt.workflow_uid];
        assert_eq!(code(&later, Some(done.clone()), Some("a GPT")), Ok(true));
        later.authority.receipt.machine_uid = Uuid::from_u128(78);
        assert_eq!(code(&later, Some(done), Some("a GPT")), Err(ErrorCode::ReceiptMismatch));
    }

    #[test]
    fn a_persons_force_does_not_lend_another_installs_disk() {
        let mut person = request(true);
        person.authority.force = true;
        person.authority.receipt.workflow_uid = Uuid::from_u128(77);
        let other = mark(ReceiptState::Done, 0);
        person.authority.expected = vec![other.clone()];
        assert_eq!(code(&person, Some(other), Some("a GPT")), Err(ErrorCode::ReceiptMismatch));
    }

    #[test]
    fn a_disk_without_receipt_follows_the_rule_of_writes() {
        let (rule, mut person) = (request(false), request(true));
        assert_eq!(code(&rule, None, None), Ok(false));
        assert_eq!(code(&rule, None, Some("a GPT")), Err(ErrorCode::DiskNotBlank));
        assert_eq!(code(&person, None, Some("a GPT")), Ok(false));
        person.authority.expected = vec![mark(ReceiptState::Done, 0)];
        assert_eq!(code(&person, None, None), Err(ErrorCode::ReceiptMismatch), "a receipt that has vanished");
    }
}
