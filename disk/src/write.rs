//! Writes an image to a disk: checks everything that must be true first, then runs the pipeline.

use std::{cell::Cell, io, path::Path, time::Instant};

use landfall_api::{Digest, DiskFacts, DiskId, DiskReceipt, IndexSpec, Receipt, ReceiptState};

use crate::authorise::{Decision, authorise, same_mark};
use crate::forgiving::Forgiving;
use crate::pipeline::{Expectation, Order, device_io, install, unreadable};
use crate::proof::Resolved;
use crate::teardown::close_idle_on;
use crate::{
    Authority, BlockDevice, Image, Index, Installed, LogLevel, Observer, Proof, ReadAt, RealDevice, ReceiptIntent,
    WriteError, WriteOutcome, WriteRequest, blank, device_path, disk_at, holders_of, memory, proof, receipt, source,
};

/// Writes an image to a disk, in the order that keeps it old, unbootable or verified-new at every instant.
///
/// **Blocking**: call it from a thread of its own, which a disk that hangs blocks for ever, never from inside an async task. It
/// starts the threads and the runtime it needs and ends them before it returns. Set [`Authority::cancel`] to end it
/// early.
///
/// # Errors
/// [`WriteError`]; nothing is committed then. [`WriteError::code`], [`WriteError::retryable`] and
/// [`WriteError::problem`] say what to do about it.
pub fn write_image(request: &WriteRequest, observer: &dyn Observer) -> Result<WriteOutcome, WriteError> {
    write(request, observer, &|| Ok(()))
}

/// Whether [`write_image`] would begin to write: it does all that comes before the first write (chooses and compares, fetches
/// what proves the image and the image's start, lays it out on this disk), and ends there. The disk is unchanged.
///
/// **Blocking**, like [`write_image`].
///
/// # Errors
/// [`WriteError`], the one that [`write_image`] would end with.
pub fn may_write(request: &WriteRequest, observer: &dyn Observer) -> Result<(), WriteError> {
    let reached = Cell::new(false);
    let before_the_first_write = || {
        reached.set(true);
        Err(WriteError::Cancelled { device: device_path(&request.disk).display().to_string() })
    };
    match write(request, observer, &before_the_first_write) {
        Err(_) if reached.get() => Ok(()),
        ended => ended.map(drop),
    }
}

/// `first` is asked just before the first write; an error ends the write there.
fn write(
    request: &WriteRequest, observer: &dyn Observer, first: &dyn Fn() -> Result<(), WriteError>,
) -> Result<WriteOutcome, WriteError> {
    let begun = Instant::now();
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
    // With a person's word, what cannot be read does not stop what would write over it.
    let looked = Forgiving::new(&device, authority.forced());
    let found = receipt::read_mark(&looked).map_err(unreadable(&name, "read the receipt of"))?;
    let marked = found.is_some();
    let found = found.filter(|mark| known_here(mark, &request.disk.id, authority, &name, observer));
    let foreign = (marked && found.is_none()).then(|| "a receipt of another disk".to_owned());
    let content = blank::what_is_there(&looked).map_err(unreadable(&name, "look at the content of"))?.or(foreign);
    let content = content.or_else(|| (!looked.lost().is_empty()).then(|| "sectors that cannot be read".to_owned()));
    // A cancel causes various errors; the caller gets the cancel as the reason.
    let explain = |error| may_act().err().unwrap_or(error);
    let proof = proof::resolve(&request.image, observer, authority.cancel.flag()).map_err(explain)?;
    let image_digest = request.image.proof.digest().or_else(|| proof.digest());
    match authorise(&request.disk.id, authority, found.as_ref(), content.as_deref(), image_digest)? {
        Decision::Write => {}
        Decision::AlreadyDone => {
            // The process that wrote it may have been killed, or may have failed, before its last flush.
            device.flush().map_err(device_io(&name, "flush the finished install on"))?;
            if let Err(error) = device.reread_table() {
                observer.log(LogLevel::Warn, &format!("the kernel did not read the table of {name} again: {error}"));
            }
            observer.log(LogLevel::Info, &format!("{name} already carries this install; nothing is written"));
            let installed = Installed { receipt: found, ..Installed::default() };
            return Ok(WriteOutcome { written: false, installed, elapsed: begun.elapsed() });
        }
    }
    let direct = if device.is_direct() { "past" } else { "through" };
    let shown = source::shown_name(&request.image);
    observer.log(LogLevel::Info, &format!("writing {shown} to {name}, {direct} the page cache"));
    let index = match &proof {
        Resolved::Index { bytes, .. } => Some(parse_index(&request.image, bytes)?),
        _ => None,
    };
    let expectation = match (&proof, &index) {
        (Resolved::Stored(digest), _) => Expectation::Stored(*digest),
        (Resolved::Raw(digest), _) => Expectation::Raw(*digest),
        (Resolved::Signed(signature), _) => Expectation::Signed(signature),
        (Resolved::Index { .. }, Some(index)) => Expectation::Index(index),
        (Resolved::Index { .. }, None) => return Err(WriteError::Internal("the index was lost".into())),
        (Resolved::Waived, _) => Expectation::Waived,
    };
    let guarded = !matches!(expectation, Expectation::Waived);
    let mut source = source::open(&request.image, guarded, observer)?;
    // An interrupted install of this image left parts of it; and after an install of another version many blocks are
    // equal.
    let compare = found.is_some();
    let order = Order {
        device: &name,
        expectation,
        format: request.image.format,
        no_table: request.image.no_table,
        mark: mark_of(&request.disk.id, &authority.receipt, image_digest),
        keep: &request.keep,
        compare,
        read_back: request.read_back,
        forgive: authority.forced(),
        memory: memory::available(),
        may_act: &may_act,
        same_disk: &|| {
            same_disk(&request.disk, &path, &name)?;
            same_device(&device, &request.disk, &name)?;
            authority.selection.check(&name)?;
            first()
        },
    };
    let installed = install(&device, &mut *source, &order, observer)?;
    Ok(WriteOutcome { written: true, installed, elapsed: begun.elapsed() })
}

