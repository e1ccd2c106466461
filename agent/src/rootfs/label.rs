//! SELinux labels of the files that the agent adds. The agent's own kernel has no policy that would choose them, and a system
//! that enforces one denies its services a file without a label.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};
use rustix::io::Errno;

const ATTRIBUTE: &str = "security.selinux";
/// No label is longer: a page.
const MOST: usize = 4096;

type Label = Vec<u8>;

/// Gives `new` the label that it should have in its directory: that of the file which it is to replace, else the directory's,
/// which is what a policy without a rule of its own gives. A system without labels gets none.
///
/// # Errors
/// The file system's.
pub(super) fn copy(directory: &OwnedFd, new: &Path, replaced: Option<&Path>) -> io::Result<()> {
    let old = replaced.map(|name| read(directory, name)).transpose()?.flatten();
    let Some(label) = choose(old, read(directory, Path::new("."))?) else { return Ok(()) };
    if read(directory, new)?.as_ref() != Some(&label) {
        lsetxattr(path(directory, new), ATTRIBUTE, &label, XattrFlags::empty())?;
    }
    Ok(())
}

fn choose(replaced: Option<Label>, directory: Option<Label>) -> Option<Label> {
    replaced.or(directory)
}

/// `None` where there is no label, no such file, or no room for labels in the file system.
fn read(directory: &OwnedFd, name: &Path) -> io::Result<Option<Label>> {
    let mut label = vec![0; MOST];
    match lgetxattr(path(directory, name), ATTRIBUTE, &mut label[..]) {
        Ok(length) => {
            label.truncate(length);
            Ok(Some(label).filter(|label| !label.is_empty()))
        }
        Err(Errno::NODATA | Errno::NOTSUP | Errno::NOENT) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// By descriptor, so that no link on the way is followed again; the calls do not follow one in the file's place.
fn path(directory: &OwnedFd, name: &Path) -> std::path::PathBuf {
    Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_replaced_files_label_comes_before_the_directorys() {
        let label = |text: &str| Some(text.as_bytes().to_vec());
        assert_eq!(choose(label("a"), label("b")), label("a"));
        assert_eq!(choose(None, label("b")), label("b"));
        assert_eq!(choose(None, None), None);
    }

    #[test]
    fn files_links_and_directories_take_a_label() {
        let root = tempfile::tempdir().unwrap();
        let open = OwnedFd::from(fs::File::open(root.path()).unwrap());
        let at = |name: &str| root.path().join(name);
        fs::write(at("plain"), "").unwrap();
        copy(&open, Path::new("plain"), None).unwrap();
        assert_eq!(read(&open, Path::new("none")).unwrap(), None);
        if let Err(e) = lsetxattr(root.path(), ATTRIBUTE, b"system_u:object_r:etc_t:s0\0", XattrFlags::empty()) {
            eprintln!("SKIPPED: labels cannot be set here: {e}");
            return;
        }
        fs::write(at("file"), "").unwrap();
        fs::create_dir(at("directory")).unwrap();
        symlink("nowhere", at("link")).unwrap();
        for name in ["file", "directory", "link"] {
            copy(&open, Path::new(name), None).unwrap();
            assert_eq!(read(&open, Path::new(name)).unwrap().unwrap(), b"system_u:object_r:etc_t:s0\0", "{name}");
        }
        lsetxattr(at("file"), ATTRIBUTE, b"system_u:object_r:shadow_t:s0\0", XattrFlags::empty()).unwrap();
        fs::write(at("new"), "").unwrap();
        copy(&open, Path::new("new"), Some(Path::new("file"))).unwrap();
        assert_eq!(read(&open, Path::new("new")).unwrap().unwrap(), b"system_u:object_r:shadow_t:s0\0");
    }
}
