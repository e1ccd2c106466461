//! The ioctls of block devices: the only unsafe code of this crate.
//!
//! Sound because each wrapper passes an open descriptor it borrows for the call and, where the kernel writes an answer, a
//! reference to a local of the type that the request's number stands for in `linux/fs.h`.
#![allow(unsafe_code)] // ioctls have no safe binding in nix; each block below says why it holds.

use std::{fs::File, io, os::fd::AsRawFd};

mod raw {
    //! Numbers from `linux/fs.h`.
    use nix::libc::{c_int, size_t};
    nix::ioctl_none!(blkrrpart, 0x12, 95);
    // BLKSSZGET is declared without a direction although the kernel writes an int.
    nix::ioctl_read_bad!(blksszget, nix::request_code_none!(0x12, 104), c_int);
    nix::ioctl_read!(blkgetsize64, 0x12, 114, size_t);
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
