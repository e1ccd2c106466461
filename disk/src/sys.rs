//! The ioctls of block devices: the only unsafe code of this crate.
//!
//! Sound because each wrapper passes an open descriptor it borrows for the call and, where the kernel reads or writes more, a
//! reference to a local of the type that the request's number stands for in `linux/fs.h` or `linux/blkpg.h`.
#![allow(unsafe_code)] // ioctls have no safe binding in nix; each block below says why it holds.

use std::{ffi::c_void, fs::File, io, ops::Range, os::fd::AsRawFd, ptr, time::Duration};

mod raw {
    //! Numbers from `linux/fs.h` and `linux/blkpg.h`.
    use nix::libc::{c_int, size_t};
    nix::ioctl_none!(blkrrpart, 0x12, 95);
    // BLKSSZGET is declared without a direction although the kernel writes an int.
    nix::ioctl_read_bad!(blksszget, nix::request_code_none!(0x12, 104), c_int);
    nix::ioctl_read!(blkgetsize64, 0x12, 114, size_t);
    nix::ioctl_write_ptr_bad!(blkpg, nix::request_code_none!(0x12, 105), super::PartitionCall);
    nix::ioctl_write_ptr_bad!(blkdiscard, nix::request_code_none!(0x12, 119), [u64; 2]);
    // linux/nvme_ioctl.h
    nix::ioctl_none!(nvme_id, b'N', 0x40);
    nix::ioctl_readwrite!(nvme_admin_cmd, b'N', 0x41, super::NvmeAdminCommand);
    // linux/raid/md_u.h
    nix::ioctl_none!(stop_array, 9, 0x32);
    // linux/dm-ioctl.h
    nix::ioctl_readwrite!(dm_dev_remove, 0xfd, 4, super::MapperCall);
    // scsi/sg.h
    nix::ioctl_readwrite_bad!(sg_io, 0x2285, super::SgIo);
}

/// `BLKPG_ADD_PARTITION` and `BLKPG_RESIZE_PARTITION`
const ADD: i32 = 1;
const RESIZE: i32 = 3;

/// `struct blkpg_ioctl_arg`
#[repr(C)]
struct PartitionCall {
    op: i32,
    flags: i32,
    length: i32,
    data: *const c_void,
}

/// `struct blkpg_partition`; the names are used by nothing.
#[repr(C)]
struct Partition {
    start: i64,
    length: i64,
    number: i32,
    names: [u8; 128],
}

/// `struct dm_ioctl` of `linux/dm-ioctl.h`.
#[repr(C)]
struct MapperCall {
    version: [u32; 3],
    size: u32,
    data_start: u32,
    targets: u32,
    open_count: i32,
    flags: u32,
    event: u32,
    padding: u32,
    device: u64,
    name: [u8; 128],
    uuid: [u8; 129],
    data: [u8; 7],
}

/// `struct nvme_passthru_cmd` of `linux/nvme_ioctl.h`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct NvmeAdminCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    dwords_2_3: [u32; 2],
    metadata: u64,
    data: u64,
    metadata_bytes: u32,
    data_bytes: u32,
    dwords_10_15: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

/// `struct sg_io_hdr` of `scsi/sg.h`.
#[repr(C)]
pub(crate) struct SgIo {
    interface: i32,
    direction: i32,
    command_bytes: u8,
    sense_room: u8,
    pieces: u16,
    data_bytes: u32,
    data: *mut u8,
    command: *const u8,
    sense: *mut u8,
    timeout_ms: u32,
    flags: u32,
    id: i32,
    own: *mut u8,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_written: u8,
    host_status: u16,
    driver_status: u16,
    residual: i32,
    duration_ms: u32,
    info: u32,
}

