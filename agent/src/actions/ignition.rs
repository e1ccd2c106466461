//! `ignition`: puts the config on the partition from which the installed system's Ignition reads it at its first start. Doing it
//! twice leaves what doing it once does.

use std::path::Path;

use landfall_api::{ErrorCode, Ignition, IgnitionResult, Problem, message::ActionResult};

use super::installed_root::{io, may_act, means_layout};
use super::{Machine, final_failure, system_disk};
use crate::rootfs::{Labelled, NotLabelled, Tree};
use crate::runner::{Failure, Job};

/// Labels of file systems, the most telling first, and where the Ignition of the systems that have them looks: openSUSE MicroOS
/// and SLE Micro (`ignition-setup-user.sh` of their package); Flatcar (`ignition-setup.sh` of its bootengine); Fedora CoreOS and
/// RHEL CoreOS (`coreos-ignition-setup-user.sh` of fedora-coreos-config), whose label is many other systems' too.
const PLACES: [(&str, &str); 3] =
    [("ignition", "/ignition/config.ign"), ("OEM", "/config.ign"), ("boot", "/ignition/config.ign")];

/// Of Fedora CoreOS: the boot loader asks the kernel for a first start while this file is there. Its images have it; a system
/// that has started once has not.
const FIRST_START: (&str, &str) = ("boot", "/ignition.firstboot");

/// Where the partition is mounted meanwhile; the path contains the action's index, because branches run at the same time.
const MOUNT_POINT: &str = "/run/landfall/ignition";

/// Writes the config.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &Ignition) -> Result<ActionResult, Failure> {
    if spec.disk.is_none() && means_layout(job) {
        let message = "a layout has no partition from which an installed system's Ignition reads";
        let hint = "write the disk image of a system that Ignition configures, or use cloudInit";
        return Err(final_failure(Problem::new(ErrorCode::InvalidTemplate, message).hint(hint)));
    }
    let disk = system_disk(machine, job, spec.disk.as_ref())?;
    may_act(job)?;
    let at = format!("{MOUNT_POINT}-{}", job.action.action_index);
    let opened = Labelled::open(&disk, &PLACES.map(|(label, _)| label), Path::new(&at), &|| may_act(job).is_err());
    // Also if it found nothing because it was stopped.
    may_act(job)?;
    let partition = opened.map_err(|e| not_found(&e, &disk.name))?;
    let device = partition.device();
    let (label, path) = PLACES.get(partition.label).copied().unwrap_or(PLACES[0]);
    let tree = partition.tree().map_err(|e| io(&e, &device))?;
    write(&tree, (label, path), spec, &device, &|| may_act(job))?;
    drop(tree);
    partition.close().map_err(|e| io(&e, &device))?;
    tracing::info!("the Ignition config is {path} of {device}");
    Ok(ActionResult::Ignition(IgnitionResult { device, path: path.to_owned() }))
}

fn write(
    tree: &Tree, (label, path): (&str, &str), spec: &Ignition, device: &str, may_act: &dyn Fn() -> Result<(), Failure>,
) -> Result<(), Failure> {
    may_act()?;
    tree.write(path, 0o600, spec.config.expose().as_bytes()).map_err(|e| io(&e, device))?;
    let (of, stamp) = FIRST_START;
    // What is there may set the network of the first start.
    if label == of && tree.read_text(stamp).map_err(|e| io(&e, device))?.is_none() {
        may_act()?;
        tree.write(stamp, 0o644, &b""[..]).map_err(|e| io(&e, device))?;
    }
    Ok(())
}

fn not_found(error: &NotLabelled, disk: &str) -> Failure {
    if matches!(error, NotLabelled::Mount { .. }) {
        return io(error, disk);
    }
    let hint = "write the image of a system that Ignition configures (Fedora CoreOS, RHEL CoreOS, Flatcar, openSUSE MicroOS), or \
                use cloudInit";
    final_failure(Problem::new(ErrorCode::InvalidTemplate, error.to_string()).hint(hint).at(disk))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::PathBuf;

    use landfall_api::SecretText;

    use super::*;

    fn spec(config: &str) -> Ignition {
        Ignition { config: SecretText::new(config), disk: None }
    }

    fn written(root: &Path, place: (&str, &str), config: &str) -> Result<(), Failure> {
        write(&Tree::open(root).unwrap(), place, &spec(config), "/dev/vda3", &|| Ok(()))
    }

    fn files(root: &Path) -> Vec<PathBuf> {
        let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
        let mut found: Vec<_> = fs::read_dir(root).unwrap().flat_map(|entry| below(entry.unwrap().path())).collect();
        found.sort();
        found
    }

    #[test]
    fn the_config_is_private_and_a_first_start_asked_for() {
        for (place, whole) in [(PLACES[0], 1), (PLACES[1], 1), (PLACES[2], 2)] {
            let root = tempfile::tempdir().unwrap();
            for config in ["{\"old\": 1}", "{}"] {
                written(root.path(), place, config).unwrap();
            }
            let config = root.path().join(place.1.trim_start_matches('/'));
            assert_eq!(fs::read_to_string(&config).unwrap(), "{}");
            assert_eq!(fs::metadata(&config).unwrap().mode() & 0o7777, 0o600, "{place:?}");
            assert_eq!(files(root.path()).len(), whole, "{place:?}");
            assert_eq!(root.path().join("ignition.firstboot").exists(), place.0 == "boot");
        }
    }

    #[test]
    fn a_stamp_that_is_there_stays_as_it_is() {
        let root = tempfile::tempdir().unwrap();
        let stamp = root.path().join("ignition.firstboot");
        fs::write(&stamp, "set ignition_network_kcmdline=ip=dhcp").unwrap();
        written(root.path(), PLACES[2], "{}").unwrap();
        assert!(fs::read_to_string(&stamp).unwrap().contains("ip=dhcp"));
    }

    #[test]
    fn no_link_of_the_partition_leads_out_of_it() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(outside.path(), root.path().join("ignition")).unwrap();
        written(root.path(), PLACES[2], "{}").unwrap_err();
        assert!(files(outside.path()).is_empty());
    }

    #[test]
    fn nothing_more_is_written_once_it_may_not_be() {
        for allowed in 0..2_usize {
            let root = tempfile::tempdir().unwrap();
            let left = Cell::new(allowed);
            let may_act = || match left.replace(left.get().saturating_sub(1)) {
                0 => Err(final_failure(Problem::new(ErrorCode::LeaseExpired, "over"))),
                _ => Ok(()),
            };
            let tree = Tree::open(root.path()).unwrap();
            let refused = write(&tree, PLACES[2], &spec("{\"geheim\": 1}"), "/dev/vda3", &may_act).unwrap_err();
            assert_eq!(refused.problem.code, ErrorCode::LeaseExpired);
            assert!(!format!("{refused:?}").contains("geheim"));
            assert_eq!(files(root.path()).len(), allowed);
        }
    }
}
