//! Makes the kernel forget a btrfs device that is not mounted any more: otherwise it takes another disk with the same image
//! for an older path of this one, and refuses to mount it.
//!
//! Sound because the one call passes a descriptor that it borrows and a structure of the size and layout that the request's
//! number stands for in `linux/btrfs.h`; the kernel reads it and writes nothing into this process.
#![allow(unsafe_code)] // The ioctl has no safe binding; the block below says why it holds.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `struct btrfs_ioctl_vol_args`
#[repr(C)]
pub(crate) struct Volume {
    fd: i64,
    name: [u8; 4088],
}

mod raw {
    // BTRFS_IOC_FORGET_DEV
    nix::ioctl_write_ptr!(forget, 0x94, 5, super::Volume);
}

/// Does it; a kernel that cannot, or remembers no such device, is as good.
pub(super) fn forget(device: &Path) {
    let path = device.as_os_str().as_bytes();
    let mut volume = Volume { fd: 0, name: [0; 4088] };
    // One byte stays zero: the name ends there.
    let (Some(room), Ok(control)) = (volume.name.get_mut(..path.len()), File::open("/dev/btrfs-control")) else {
        return;
    };
    if path.len() >= 4088 {
        return;
    }
    room.copy_from_slice(path);
    // SAFETY: `control` is open for the call, and `volume` is valid for reads of its whole size, which the request's number
    // states.
    match unsafe { raw::forget(control.as_raw_fd(), &raw const volume) } {
        Ok(_) => tracing::debug!("{} is forgotten", device.display()),
        Err(e) => tracing::debug!("{} is not forgotten: {e}", device.display()),
    }
}
