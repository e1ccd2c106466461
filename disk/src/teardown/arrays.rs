//! Whether the arrays that stand on disks have all their members.

use std::{collections::BTreeSet, fs, io, path::Path};

use landfall_api::DiskFacts;

use super::{Active, active_devices, stops::standing};

/// Each array on these disks that works with fewer members than it was made of, as a sentence. One that is built or repaired at
/// the moment has them all.
///
/// # Errors
/// What is active cannot be read.
pub fn lacking_arrays(disks: &[DiskFacts]) -> io::Result<Vec<String>> {
    let names: Vec<&str> = disks.iter().map(|disk| disk.id.name.as_str()).collect();
    Ok(lacking_in(Path::new("/sys/block"), &active_devices()?, &names))
}

fn lacking_in(block: &Path, active: &Active, disks: &[&str]) -> Vec<String> {
    let arrays: BTreeSet<&str> = match standing(active, disks) {
        Ok((_, upwards)) => upwards.iter().map(|device| device.name.as_str()).collect(),
        // What stood there changes at this moment; the next look sees it.
        Err(_) => BTreeSet::new(),
    };
    arrays.into_iter().filter_map(|array| lacking(&block.join(array).join("md"), array)).collect()
}

/// The kernel's Documentation/admin-guide/md.rst: `raid_disks`, and a link `rdN` for each member that has its place.
fn lacking(md: &Path, array: &str) -> Option<String> {
    let wanted: u32 = fs::read_to_string(md.join("raid_disks")).ok()?.trim().parse().ok()?;
    let there = (0..wanted).filter(|n| md.join(format!("rd{n}")).exists()).count();
    let faulty =
        |name: &str| fs::read_to_string(md.join(name).join("state")).is_ok_and(|state| state.contains("faulty"));
    let mut failed: Vec<String> = fs::read_dir(md)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("dev-") && faulty(name))
        .map(|name| name.replacen("dev-", "", 1))
        .collect();
    failed.sort();
    let failed = if failed.is_empty() { String::new() } else { format!("; failed: {}", failed.join(", ")) };
    (there < wanted as usize).then(|| format!("array {array} works with {there} of {wanted} members{failed}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ActiveDevice;

    #[test]
    fn only_an_array_without_a_member_lacks_one() {
        let block = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = block.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("md127/md/raid_disks", "2\n");
        put("md127/md/dev-sda2/state", "in_sync\n");
        put("md127/md/dev-sdb2/state", "spare\n");
        put("md127/md/rd0/state", "in_sync\n");
        put("md127/md/rd1/state", "spare\n");
        let device = |name: &str, under: &[&str]| {
            let under = under.iter().map(|name| (*name).to_owned()).collect();
            ActiveDevice { name: name.into(), under, ..ActiveDevice::default() }
        };
        let devices = vec![
            device("md127", &["sda2", "sdb2"]),
            device("sda2", &["sda"]),
            device("sda", &[]),
            device("sdb2", &["sdb"]),
        ];
        let active = Active { devices, ..Active::default() };
        let lacks = |disks: &[&str]| lacking_in(block.path(), &active, disks);
        assert_eq!(lacks(&["sda", "sdb"]), [""; 0], "it is being built");
        put("md127/md/dev-sdb2/state", "faulty\n");
        fs::remove_dir_all(block.path().join("md127/md/rd1")).unwrap();
        assert_eq!(lacks(&["sda", "sdb"]), ["array md127 works with 1 of 2 members; failed: sdb2"]);
        assert_eq!(lacks(&["sdc"]), [""; 0], "another disk's");
    }
}
