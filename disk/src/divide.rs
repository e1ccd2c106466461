//! Divides a disk for a system that comes in parts: checks everything that must be true first, then destroys what was there and
//! shows the kernel the new partitions; and once everything stands on them, gives it its table and its receipt.
//!
//! Of several disks that belong together all are checked before the first is changed, and what stood on them is stopped in
//! between: so whether a disk is in use is a check of its own.

use std::{fs, io, ops::Range, path::Path};

use landfall_api::{DiskFacts, DiskReceipt, ReceiptState};
use uuid::Uuid;

use crate::authorise::{Decision, authorise, words};
use crate::forgiving::Forgiving;
use crate::judge::Findings;
use crate::pipeline::{device_io, divide_device, finish_device, has_room, hold_back_device};
use crate::write::{known_here, mark_of, open, same_device, same_disk};
use crate::{
    Authority, Expectation, LogLevel, NewTable, Observer, Order, RealDevice, TableKind, WriteError, blank, device_path,
    disk_at, receipt, sys,
};

/// One disk to be divided.
#[derive(Debug, Clone)]
pub struct DivideRequest {
    /// The disk, as [`crate::Disk::select`] or [`crate::disk_at`] gave it. Its identity is checked again just before
    /// the first write.
    pub disk: DiskFacts,
    /// Its new table.
    pub table: NewTable,
    /// Labels of partitions of the disk's present table that stay, with all their content.
    pub keep: Vec<String>,
    /// On whose authority.
    pub authority: Authority,
    /// Workflows whose work this one continues: what they divided, it may finish.
    pub earlier_runs: Vec<Uuid>,
}

/// What a disk's receipt says of a division.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The disk may be divided.
    Open,
    /// This same action has divided it, and everything stands.
    Done,
}

impl DivideRequest {
    fn name(&self) -> String {
        device_path(&self.disk).display().to_string()
    }

    fn authorise(&self, device: &RealDevice, observer: &dyn Observer) -> Result<Standing, WriteError> {
        let name = self.name();
        let unreadable = |action| {
            let device = name.clone();
            move |source| WriteError::Unreadable { device, action, source }
        };
        let (disk, authority) = (&self.disk.id, &self.authority);
        let looked = Forgiving::new(device, authority.forced());
        let found = receipt::read_mark(&looked).map_err(unreadable("read the receipt of"))?;
        let marked = found.is_some();
        let found = found.filter(|mark| known_here(mark, disk, authority, &name, observer));
        let foreign = (marked && found.is_none()).then(|| "a receipt of another disk".to_owned());
        let content = blank::what_is_there(&looked).map_err(unreadable("look at the content of"))?.or(foreign);
        let content = content.or_else(|| (!looked.lost().is_empty()).then(|| "sectors that cannot be read".to_owned()));
        Ok(match authorise(disk, authority, found.as_ref(), content.as_deref(), None)? {
            Decision::AlreadyDone => Standing::Done,
            Decision::Write => Standing::Open,
        })
    }

    /// The receipt that dividing the disk left, as it counts.
    fn own_mark(&self, device: &RealDevice) -> Result<DiskReceipt, WriteError> {
        let name = self.name();
        let found = receipt::read_mark(device).map_err(|source| WriteError::Unreadable {
            device: name.clone(),
            action: "read the receipt of",
            source,
        })?;
        let own = &mark_of(&self.disk.id, &self.authority.receipt, None).receipt;
        let is_own = |mark: &DiskReceipt| {
            let found = &mark.receipt;
            (found.machine_uid, found.action_index) == (own.machine_uid, own.action_index)
                && (found.workflow_uid == own.workflow_uid || self.earlier_runs.contains(&found.workflow_uid))
        };
        found.clone().filter(is_own).ok_or_else(|| WriteError::ReceiptMismatch {
            device: name,
            found: words(found.as_ref().map(|mark| &mark.receipt)),
            expected: words(Some(own)),
        })
    }
}

/// Checks that a disk may be divided, and changes nothing. Whether something uses it is not checked yet.
///
/// **Blocking**, as [`crate::write_image`].
///
/// # Errors
/// [`WriteError`]: the disk is not the chosen one, carries an unexpected receipt, or is not blank and no person requested this;
/// or more partitions are to stay than its receipt can list.
pub fn may_divide(request: &DivideRequest, observer: &dyn Observer) -> Result<Standing, WriteError> {
    let name = request.name();
    if request.disk.read_only {
        return Err(WriteError::ReadOnly { device: name });
    }
    request.authority.may_act(&name)?;
    let device = look(request)?;
    let kept = request.table.partitions.iter().filter(|partition| partition.kept).count();
    has_room(&mark_of(&request.disk.id, &request.authority.receipt, None), kept, &name)?;
    request.authorise(&device, observer)
}

