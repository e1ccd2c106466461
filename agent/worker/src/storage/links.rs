//! The folder /dev/GROUP of a volume group. Where no udev runs LVM makes it, with a link for each volume, and leaves it when the
//! volumes are closed from outside; and it makes no group for whose name there is anything.

use std::{fs, io, path::Path};

use landfall_api::{ErrorCode, Problem};
use landfall_plan::Step;

use super::opened::is_active;
use crate::Failure;

/// Removes what is left of closed groups with the names of these steps. Nothing was written to a disk yet.
///
/// # Errors
/// The name is that of something else, or of a group that is active.
pub(super) fn forget(steps: &[Step]) -> Result<(), Failure> {
    forget_in(Path::new("/dev"), steps, &is_active)
}

fn forget_in(dev: &Path, steps: &[Step], active: &dyn Fn(&Path) -> bool) -> Result<(), Failure> {
    let groups = steps.iter().filter_map(|step| match step {
        Step::Group { name, .. } => Some(name),
        _ => None,
    });
    for name in groups {
        let folder = dev.join(name);
        remove(&folder, active).map_err(|error| {
            let message = format!("there can be no volume group {name}: {} is in use", folder.display());
            let hint = "choose another name for the group, or restart the machine";
            Failure::last(Problem::new(ErrorCode::DiskInUse, message).caused_by(&error).hint(hint))
        })?;
    }
    Ok(())
}

fn remove(folder: &Path, active: &dyn Fn(&Path) -> bool) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let path = entry?.path();
        // An active one is of a volume on a disk that the layout does not take.
        if !path.is_symlink() || active(&path) {
            return Err(io::Error::other(format!("{} is there", path.display())));
        }
        fs::remove_file(path)?;
    }
    fs::remove_dir(folder)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use landfall_plan::GroupMember;

    use super::*;

    #[test]
    fn only_links_of_closed_volumes_are_forgotten() {
        let dev = tempfile::tempdir().unwrap();
        let forget = |name: &str| {
            let step = Step::Group { name: name.into(), members: Vec::<GroupMember>::new() };
            forget_in(dev.path(), &[step], &|path| fs::canonicalize(path).is_ok_and(|at| at.ends_with("dm-0")))
        };
        for name in ["closed", "active", "mapper"] {
            fs::create_dir(dev.path().join(name)).unwrap();
        }
        fs::write(dev.path().join("dm-0"), "").unwrap();
        fs::write(dev.path().join("vda"), "").unwrap();
        fs::write(dev.path().join("mapper/control"), "").unwrap();
        symlink("../mapper/closed-root", dev.path().join("closed/root")).unwrap();
        // Its file may be there still.
        symlink("../vda", dev.path().join("closed/swap")).unwrap();
        symlink("../dm-0", dev.path().join("active/root")).unwrap();
        for name in ["closed", "absent"] {
            forget(name).unwrap();
            assert!(!dev.path().join(name).exists());
        }
        for name in ["active", "mapper", "vda"] {
            let refused = forget(name).unwrap_err().problem;
            assert!(refused.message.contains(name) && dev.path().join(name).exists(), "{refused}");
        }
        assert!(dev.path().join("active/root").is_symlink());
    }
}
