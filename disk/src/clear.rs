//! Clears a disk: checks everything that must be true first, then clears.

use std::io;

use landfall_api::ReceiptState;

use crate::{
    BlockDevice, ClearRequest, Expectation, LogLevel, Observer, Order, WriteError,
    authorise::{Decision, authorise},
    blank, device_path,
    forgiving::Forgiving,
    gpt,
    pipeline::clear_device,
    receipt,
    write::{known_here, mark_of, open, same_device, same_disk},
};

/// Checks that a disk may be cleared, and changes nothing. Of several disks, all are checked before the first is
/// cleared.
///
/// **Blocking**, as [`crate::write_image`].
///
/// # Errors
/// [`WriteError`], as of [`clear_disk`].
pub fn may_clear(request: &ClearRequest, observer: &dyn Observer) -> Result<(), WriteError> {
    run(request, observer, false).map(drop)
}

/// Clears what makes a disk bootable and known, in an order that leaves it old, unbootable or blank at every instant: a
/// receipt of this workflow, then LBA 0, tables and signatures, and the receipt last. So an interrupted clearing is
/// recognised and continued. Data between signatures stays: this does not erase the disk. Returns whether there was
/// anything to clear.
///
/// **Blocking**, as [`crate::write_image`].
///
/// # Errors [`WriteError`]: the disk is in use, is not the chosen one, carries an unexpected receipt, or no person
/// requested this. [`WriteError::code`], [`WriteError::retryable`] and [`WriteError::problem`] say what to do about it.
pub fn clear_disk(request: &ClearRequest, observer: &dyn Observer) -> Result<bool, WriteError> {
    run(request, observer, true)
}

fn run(request: &ClearRequest, observer: &dyn Observer, act: bool) -> Result<bool, WriteError> {
    let path = device_path(&request.disk);
    let name = path.display().to_string();
    if request.disk.read_only {
        return Err(WriteError::ReadOnly { device: name });
    }
    let may_act = || {
        if request.cancel.is_cancelled() {
            return Err(WriteError::Cancelled { device: name.clone() });
        }
        if !request.lease.is_valid() {
            return Err(WriteError::LeaseExpired { device: name.clone() });
        }
        Ok(())
    };
    may_act()?;
    same_disk(&request.disk, &path, &name)?;
    let device = open(&request.disk, &path, &name)?;
    let unreadable = |action| {
        let device = name.clone();
        move |source| WriteError::Unreadable { device, action, source }
    };
    let forgive = request.force && request.person_authorised;
    let looked = Forgiving::new(&device, forgive);
    let found = receipt::read_mark(&looked).map_err(unreadable("read the receipt of"))?;
    let marked = found.is_some();
    let content = blank::what_is_there(&looked).map_err(unreadable("look at the content of"))?;
    let content = content.or_else(|| (!looked.lost().is_empty()).then(|| "sectors that cannot be read".to_owned()));
    if !marked && content.is_none() {
        // The disk is blank, which is the goal, even if something else cleared it.
        return Ok(false);
    }
    let found = found.filter(|mark| known_here(mark, request.claim(), &name, observer));
    let content = content.unwrap_or_else(|| "a receipt".to_owned());
    if !request.person_authorised {
        return Err(WriteError::NotBlank { device: name, found: content });
    }
    // The receipt is cleared last, and a power cut tore it: this workflow clears the rest.
    let torn = !marked && began(request) && !boots(&looked).map_err(unreadable("read LBA 0 of"))?;
    if !torn {
        match authorise(request.claim(), found.as_ref(), Some(&content), None)? {
            // This workflow did not clear a disk that still boots, even if the receipt says so.
            Decision::Write | Decision::AlreadyDone => {}
        }
    }
    if !act {
        return Ok(true);
    }
    observer.log(LogLevel::Info, &format!("clearing {name}: {content}"));
    let order = Order {
        no_table: false,
        device: &name,
        expectation: Expectation::Waived,
        format: None,
        mark: mark_of(&request.disk.id, &request.receipt, None),
        keep: &[],
        compare: false,
        read_back: false,
        forgive,
        memory: None,
        may_act: &may_act,
        same_disk: &|| {
            same_disk(&request.disk, &path, &name)?;
            same_device(&device, &request.disk, &name)?;
            request.selection.check(&name)
        },
    };
    clear_device(&device, &order, observer)?;
    if let Err(error) = device.reread_table() {
        observer.log(LogLevel::Warn, &format!("the kernel did not read the table of {name} again: {error}"));
    }
    Ok(true)
}

/// Whether the receipts show that this workflow began to clear the disk.
fn began(request: &ClearRequest) -> bool {
    let (disk, intent) = (&request.disk.id, &request.receipt);
    request.expected.iter().any(|mark| {
        let receipt = &mark.receipt;
        mark.disk.same_disk(disk)
            && receipt.state == ReceiptState::Intent
            && (receipt.machine_uid, receipt.workflow_uid, receipt.action_index)
                == (intent.machine_uid, intent.workflow_uid, intent.action_index)
    })
}

fn boots(device: &dyn BlockDevice) -> io::Result<bool> {
    let mut first = [0; 512];
    device.read_at(0, &mut first)?;
    Ok(gpt::has_signature(&first))
}

#[cfg(test)]
mod tests {
    use landfall_api::{DiskFacts, DiskId, ErrorCode};
    use uuid::Uuid;

    use super::*;
    use crate::{CancelFlag, LeaseGuard, ReceiptIntent, SelectionGuard, receipt::tests::mark};

    #[test]
    fn only_the_same_workflow_continues_a_clearing() {
        let own = mark(ReceiptState::Intent, 0);
        let mut request = ClearRequest {
            disk: DiskFacts { id: own.disk.clone(), ..DiskFacts::default() },
            receipt: ReceiptIntent {
                machine_uid: Uuid::from_u128(1),
                workflow_uid: Uuid::from_u128(2),
                workflow_name: "w".into(),
                generation: 3,
                action_index: 0,
            },
            expected: vec![own.clone()],
            person_authorised: true,
            force: false,
            selection: SelectionGuard::named(),
            lease: LeaseGuard::unlimited(),
            cancel: CancelFlag::new(),
        };
        assert!(began(&request));
        request.disk.id = DiskId { serial: "other".into(), ..own.disk.clone() };
        assert!(!began(&request), "another disk");
        request.disk.id = own.disk;
        request.receipt.workflow_uid = Uuid::from_u128(9);
        assert!(!began(&request), "another run");
        request.receipt.workflow_uid = Uuid::from_u128(2);
        request.expected = vec![mark(ReceiptState::Done, 0)];
        assert!(!began(&request), "an install that ended");
    }

    #[test]
    fn a_disk_that_has_gone_is_refused_even_with_force() {
        let request = ClearRequest {
            disk: DiskFacts { id: DiskId { name: "no-such-disk".into(), ..DiskId::default() }, ..DiskFacts::default() },
            receipt: ReceiptIntent {
                machine_uid: Uuid::nil(),
                workflow_uid: Uuid::nil(),
                workflow_name: String::new(),
                generation: 1,
                action_index: 0,
            },
            expected: vec![],
            person_authorised: true,
            force: true,
            selection: SelectionGuard::named(),
            lease: LeaseGuard::unlimited(),
            cancel: CancelFlag::new(),
        };
        let refused = clear_disk(&request, &crate::Unobserved).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::DiskChanged);
    }
}