/// Checks that nothing uses the disk any more, in whatever mount namespace, and changes nothing.
///
/// **Blocking**, as [`crate::write_image`].
///
/// # Errors
/// [`WriteError`]: the disk is in use, or is not the chosen one.
pub fn check_free(request: &DivideRequest) -> Result<(), WriteError> {
    let (path, name) = (device_path(&request.disk), request.name());
    same_disk(&request.disk, &path, &name)?;
    // The kernel refuses this for a disk with anything on it that is mounted or held.
    open(&request.disk, &path, &name).map(drop)
}

/// Destroys what is on the disk, but for the partitions that stay, and shows the kernel the new ones. The receipt says *intent* from
/// before the first change on, and no firmware starts anything from the disk before [`divided`]: it has no table until then. A disk
/// on which that was interrupted, or on which this action was done already, is divided again.
///
/// **Blocking**, as [`crate::write_image`].
///
/// # Errors
/// [`WriteError`], as of [`may_divide`]; the disk is in use; a device fails.
pub fn divide(request: &DivideRequest, observer: &dyn Observer) -> Result<(), WriteError> {
    let (path, name) = (device_path(&request.disk), request.name());
    if request.disk.read_only {
        return Err(WriteError::ReadOnly { device: name });
    }
    request.authority.may_act(&name)?;
    same_disk(&request.disk, &path, &name)?;
    let device = open(&request.disk, &path, &name)?;
    request.authorise(&device, observer)?;
    with_order(request, &device, &|order| divide_device(&device, &request.table, order, observer))?;
    show(&device, &request.disk, &request.table)
}

/// Everything stands: gives the disk its table, its receipt *done*, and last LBA 0, from which on it may start. Something may use
/// its partitions meanwhile. The receipt that is now on the disk.
///
/// **Blocking**, as [`crate::write_image`].
///
/// # Errors
/// [`WriteError`]: the disk is not the chosen one, was not divided by this action, or fails.
pub fn divided(request: &DivideRequest, observer: &dyn Observer) -> Result<DiskReceipt, WriteError> {
    let (device, _) = shared(request)?;
    let name = request.name();
    let kind = if request.table.kind == TableKind::Gpt { "a GPT" } else { "an MBR" };
    observer.log(LogLevel::Info, &format!("{name} gets {kind} with {} entries", request.table.partitions.len()));
    let done = with_order(request, &device, &|order| finish_device(&device, &request.table, order))?;
    observer.receipt_written(&done);
    Ok(done)
}

/// Before an action fills what stands on the disk: if an earlier attempt at it was interrupted just after [`divided`], the disk
/// starts nothing again until the next one.
///
/// **Blocking**, as [`crate::write_image`].
///
/// # Errors
/// [`WriteError`]: as of [`divided`].
pub fn hold_back(request: &DivideRequest, observer: &dyn Observer) -> Result<(), WriteError> {
    let (device, mark) = shared(request)?;
    let name = request.name();
    // Where the power went in the middle of this, or of the commit, tables may stand beside a receipt that says *intent*.
    let found = Findings::of(&device, request.disk.logical_sector_bytes).map_err(|source| WriteError::Unreadable {
        device: name.clone(),
        action: "read the partition table of",
        source,
    })?;
    if mark.receipt.state == ReceiptState::Intent && !found.anything_boots() {
        return Ok(());
    }
    observer.log(LogLevel::Info, &format!("{name} starts nothing until it is filled"));
    with_order(request, &device, &|order| hold_back_device(&device, order))?;
    observer.receipt_written(&request.own_mark(&device)?);
    Ok(())
}

/// Whether [`divided`] has come to its end on this disk, and nothing took it back.
///
/// # Errors
/// [`WriteError`]: as of [`divided`].
pub fn is_divided(request: &DivideRequest) -> Result<bool, WriteError> {
    shared(request).map(|(_, mark)| mark.receipt.state == ReceiptState::Done)
}

