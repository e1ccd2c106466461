//! The ioctls of block devices: the only unsafe code of this crate.
//!
//! Sound because each wrapper passes an open descriptor it borrows for the call and, where the kernel reads or writes more, a
//! reference to a local of the type that the request's number stands for in `linux/fs.h` or `linux/blkpg.h`.
#![allow(unsafe_code)] // ioctls have no safe binding in nix; each block below says why it holds.

use std::{ffi::c_void, fs::File, io, ops::Range, os::fd::AsRawFd, ptr};

mod raw {
    //! Numbers from `linux/fs.h` and `linux/blkpg.h`.
    use nix::libc::{c_int, size_t};
    nix::ioctl_none!(blkrrpart, 0x12, 95);
    // BLKSSZGET is declared without a direction although the kernel writes an int.
    nix::ioctl_read_bad!(blksszget, nix::request_code_none!(0x12, 104), c_int);
    nix::ioctl_read!(blkgetsize64, 0x12, 114, size_t);
    nix::ioctl_write_ptr_bad!(blkpg, nix::request_code_none!(0x12, 105), super::PartitionCall);
}

/// `BLKPG_RESIZE_PARTITION`
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

/// Tells the kernel which bytes of the disk a partition covers; it must begin where it begins.
pub(crate) fn resize_partition(file: &File, number: u32, bytes: &Range<u64>) -> io::Result<()> {
    let signed = |n: u64| i64::try_from(n).map_err(io::Error::other);
    let partition = Partition {
        start: signed(bytes.start)?,
        length: signed(bytes.end - bytes.start)?,
        number: i32::try_from(number).map_err(io::Error::other)?,
        names: [0; 128],
    };
    let length = size_of::<Partition>() as i32;
    let call = PartitionCall { op: RESIZE, flags: 0, length, data: ptr::from_ref(&partition).cast() };
    // SAFETY: `file` is open for the call; the kernel only reads `call` and, through it, `partition`, which outlives the call.
    unsafe { raw::blkpg(file.as_raw_fd(), &call) }?;
    Ok(())
}
