//! Owner, mode, extended attributes and time of what was made.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{
    AtFlags, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags, chmodat, chownat, fchmod, fchown, fsetxattr,
    futimens, lsetxattr, utimensat,
};
use rustix::io::Errno;

use crate::{entry::Attributes, name::shown};

/// What was tried, and the kernel's reason.
pub(crate) type Failed = (String, Errno);

/// Of an open file or directory, after its content: a write takes set-user-ID and capabilities away, and so does a change of
/// owner; a change of mode takes entries of an access control list away.
pub(crate) fn set(file: impl AsFd, attributes: &Attributes) -> Result<(), Failed> {
    let file = file.as_fd();
    let (user, group) = owner(attributes);
    fchown(file, user, group).map_err(failed("set the owner of"))?;
    fchmod(file, Mode::from_raw_mode(attributes.mode)).map_err(failed("set the mode of"))?;
    for (name, value) in &attributes.extended {
        let set = |name: CString| fsetxattr(file, &name, value, XattrFlags::empty());
        named(name).and_then(set).map_err(of_attribute(name))?;
    }
    futimens(file, &times(attributes)).map_err(failed("set the time of"))
}

/// Of what cannot be opened: a link, a device, a pipe. It was made just now, so the name is no other's.
pub(crate) fn set_at(directory: &OwnedFd, name: &[u8], attributes: &Attributes, link: bool) -> Result<(), Failed> {
    let (user, group) = owner(attributes);
    chownat(directory, name, user, group, AtFlags::SYMLINK_NOFOLLOW).map_err(failed("set the owner of"))?;
    // Linux has no mode of links.
    if !link {
        let mode = Mode::from_raw_mode(attributes.mode);
        chmodat(directory, name, mode, AtFlags::empty()).map_err(failed("set the mode of"))?;
    }
    for (key, value) in &attributes.extended {
        let path = [format!("/proc/self/fd/{}/", directory.as_raw_fd()).as_bytes(), name].concat();
        let set = |key: CString| lsetxattr(path.as_slice(), &key, value, XattrFlags::empty());
        named(key).and_then(set).map_err(of_attribute(key))?;
    }
    utimensat(directory, name, &times(attributes), AtFlags::SYMLINK_NOFOLLOW).map_err(failed("set the time of"))
}

fn owner(attributes: &Attributes) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(attributes.user)), Some(Gid::from_raw(attributes.group)))
}

fn times(attributes: &Attributes) -> Timestamps {
    let (tv_sec, nanos) = attributes.mtime;
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec, tv_nsec: nanos.into() },
    }
}

fn named(name: &[u8]) -> Result<CString, Errno> {
    CString::new(name).map_err(|_| Errno::INVAL)
}

fn failed(action: &'static str) -> impl FnOnce(Errno) -> Failed {
    move |errno| (action.into(), errno)
}

fn of_attribute(name: &[u8]) -> impl FnOnce(Errno) -> Failed {
    move |errno| (format!("set the attribute {} of", shown(name)), errno)
}