fn parse_index(image: &Image, bytes: &[u8]) -> Result<Index, WriteError> {
    let Proof::Index(IndexSpec { url, .. }) = &image.proof else {
        return Err(WriteError::Internal("an index came without its source".into()));
    };
    Index::parse(bytes).map_err(|error| WriteError::BadIndex { url: source::shown_text(url), source: error })
}

/// A receipt that was copied here with a clone of another disk does not apply to this one; it still makes the disk "not
/// blank", and a person decides. One that is expected on this disk applies, whatever the disk was called when it was
/// written: what is expected was reported under the name that the disk has now.
pub(crate) fn known_here(
    mark: &DiskReceipt, disk: &DiskId, authority: &Authority, name: &str, observer: &dyn Observer,
) -> bool {
    let expected = |other: &DiskReceipt| other.disk.same_disk(disk) && same_mark(&other.receipt, &mark.receipt);
    let own = mark.disk.same_disk(disk) || authority.expected.iter().any(expected);
    if !own {
        let line = format!("the receipt on {name} was written for another disk ({:?}) and is ignored", mark.disk);
        observer.log(LogLevel::Warn, &line);
    }
    own
}

pub(crate) fn mark_of(disk: &DiskId, intent: &ReceiptIntent, image_digest: Option<Digest>) -> DiskReceipt {
    DiskReceipt {
        disk: disk.clone(),
        receipt: Receipt {
            machine_uid: intent.machine_uid,
            workflow_uid: intent.workflow_uid,
            workflow_name: intent.workflow_name.clone(),
            generation: intent.generation,
            action_index: intent.action_index,
            image_digest,
            state: ReceiptState::Intent,
            written_at: jiff::Timestamp::now(),
        },
    }
}

/// Checks that the disk behind the name is the chosen one and is not in use.
pub(crate) fn same_disk(disk: &DiskFacts, path: &Path, name: &str) -> Result<(), WriteError> {
    let examine = |source| WriteError::Examine { device: name.into(), source };
    let changed = |reason: String| WriteError::DiskChanged { device: name.into(), reason };
    let now = disk_at(path).map_err(|error| changed(format!("it is gone ({error})")))?;
    let chosen = &disk.id;
    if !now.id.same_disk(chosen) {
        let words = |id: &landfall_api::DiskId| {
            format!("wwn \"{}\" serial \"{}\" path \"{}\" {} bytes", id.wwn, id.serial, id.path, id.size_bytes)
        };
        return Err(changed(format!("it was {} and is now {}", words(chosen), words(&now.id))));
    }
    let reasons = holders_of(&now).map_err(examine)?;
    if reasons.is_empty() { Ok(()) } else { Err(WriteError::InUse { device: name.into(), reasons }) }
}

/// The open device has the size and sectors of the disk chosen: the name did not move between looking and opening.
pub(crate) fn same_device(device: &RealDevice, disk: &DiskFacts, name: &str) -> Result<(), WriteError> {
    let (size, sector) = (device.size(), device.logical_sector());
    if size == disk.id.size_bytes && sector == disk.logical_sector_bytes {
        return Ok(());
    }
    Err(WriteError::DiskChanged { device: name.into(), reason: format!("it has {size} bytes in sectors of {sector}") })
}

pub(crate) fn open(disk: &DiskFacts, path: &Path, name: &str) -> Result<RealDevice, WriteError> {
    opened(RealDevice::open(path), disk, name)
}

/// What was opened is that disk.
pub(crate) fn opened(device: io::Result<RealDevice>, disk: &DiskFacts, name: &str) -> Result<RealDevice, WriteError> {
    let device = device.map_err(|source| in_use(source, name))?;
    same_device(&device, disk, name)?;
    Ok(device)
}

/// Why a disk cannot be opened or locked.
pub(crate) fn in_use(source: io::Error, name: &str) -> WriteError {
    if source.kind() == io::ErrorKind::ResourceBusy {
        let reason = "the kernel refuses exclusive access: the disk is mounted, or another program holds it";
        return WriteError::InUse { device: name.into(), reasons: vec![reason.into()] };
    }
    WriteError::DeviceIo { device: name.into(), action: "open".into(), source }
}