/// Makes the kernel show the partitions of a disk between [`divide`] and [`divided`]: no table leads to them, so it forgot them if
/// the machine restarted.
///
/// # Errors
/// [`WriteError`]: the disk cannot be read, or the kernel refuses.
pub fn show_partitions(disk: &DiskFacts, table: &NewTable) -> Result<(), WriteError> {
    let sector = disk.logical_sector_bytes;
    if table.partitions.iter().all(|part| is_shown(disk, part.number, &part.bytes(sector))) {
        return Ok(());
    }
    let path = device_path(disk);
    let name = path.display().to_string();
    let device = match RealDevice::open_read_only(&path) {
        // What stands on it is missed by its own name.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(device_io(&name, "open"))?,
    };
    let mark = receipt::read_mark(&device).map_err(device_io(&name, "read the receipt of"))?;
    // A disk that is done has its table, by which the kernel went.
    if mark.is_some_and(|mark| mark.receipt.state == ReceiptState::Intent) {
        show(&device, disk, table)
    } else {
        Ok(())
    }
}

fn show(device: &RealDevice, disk: &DiskFacts, table: &NewTable) -> Result<(), WriteError> {
    let failed = |source| WriteError::DeviceIo {
        device: device_path(disk).display().to_string(),
        action: "make the kernel show the new partitions of".into(),
        source,
    };
    // The kernel shows none of a regular file.
    if !device.is_block().map_err(failed)? {
        return Ok(());
    }
    for part in &table.partitions {
        let bytes = part.bytes(disk.logical_sector_bytes);
        if !is_shown(disk, part.number, &bytes) {
            sys::add_partition(device.file(), part.number, &bytes).map_err(failed)?;
        }
    }
    Ok(())
}

/// Whether the kernel has this partition. sysfs counts in units of 512 bytes, whatever the disk's sectors are.
fn is_shown(disk: &DiskFacts, number: u32, bytes: &Range<u64>) -> bool {
    let Ok(found) = fs::read_dir(Path::new("/sys/block").join(&disk.id.name)) else { return false };
    found.flatten().any(|entry| {
        let read = |attribute: &str| -> Option<u64> {
            fs::read_to_string(entry.path().join(attribute)).ok()?.trim().parse().ok()
        };
        read("partition") == Some(number.into())
            && read("start") == Some(bytes.start / 512)
            && read("size") == Some((bytes.end - bytes.start) / 512)
    })
}

/// The disk that this action divided, for writing beside what uses its partitions; and its receipt.
fn shared(request: &DivideRequest) -> Result<(RealDevice, DiskReceipt), WriteError> {
    let name = request.name();
    request.authority.may_act(&name)?;
    same_id(request, &name)?;
    let device = RealDevice::open_shared(&device_path(&request.disk)).map_err(device_io(&name, "open"))?;
    same_device(&device, &request.disk, &name)?;
    let mark = request.own_mark(&device)?;
    Ok((device, mark))
}

fn with_order<T>(
    request: &DivideRequest, device: &RealDevice, act: &dyn Fn(&Order<'_>) -> Result<T, WriteError>,
) -> Result<T, WriteError> {
    let (path, name) = (device_path(&request.disk), request.name());
    act(&Order {
        device: &name,
        expectation: Expectation::Waived,
        format: None,
        no_table: false,
        mark: mark_of(&request.disk.id, &request.authority.receipt, None),
        keep: &request.keep,
        compare: false,
        read_back: true,
        forgive: request.authority.forced(),
        memory: None,
        may_act: &|| request.authority.may_act(&name),
        same_disk: &|| {
            same_disk(&request.disk, &path, &name)?;
            same_device(device, &request.disk, &name)?;
            request.authority.selection.check(&name)
        },
    })
}

/// The disk, for reading; it is the chosen one.
fn look(request: &DivideRequest) -> Result<RealDevice, WriteError> {
    let name = request.name();
    same_id(request, &name)?;
    let open = RealDevice::open_read_only(&device_path(&request.disk));
    let device = open.map_err(|source| WriteError::DeviceIo { device: name.clone(), action: "open".into(), source })?;
    same_device(&device, &request.disk, &name)?;
    Ok(device)
}

fn same_id(request: &DivideRequest, name: &str) -> Result<(), WriteError> {
    let changed = |reason: String| WriteError::DiskChanged { device: name.into(), reason };
    let now = disk_at(&device_path(&request.disk)).map_err(|error| changed(format!("it is gone ({error})")))?;
    if now.id.same_disk(&request.disk.id) { Ok(()) } else { Err(changed("another disk has its name now".into())) }
}