/// Data of a SCSI command.
pub(crate) enum ScsiData<'a> {
    /// None.
    None,
    /// From the disk.
    In(&'a mut [u8]),
    /// To the disk.
    Out(&'a [u8]),
}

/// Tells the disk that a range of whole sectors is not needed any more.
pub(crate) fn discard(file: &File, start: u64, length: u64) -> io::Result<()> {
    let range = [start, length];
    // SAFETY: `file` is open for the call; the kernel reads two u64, offset and length in bytes.
    unsafe { raw::blkdiscard(file.as_raw_fd(), &range) }?;
    Ok(())
}

/// Stops the array whose device this is.
pub(crate) fn stop_array(array: &File) -> io::Result<()> {
    // SAFETY: `array` is open for the call; the request takes no argument.
    unsafe { raw::stop_array(array.as_raw_fd()) }?;
    Ok(())
}

/// Removes the mapped device of this name; `control` is /dev/mapper/control.
pub(crate) fn remove_mapped(control: &File, name: &str) -> io::Result<()> {
    let size = size_of::<MapperCall>() as u32;
    let mut call = MapperCall {
        // The oldest version that has the request.
        version: [4, 0, 0],
        size,
        data_start: size,
        targets: 0,
        open_count: 0,
        flags: 0,
        event: 0,
        padding: 0,
        device: 0,
        name: [0; 128],
        uuid: [0; 129],
        data: [0; 7],
    };
    // The kernel wants a zero at the end.
    let room = call.name.get_mut(..name.len()).filter(|room| room.len() < 128);
    room.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?.copy_from_slice(name.as_bytes());
    // SAFETY: `control` is open for the call; `call` is the kernel's struct and states its own size, beyond which the kernel
    // neither reads nor writes.
    unsafe { raw::dm_dev_remove(control.as_raw_fd(), &mut call) }?;
    Ok(())
}

/// The number of the namespace behind an NVMe block device.
pub(crate) fn nvme_namespace(file: &File) -> io::Result<u32> {
    // SAFETY: `file` is open for the call, which takes no argument; the kernel returns the number.
    let number = unsafe { raw::nvme_id(file.as_raw_fd()) }?;
    u32::try_from(number).map_err(|_| io::Error::other("the kernel reports a negative namespace"))
}

/// Sends an admin command to the controller of an NVMe block device; its status, 0 if it did it.
pub(crate) fn nvme_admin(
    file: &File, opcode: u8, namespace: u32, dwords: [u32; 2], data: &mut [u8], limit: Duration,
) -> io::Result<u16> {
    let mut command = NvmeAdminCommand {
        opcode,
        namespace,
        data: if data.is_empty() { 0 } else { data.as_mut_ptr() as u64 },
        data_bytes: u32::try_from(data.len()).map_err(io::Error::other)?,
        dwords_10_15: [dwords[0], dwords[1], 0, 0, 0, 0],
        timeout_ms: milliseconds(limit),
        ..NvmeAdminCommand::default()
    };
    // SAFETY: `file` is open for the call; `command` is the kernel's struct, and names `data`, which lives as long as the call and
    // is exclusively borrowed, with its own length: the kernel transfers no more than that.
    let status = unsafe { raw::nvme_admin_cmd(file.as_raw_fd(), &mut command) }?;
    u16::try_from(status).map_err(|_| io::Error::other("the kernel reports a negative status"))
}

/// Sends a SCSI command; its status byte and its sense data.
pub(crate) fn scsi(file: &File, command: &[u8], data: ScsiData<'_>, limit: Duration) -> io::Result<(u8, Vec<u8>)> {
    // scsi/sg.h: SG_DXFER_NONE, SG_DXFER_FROM_DEV, SG_DXFER_TO_DEV.
    let (direction, data, length) = match data {
        ScsiData::None => (-1, std::ptr::null_mut(), 0),
        ScsiData::In(into) => (-3, into.as_mut_ptr(), into.len()),
        // The kernel only reads it.
        ScsiData::Out(from) => (-2, from.as_ptr().cast_mut(), from.len()),
    };
    let mut sense = vec![0_u8; 252];
    let mut header = SgIo {
        interface: i32::from(b'S'),
        direction,
        command_bytes: u8::try_from(command.len()).map_err(io::Error::other)?,
        sense_room: u8::try_from(sense.len()).map_err(io::Error::other)?,
        pieces: 0,
        data_bytes: u32::try_from(length).map_err(io::Error::other)?,
        data,
        command: command.as_ptr(),
        sense: sense.as_mut_ptr(),
        timeout_ms: milliseconds(limit),
        flags: 0,
        id: 0,
        own: std::ptr::null_mut(),
        status: 0,
        masked_status: 0,
        message_status: 0,
        sense_written: 0,
        host_status: 0,
        driver_status: 0,
        residual: 0,
        duration_ms: 0,
        info: 0,
    };
    // SAFETY: `file` is open for the call; `header` is the kernel's struct, and the three buffers that it names, each with its own
    // length, live as long as the call. The kernel writes to `sense`, and to `data` only where it was given exclusively.
    unsafe { raw::sg_io(file.as_raw_fd(), &mut header) }?;
    // The upper bits of the driver's status are suggestions; 8 says that there is sense data.
    if header.host_status != 0 || header.driver_status & 0x07 != 0 {
        let (host, driver) = (header.host_status, header.driver_status);
        return Err(io::Error::other(format!(
            "the adapter ends it with status {host:#x} and the driver with {driver:#x}"
        )));
    }
    sense.truncate(usize::from(header.sense_written));
    Ok((header.status, sense))
}

fn milliseconds(limit: Duration) -> u32 {
    u32::try_from(limit.as_millis()).unwrap_or(u32::MAX)
}

/// Capacity of a block device, bytes.
pub(crate) fn size_bytes(file: &File) -> io::Result<u64> {
    let mut size = 0;
    // SAFETY: `file` is open for the call; the kernel writes one u64, and size_t is that on the 64-bit targets we build.
    unsafe { raw::blkgetsize64(file.as_raw_fd(), &mut size) }?;
    Ok(size as u64)
}

/// Logical sector size of a block device, bytes.
pub(crate) fn logical_sector(file: &File) -> io::Result<u32> {
    let mut size = 0;
    // SAFETY: `file` is open for the call; the kernel writes one int.
    unsafe { raw::blksszget(file.as_raw_fd(), &mut size) }?;
    u32::try_from(size).map_err(|_| io::Error::other("the kernel reports a negative sector size"))
}

/// Makes the kernel read the partition table again.
pub(crate) fn reread_table(file: &File) -> io::Result<()> {
    // SAFETY: `file` is open for the call; the request takes no argument.
    unsafe { raw::blkrrpart(file.as_raw_fd()) }?;
    Ok(())
}

/// Tells the kernel of a partition that it has read from no table.
pub(crate) fn add_partition(file: &File, number: u32, bytes: &Range<u64>) -> io::Result<()> {
    partition(file, ADD, number, bytes)
}

/// Tells the kernel which bytes of the disk a partition covers; it must begin where it begins.
pub(crate) fn resize_partition(file: &File, number: u32, bytes: &Range<u64>) -> io::Result<()> {
    partition(file, RESIZE, number, bytes)
}

fn partition(file: &File, op: i32, number: u32, bytes: &Range<u64>) -> io::Result<()> {
    let signed = |n: u64| i64::try_from(n).map_err(io::Error::other);
    let partition = Partition {
        start: signed(bytes.start)?,
        length: signed(bytes.end - bytes.start)?,
        number: i32::try_from(number).map_err(io::Error::other)?,
        names: [0; 128],
    };
    let length = size_of::<Partition>() as i32;
    let call = PartitionCall { op, flags: 0, length, data: ptr::from_ref(&partition).cast() };
    // SAFETY: `file` is open for the call; the kernel only reads `call` and, through it, `partition`, which outlives the call.
    unsafe { raw::blkpg(file.as_raw_fd(), &call) }?;
    Ok(())
}
