//! Divides a disk for a system that comes in parts: checks everything that must be true first, then gives it its table; and
//! marks it once everything stands.
//!
//! Of several disks that belong together all are checked before the first is changed, and what stood on them is stopped in
//! between: so whether a disk is in use is a check of its own.

use landfall_api::{DiskFacts, DiskReceipt};

use crate::{
    Authority, Expectation, LogLevel, NewTable, Observer, Order, RealDevice, TableKind, WriteError,
    authorise::{Decision, authorise},
    blank, device_path, disk_at,
    forgiving::Forgiving,
    pipeline::{divide_device, finish_device, has_room},
    receipt,
    write::{known_here, mark_of, open, same_device, same_disk},
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

/// Destroys what is on the disk, but for the partitions that stay, and gives it its table. The receipt says *intent* from
/// before the first change on. A disk on which that was interrupted, or on which this action was done already, is divided again.
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
    let kind = if request.table.kind == TableKind::Gpt { "a GPT" } else { "an MBR" };
    observer.log(LogLevel::Info, &format!("{name} gets {kind} with {} entries", request.table.partitions.len()));
    with_order(request, &device, &|order| divide_device(&device, &request.table, order, observer))
}

/// Marks the disk: everything stands. Something may use its partitions meanwhile. The receipt that is now on the disk.
///
/// **Blocking**, as [`crate::write_image`].
///
/// # Errors
/// [`WriteError`]: the disk is not the chosen one, or fails.
pub fn divided(request: &DivideRequest, observer: &dyn Observer) -> Result<DiskReceipt, WriteError> {
    let (path, name) = (device_path(&request.disk), request.name());
    request.authority.may_act(&name)?;
    same_id(request, &name)?;
    let device = RealDevice::open_shared(&path).map_err(|source| WriteError::DeviceIo {
        device: name.clone(),
        action: "open".into(),
        source,
    })?;
    same_device(&device, &request.disk, &name)?;
    let done = with_order(request, &device, &|order| finish_device(&device, order))?;
    observer.receipt_written(&done);
    Ok(done)
}

fn with_order<T>(
    request: &DivideRequest,
    device: &RealDevice,
    act: &dyn Fn(&Order<'_>) -> Result<T, WriteError>,
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
        read_back: false,
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
