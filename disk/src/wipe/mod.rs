//! Wipes a disk: checks everything that must be true first, then clears tables and signatures, and erases what the level asks
//! for.

mod abilities;
mod ata;
mod erase;
mod follow;
mod marks;
mod method;
mod nvme;
mod scsi;

use std::io;

use jiff::Timestamp;
use landfall_api::{ReceiptState, WipeLevel, WipeReport};
use uuid::Uuid;

use self::abilities::Chosen;
use self::method::Method;
use crate::authorise::{Decision, authorise};
use crate::forgiving::Forgiving;
use crate::pipeline::{clear_device, unreadable};
use crate::surface::{Surface, write_surface};
use crate::teardown::close_idle_on;
use crate::write::{known_here, mark_of, open, same_device, same_disk};
use crate::{
    BlockDevice, LogLevel, Observer, Order, RealDevice, WipeRequest, WriteError, blank, device_path, gpt, receipt,
};

/// Checks that a disk may be wiped and supports a level that will do, and changes nothing. Of several disks, all are checked
/// before the first is wiped. (A disk that an interrupted erasure left locked is unlocked.)
///
/// **Blocking**, as [`crate::write_image`]; a disk that still erases itself is not waited for.
///
/// # Errors
/// [`WriteError`], as of [`wipe_disk`]; [`WriteError::Erasing`].
pub fn may_wipe(request: &WipeRequest, observer: &dyn Observer) -> Result<(), WriteError> {
    run(request, observer, Until::Checked, &mut nothing).map(drop)
}

/// The same, and waits for a disk that still erases itself.
///
/// # Errors
/// [`WriteError`], as of [`wipe_disk`].
pub fn wait_to_wipe(request: &WipeRequest, observer: &dyn Observer) -> Result<(), WriteError> {
    run(request, observer, Until::Ready, &mut nothing).map(drop)
}

/// Clears what makes a disk bootable and known, in an order that leaves it old, unbootable or blank at every instant: a
/// receipt of this workflow, then LBA 0, tables and signatures; then erases what the level asks for, looks at samples, and
/// clears the receipt last. So an interrupted wipe is recognised and continued.
///
/// **Blocking**, as [`crate::write_image`]. A disk that erases itself cannot be stopped: [`crate::Authority::cancel`] then
/// takes effect at its end, and [`Observer::cannot_stop`] says so.
///
/// # Errors
/// [`WriteError`]: the disk is in use, is not the chosen one, supports no level that will do, carries an unexpected receipt, or
/// no person requested this; or it was not erased. [`WriteError::code`], [`WriteError::retryable`] and
/// [`WriteError::problem`] say what to do about it.
pub fn wipe_disk(request: &WipeRequest, observer: &dyn Observer) -> Result<WipeReport, WriteError> {
    let mut erase =
        |device: &RealDevice, method, order: &Order<'_>| erase::erase(device, device, method, order, observer);
    run(request, observer, Until::Wiped, &mut erase)
}

/// Wipes a disk as [`wipe_disk`] does, and in place of erasing it writes so many percent of it (1 to 100), reads that back,
/// compares it, and zeroes it. Bad places are no error: they are counted in `found`, also where the call fails later.
///
/// **Blocking**, as [`crate::write_image`].
///
/// # Errors
/// [`WriteError`], as of [`wipe_disk`].
pub fn test_disk(
    request: &WipeRequest, percent: u8, found: &mut Surface, observer: &dyn Observer,
) -> Result<WipeReport, WriteError> {
    let seed = Uuid::new_v4().as_u64_pair().0;
    let mut test = |device: &RealDevice, _, order: &Order<'_>| {
        *found = write_surface(device, percent, seed, order, observer)?;
        if percent == 100 && found.errors == 0 { erase::all_zero(device, order) } else { Ok(0) }
    };
    let report = run(request, observer, Until::Tested, &mut test)?;
    let mut report = WipeReport { method: "a test that wrote, read back and zeroed".to_owned(), ..report };
    if found.errors > 0 {
        report.level = WipeLevel::Signatures;
        report.limits.push("places failed the test: they may hold what it wrote, or what was there before".to_owned());
    }
    Ok(report)
}

/// What is done between the clearing of tables and that of the receipt; how many places were looked at afterwards.
type Erase<'a> = dyn FnMut(&RealDevice, Method, &Order<'_>) -> Result<u32, WriteError> + 'a;

/// For a call that ends before it changes anything.
const fn nothing(_: &RealDevice, _: Method, _: &Order<'_>) -> Result<u32, WriteError> {
    Ok(0)
}

/// How far a call goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    Checked,
    Ready,
    Wiped,
    /// Also a blank disk is written.
    Tested,
}

