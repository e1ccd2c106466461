//! Names of volume groups that are on disks which the layout does not take, or on partitions that stay. LVM makes no second group
//! of one name, and would say so when the layout's own disks are destroyed.

use std::path::{Path, PathBuf};

use landfall_api::{DiskFacts, ErrorCode, Problem};
use landfall_disk::{Active, StopError, active_devices, device_path};
use landfall_plan::Step;

use super::commands::{groups_beside, physical_volume};
use super::tools::Tools;
use crate::Failure;

/// Checks that no group of these steps has the name of one that is not on these disks. Nothing stands on the disks any more, and
/// nothing was written to them yet. `kept`: partitions of these disks that stay; `silent`: disks that do not answer.
///
/// # Errors
/// There is one; or LVM does not say.
pub(super) fn none_elsewhere(
    steps: &[Step], disks: &[DiskFacts], kept: &[PathBuf], silent: &[String], tools: &dyn Tools,
) -> Result<(), Failure> {
    let wanted: Vec<&str> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Group { name, .. } => Some(name.as_str()),
            _ => None,
        })
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let mut found = None;
    let silent = silent.iter().map(|name| Path::new("/dev").join(name));
    let unread: Vec<PathBuf> = disks.iter().map(device_path).chain(silent).collect();
    tools.read(&groups_beside(&unread, kept), &mut |line| {
        if let Some((device, group)) = physical_volume(line).filter(|(_, group)| wanted.contains(group)) {
            found.get_or_insert_with(|| (device.to_owned(), group.to_owned()));
        }
    })?;
    let Some((device, group)) = found else { return Ok(()) };
    let active = active_devices().map_err(|error| Failure::last(StopError::Unread(error).problem()))?;
    Err(refused(&group, &device, &active))
}

fn refused(group: &str, device: &str, active: &Active) -> Failure {
    let disk = active.disk_under(device).map(|disk| format!(" of disk {disk}")).unwrap_or_default();
    let message = format!(
        "there can be no volume group {group}: one of this name is on {device}{disk}, which this action does not take"
    );
    let hint = "choose another name for the group, add the other disk to the layout, or clear it first with wipe";
    Failure::last(Problem::new(ErrorCode::DiskInUse, message).hint(hint).at(device))
}

#[cfg(test)]
mod tests {
    use landfall_disk::ActiveDevice;

    use super::*;
    use crate::storage::commands::Command;

    /// Prints the same whatever it is asked.
    struct Says(&'static [&'static str]);

    impl Tools for Says {
        fn read(&self, command: &Command, each: &mut dyn FnMut(&str)) -> Result<(), Failure> {
            assert_eq!((command.program, command.arguments[0].as_str()), ("lvm", "pvs"));
            self.0.iter().for_each(|line| each(line));
            Ok(())
        }
    }

    fn ask(groups: &[&str], lines: &'static [&'static str]) -> Result<(), Failure> {
        let group = |name: &&str| Step::Group { name: (*name).to_owned(), members: Vec::new() };
        let steps: Vec<Step> = groups.iter().map(group).collect();
        none_elsewhere(&steps, &[DiskFacts::default()], &[], &[], &Says(lines))
    }

    #[test]
    fn only_a_group_that_is_on_another_disk_counts() {
        ask(
            &["vg0"],
            &[
                "WARNING: VG vg0 is missing PV x (last written to /dev/nosuch1).",
                "LVM2_PV_NAME='[unknown]' LVM2_VG_NAME='vg0'",
                "LVM2_PV_NAME='/dev/nosuch1' LVM2_VG_NAME=''",
                "LVM2_PV_NAME='/dev/nosuch2' LVM2_VG_NAME='[unknown]'",
                "LVM2_PV_NAME='/dev/nosuch3' LVM2_VG_NAME='vg01'",
            ],
        )
        .unwrap();
        let there = &["LVM2_PV_NAME='/dev/nosuch1' LVM2_VG_NAME='a'", "LVM2_PV_NAME='/dev/nosuch2' LVM2_VG_NAME='vg0'"];
        ask(&[], there).unwrap();
        let problem = ask(&["vg0"], there).unwrap_err().problem;
        assert_eq!(problem.code, ErrorCode::DiskInUse);
        assert!(problem.message.contains("no volume group vg0: one of this name is on /dev/nosuch2, "), "{problem}");
    }

    #[test]
    fn the_disk_under_the_group_is_named() {
        let device = |name: &str, under: &[&str]| {
            let under = under.iter().map(|name| (*name).to_owned()).collect();
            ActiveDevice { name: name.into(), under, ..ActiveDevice::default() }
        };
        let devices =
            vec![device("md127", &["sdc1"]), device("sdc1", &["sdc"]), device("sdc", &[]), device("sdb", &[])];
        let active = Active { devices, ..Active::default() };
        for (path, words) in [
            ("/dev/md127", "on /dev/md127 of disk sdc, "),
            ("/dev/sdb", "on /dev/sdb of disk sdb, "),
            ("/dev/md/x", "on /dev/md/x, "),
        ] {
            let problem = refused("vg0", path, &active).problem;
            assert!(problem.message.contains(words), "{problem}");
        }
    }
}
