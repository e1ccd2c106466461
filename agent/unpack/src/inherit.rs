//! What a new file takes from its directory, and what it must not take.
//!
//! SELinux: the agent's own kernel has no policy that would choose a label, and a system that enforces one denies its services a
//! file without one. So what the archive gives no label gets that of the file which it replaces, else its directory's, as a policy
//! without a rule of its own gives. A system without labels gets none.
//!
//! Default lists: the kernel gives what is made in a directory that has one an access control list that the archive does not know
//! of; that is taken away.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{XattrFlags, lgetxattr, lremovexattr, lsetxattr};
use rustix::io::Errno;

use crate::{attributes::Failed, entry::Attributes};

/// `XATTR_NAME_SELINUX`
const LABEL: &CStr = c"security.selinux";
const ACCESS: &CStr = c"system.posix_acl_access";
const DEFAULT: &CStr = c"system.posix_acl_default";
/// No label is longer: a page.
const MOST: usize = 4096;

/// What a directory gives to what is made in it.
#[derive(Debug, Default)]
pub(crate) struct Heritage {
    label: Option<Vec<u8>>,
    /// It has a default access control list.
    list: bool,
}

impl Heritage {
    pub(crate) fn of(directory: &OwnedFd) -> Result<Self, Errno> {
        let list = match lgetxattr(path(directory, b"."), DEFAULT, &mut [0_u8; 0]) {
            Ok(_) => true,
            Err(Errno::NODATA | Errno::NOTSUP) => false,
            Err(e) => return Err(e),
        };
        Ok(Self { label: label(directory, b".")?, list })
    }

    /// Puts right what was made just now. `own` is what the archive says of it, `replaced` the label of what stood in its place.
    pub(crate) fn settle(
        &self, directory: &OwnedFd, name: &[u8], own: Option<&Attributes>, replaced: Option<Vec<u8>>,
    ) -> Result<(), Failed> {
        let path = path(directory, name);
        let stated = own.and_then(|own| own.extended.iter().find(|(key, _)| key == LABEL.to_bytes()));
        // A directory's own attributes come last, and what is made in it meanwhile is to have its label.
        if let Some(label) = stated.map(|(_, label)| label).or(replaced.as_ref()).or(self.label.as_ref()) {
            let set = lsetxattr(path.as_slice(), LABEL, label, XattrFlags::empty());
            set.map_err(|errno| ("set the SELinux label of".to_owned(), errno))?;
        }
        for list in [ACCESS, DEFAULT].into_iter().filter(|_| self.list) {
            match lremovexattr(path.as_slice(), list) {
                Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => {}
                Err(errno) => return Err(("take the inherited access control list of".to_owned(), errno)),
            }
        }
        Ok(())
    }
}

/// Puts right a file or directory of the installed system that was made just now, and that no archive describes: it gets the label
/// of what it is to replace, else its directory's, and no access control list.
///
/// # Errors
/// The file system's.
pub fn inherit(directory: &OwnedFd, new: &[u8], replaced: Option<&[u8]>) -> Result<(), Errno> {
    let old = replaced.map(|name| label(directory, name)).transpose()?.flatten();
    Heritage::of(directory)?.settle(directory, new, None, old).map_err(|(_, errno)| errno)
}

/// `None` where there is no label, no such file, or no room for labels in the file system.
pub(crate) fn label(directory: &OwnedFd, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    let mut label = vec![0; MOST];
    match lgetxattr(path(directory, name), LABEL, &mut label[..]) {
        Ok(length) => {
            label.truncate(length);
            Ok(Some(label).filter(|label| !label.is_empty()))
        }
        Err(Errno::NODATA | Errno::NOTSUP | Errno::NOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

/// By descriptor, so that no link on the way is followed again; the calls do not follow one in the file's place.
fn path(directory: &OwnedFd, name: &[u8]) -> Vec<u8> {
    [format!("/proc/self/fd/{}/", directory.as_raw_fd()).as_bytes(), name].concat()
}
