//! A loop device over the file of the tools layer: squashfs is mounted from a block device alone.
//!
//! Sound because each call passes a number or a descriptor that it borrows; the kernel reads and writes nothing in this process.
#![allow(unsafe_code)] // The ioctls have no safe binding; the blocks below say why each holds.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

use nix::errno::Errno;

mod raw {
    // linux/loop.h: LOOP_CTL_GET_FREE, LOOP_SET_FD, LOOP_CLR_FD
    nix::ioctl_none_bad!(get_free, 0x4C82);
    nix::ioctl_write_int_bad!(set_fd, 0x4C00);
    nix::ioctl_none_bad!(clear_fd, 0x4C01);
}

/// How often a free device is looked for: another program may take it in between.
const TRIES: usize = 8;

/// A loop device, and nothing else has it. Stays until [`LoopDevice::detach`].
#[derive(Debug)]
pub(super) struct LoopDevice {
    device: File,
    /// Its node.
    pub(super) path: PathBuf,
}

impl LoopDevice {
    /// A read-only device over this file. The file may be closed.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn attach(file: &impl AsFd) -> io::Result<Self> {
        let control = File::options().read(true).write(true).open("/dev/loop-control")?;
        for _ in 0..TRIES {
            // SAFETY: `control` is open for the call, which takes no argument.
            let number = unsafe { raw::get_free(control.as_raw_fd()) }?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            // Opened for reading: the device is read-only then.
            let device = File::open(&path)?;
            // SAFETY: both descriptors are open for the call; the kernel takes a reference of its own to the file.
            match unsafe { raw::set_fd(device.as_raw_fd(), file.as_fd().as_raw_fd()) } {
                Ok(_) => return Ok(Self { device, path }),
                Err(Errno::EBUSY) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Err(Errno::EBUSY.into())
    }

    /// Gives the device back; while something is still mounted from it, once that has ended.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn detach(self) -> io::Result<()> {
        // SAFETY: `self.device` is open for the call, which takes no argument.
        unsafe { raw::clear_fd(self.device.as_raw_fd()) }?;
        Ok(())
    }
}