fn run(
    request: &WipeRequest, observer: &dyn Observer, until: Until, erase: &mut Erase<'_>,
) -> Result<WipeReport, WriteError> {
    let started_at = Timestamp::now();
    let path = device_path(&request.disk);
    let name = path.display().to_string();
    if request.disk.read_only {
        return Err(WriteError::ReadOnly { device: name });
    }
    let authority = &request.authority;
    let may_act = || authority.may_act(&name);
    may_act()?;
    close_idle_on(&request.disk, observer);
    same_disk(&request.disk, &path, &name)?;
    let device = open(&request.disk, &path, &name)?;
    let transport = request.disk.transport.as_str();
    if until != Until::Checked {
        erase::wait_for_running(&device, transport, &may_act, observer)?;
    } else if let Some(part) = erase::under_way(&device, transport) {
        return Err(WriteError::Erasing { device: name, percent: (part * 100) >> 16 });
    }
    if matches!(transport, "sata" | "scsi") {
        let locked = |refused: crate::commands::Refused| WriteError::Locked {
            device: name.clone(),
            reason: refused.to_string(),
        };
        if ata::unlock(&device).map_err(locked)? {
            observer
                .log(LogLevel::Warn, &format!("{name} was locked by an erasure that was interrupted; it is unlocked"));
        }
    }
    let Chosen { method, limits } = abilities::choose(&device, request, &name)?;
    let mut report = WipeReport {
        disk: request.disk.id.clone(),
        asked: request.level,
        level: method.level(),
        method: method.words().to_owned(),
        started_at,
        ended_at: started_at,
        samples: 0,
        limits,
        workflow: String::new(),
    };
    let looked = Forgiving::new(&device, authority.forced());
    let found = receipt::read_mark(&looked).map_err(unreadable(&name, "read the receipt of"))?;
    let marked = found.is_some();
    let content = blank::what_is_there(&looked).map_err(unreadable(&name, "look at the content of"))?;
    let content = content.or_else(|| (!looked.lost().is_empty()).then(|| "sectors that cannot be read".to_owned()));
    if !marked && content.is_none() && method.level() == WipeLevel::Signatures && until != Until::Tested {
        // The disk is blank, which is the goal, even if something else cleared it. Of the other levels that says nothing: what
        // no signature leads to may still be there.
        return Ok(WipeReport { ended_at: Timestamp::now(), ..report });
    }
    let found = found.filter(|mark| known_here(mark, &request.disk.id, authority, &name, observer));
    let content = content.unwrap_or_else(|| if marked { "a receipt" } else { "no signatures" }.to_owned());
    if !authority.person_authorised {
        return Err(WriteError::NotBlank { device: name, found: content });
    }
    // The receipt is cleared last, and a power cut tore it: this workflow clears the rest.
    let torn = !marked && began(request) && !boots(&looked).map_err(unreadable(&name, "read LBA 0 of"))?;
    if !torn {
        match authorise(&request.disk.id, authority, found.as_ref(), Some(&content), None)? {
            // This workflow did not clear a disk that still boots, even if the receipt says so.
            Decision::Write | Decision::AlreadyDone => {}
        }
    }
    if matches!(until, Until::Checked | Until::Ready) {
        return Ok(report);
    }
    if !report.limits.is_empty() {
        let (asked, why) = (report.asked, report.limits.join("; "));
        observer.log(LogLevel::Warn, &format!("{name} does not reach level {asked}: {why}"));
    }
    observer.log(LogLevel::Info, &format!("wiping {name} ({content}): {}", method.words()));
    let same_disk = || {
        same_disk(&request.disk, &path, &name)?;
        same_device(&device, &request.disk, &name)?;
        authority.selection.check(&name)
    };
    let mark = mark_of(&request.disk.id, &authority.receipt, None);
    let order = Order { forgive: authority.forced(), ..Order::new(&name, mark, &may_act, &same_disk) };
    report.samples = clear_device(&device, &order, observer, || erase(&device, method, &order))?;
    if let Err(error) = device.reread_table() {
        observer.log(LogLevel::Warn, &format!("the kernel did not read the table of {name} again: {error}"));
    }
    Ok(WipeReport { ended_at: Timestamp::now(), ..report })
}

/// Whether the receipts show that this workflow began to wipe the disk.
fn began(request: &WipeRequest) -> bool {
    let (disk, intent) = (&request.disk.id, &request.authority.receipt);
    request.authority.expected.iter().any(|mark| {
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
impl WipeRequest {
    /// A person's request about a disk without a name.
    fn of_tests() -> Self {
        Self {
            disk: landfall_api::DiskFacts::default(),
            level: WipeLevel::Signatures,
            fallback: Vec::new(),
            authority: crate::Authority::of_tests(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::{DiskId, ErrorCode};
    use uuid::Uuid;

    use super::*;
    use crate::receipt::tests::mark;

    #[test]
    fn only_the_same_workflow_continues_a_clearing() {
        let own = mark(ReceiptState::Intent, 0);
        let mut request = WipeRequest::of_tests();
        request.authority.expected = vec![own.clone()];
        request.disk.id = own.disk.clone();
        request.authority.receipt.workflow_uid = Uuid::from_u128(2);
        assert!(began(&request));
        request.disk.id = DiskId { serial: "other".into(), ..own.disk.clone() };
        assert!(!began(&request), "another disk");
        request.disk.id = own.disk;
        request.authority.receipt.workflow_uid = Uuid::from_u128(9);
        assert!(!began(&request), "another run");
        request.authority.receipt.workflow_uid = Uuid::from_u128(2);
        request.authority.expected = vec![mark(ReceiptState::Done, 0)];
        assert!(!began(&request), "an install that ended");
    }

    #[test]
    fn a_disk_that_has_gone_is_refused_even_with_force() {
        let mut request = WipeRequest::of_tests();
        request.authority.force = true;
        request.disk.id.name = "no-such-disk".into();
        let refused = wipe_disk(&request, &crate::Unobserved).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::DiskChanged);
    }
}
