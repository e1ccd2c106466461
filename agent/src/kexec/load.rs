//! Handing a kernel to the running one: `kexec_file_load(2)`, which neither nix nor rustix has. The only unsafe code of this
//! crate.
//!
//! Sound because the one call passes two descriptors that are borrowed for its duration, and a text with its length, NUL
//! included, that the kernel copies before it returns. It writes nothing into this process. What it loads is not run by
//! it: that is `reboot(RB_KEXEC)`, which ends this process with everything else.
#![allow(unsafe_code)] // The system call has no safe binding; the block below says why it holds.

use std::{ffi::CStr, fs::File};

use nix::errno::Errno;

/// The running kernel refuses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}: {errno}", why(*errno))]
pub(crate) struct Refused {
    errno: Errno,
}

/// Has the running kernel load another, which `reboot(RB_KEXEC)` then jumps into. What was loaded before is replaced.
///
/// # Errors
/// [`Refused`], the kernel's own reason.
pub(crate) fn load(kernel: &File, initramfs: &File, cmdline: &CStr) -> Result<(), Refused> {
    call(kernel, initramfs, cmdline).map_err(|errno| Refused { errno })
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn call(kernel: &File, initramfs: &File, cmdline: &CStr) -> nix::Result<()> {
    use std::os::fd::AsRawFd;

    use nix::libc;

    let flags: libc::c_ulong = 0;
    let length = cmdline.count_bytes() + 1;
    // SAFETY: both descriptors stay open for the call, `cmdline` is valid for reads of `length` bytes and ends in NUL, and
    // the kernel only reads it. Types as in the system call's signature: int, int, unsigned long, pointer, unsigned long.
    let result = unsafe {
        libc::syscall(
            libc::SYS_kexec_file_load,
            kernel.as_raw_fd(),
            initramfs.as_raw_fd(),
            length as libc::c_ulong,
            cmdline.as_ptr(),
            flags,
        )
    };
    Errno::result(result).map(drop)
}

/// No other architecture that Landfall is built for has it.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn call(_: &File, _: &File, _: &CStr) -> nix::Result<()> {
    Err(Errno::ENOSYS)
}

impl Refused {
    /// What a person can do about it.
    pub(crate) fn hint(self) -> &'static str {
        match self.errno {
            Errno::EPERM | Errno::EKEYREJECTED | Errno::ENOKEY | Errno::ENODATA | Errno::EBADMSG => {
                "end the list with reboot instead: under Secure Boot, lockdown or kernel.kexec_load_disabled only what \
                 the kernel trusts may be loaded"
            }
            Errno::ENOSYS => {
                "end the list with reboot instead, or pack the boot image from a kernel with CONFIG_KEXEC_FILE"
            }
            Errno::ENOMEM | Errno::EADDRNOTAVAIL => "end the list with reboot instead, or give the machine more memory",
            Errno::ENOEXEC | Errno::EINVAL => {
                "check that the image is for this architecture, and read the kernel's lines on the console; reboot instead of kexec uses the boot loader"
            }
            _ => "try again with landfall retry, or end the list with reboot instead",
        }
    }

    /// Whether a retry may succeed.
    pub(crate) fn retryable(self) -> bool {
        matches!(self.errno, Errno::EBUSY | Errno::EIO | Errno::EINTR | Errno::EAGAIN)
    }
}

const fn why(errno: Errno) -> &'static str {
    match errno {
        Errno::EPERM => "the running kernel forbids loading another",
        Errno::EKEYREJECTED | Errno::ENOKEY | Errno::ENODATA | Errno::EBADMSG => {
            "the kernel's signature is not trusted by the running kernel"
        }
        Errno::ENOSYS => "the running kernel cannot load another (no CONFIG_KEXEC_FILE)",
        Errno::ENOEXEC => "the file is not a kernel that the running kernel can start",
        Errno::ENOMEM | Errno::EADDRNOTAVAIL => "there is not enough memory for kernel and initramfs",
        Errno::EBUSY => "another kernel is being loaded right now",
        Errno::EINVAL => "the running kernel refuses this kernel with this command line",
        _ => "the kernel cannot be loaded",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_no_kernel_and_the_refusal_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vmlinuz");
        std::fs::write(&path, "no kernel").unwrap();
        let file = File::open(&path).unwrap();
        let refused = load(&file, &file, c"root=/dev/vda1").unwrap_err();
        // Without the privilege, without the configuration, or with both.
        assert!(matches!(refused.errno, Errno::EPERM | Errno::ENOSYS | Errno::ENOEXEC), "{refused}");
        assert!(!refused.retryable() && refused.hint().contains("reboot"), "{refused}");
    }

    #[test]
    fn every_usual_refusal_names_its_reason_and_the_way_out() {
        for (errno, said, hint) in [
            (Errno::EPERM, "forbids", "Secure Boot"),
            (Errno::EKEYREJECTED, "signature", "reboot"),
            (Errno::ENOSYS, "CONFIG_KEXEC_FILE", "CONFIG_KEXEC_FILE"),
            (Errno::ENOEXEC, "not a kernel", "architecture"),
            (Errno::ENOMEM, "memory", "memory"),
        ] {
            let refused = Refused { errno };
            assert!(refused.to_string().contains(said), "{refused}");
            assert!(refused.hint().contains(hint) && refused.hint().contains("reboot"), "{errno}");
        }
        assert!(Refused { errno: Errno::EBUSY }.retryable());
    }
}
