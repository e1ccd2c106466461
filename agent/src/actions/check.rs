//! Before the first action that destroys data: would the actions after it begin? What they fetch answers, their disks are
//! there, their images fit, and the tools layer is mounted for those that need it. Nothing is written.

use std::{io::Read as _, path::Path};

use landfall_api::message::{ActionKind, ActionRef, AssignedAction};
use landfall_api::{
    Digest, DiskSelector, ErrorCode, FileSource, HealthTest, InstallBootloaderSpec, LoaderSpec, PartitionRole, Problem,
    TableSpec, UnpackSource,
};
use landfall_disk::{Access, ProvenFile, Unobserved, WriteError, container_image, root_layers};

use super::chosen_disk::{changes, list, one};
use super::installed_root::may_act;
use super::write_file::MAX_DOWNLOAD;
use super::{Machine, final_failure, grow_root, health_test, secure_boot, unpack, wipe, write_image};
use crate::runner::{Failure, Job};
use crate::worker;

/// Checks every other action of the list that is still to run; `job` checks itself before its own first write.
pub(super) fn the_rest(machine: &Machine, job: &Job) -> Result<(), Failure> {
    all_but(Some(job.action.action_index as usize), machine, job)
}

/// Checks every action of the list.
pub(super) fn all(machine: &Machine, job: &Job) -> Result<(), Failure> {
    all_but(None, machine, job)
}

fn all_but(own: Option<usize>, machine: &Machine, job: &Job) -> Result<(), Failure> {
    let first = job.run.start_index as usize;
    for (index, action) in job.run.actions.iter().enumerate().skip(first).filter(|(index, _)| Some(*index) != own) {
        may_act(job)?;
        let action_index = u32::try_from(index).unwrap_or(u32::MAX);
        let reference = ActionRef { action_index, ..job.action };
        let checked = Job { action: reference, kind: action.kind.clone(), ..job.clone() };
        let before = job.run.actions.get(first..index).unwrap_or_default();
        if let Err(failure) = one_action(machine, &checked, before) {
            // Why it was stopped, if it was.
            may_act(job)?;
            return Err(named(failure, &action.name));
        }
    }
    Ok(())
}

fn one_action(machine: &Machine, job: &Job, before: &[AssignedAction]) -> Result<(), Failure> {
    match &job.kind {
        // Its BMC may be busy, or its driver still be loading.
        ActionKind::BmcAccount(_) => Ok(()),
        ActionKind::CloudInit(spec) => is_there(spec.disk.as_ref()),
        ActionKind::EfiBoot(spec) => is_there(spec.disk.as_ref()),
        ActionKind::Exec(spec) => is_there(spec.disk.as_ref()),
        ActionKind::GrowRoot(spec) => {
            grow_root::check(job, spec, &list()?)?;
            worker::ready(job, &|| may_act(job))
        }
        // A person lets it go on.
        ActionKind::Hold(_) => Ok(()),
        // A call may have an effect, so it is not tried.
        ActionKind::Http(_) => Ok(()),
        // As of a wipe.
        ActionKind::HealthTest(_) if before.iter().any(|action| is_destructive(&action.kind)) => Ok(()),
        ActionKind::HealthTest(test) => health_test::check(machine, job, test),
        ActionKind::Identity(spec) => {
            is_there(spec.disk.as_ref())?;
            worker::ready(job, &|| may_act(job))
        }
        ActionKind::Ignition(spec) => is_there(spec.disk.as_ref()),
        ActionKind::InstallBootloader(spec) => {
            is_there(spec.disk.as_ref())?;
            let uefi = Path::new("/sys/firmware/efi").is_dir();
            can_load(spec, uefi)?;
            started_by(spec, before, uefi)?;
            worker::ready(job, &|| may_act(job))
        }
        ActionKind::Kexec(spec) => is_there(spec.disk.as_ref()),
        ActionKind::PowerOff(_) => Ok(()),
        ActionKind::Reboot(_) => Ok(()),
        ActionKind::RunContainer(spec) => {
            for device in &spec.devices {
                is_there(Some(&device.disk))?;
            }
            is_there(spec.disk.as_ref())?;
            worker::ready(job, &|| may_act(job))?;
            let image = container_image(&spec.image, &spec.access, &Unobserved, &job.cancel);
            image.map(drop).map_err(|e| unfetched(&e))
        }
        ActionKind::SecureBoot(spec) => secure_boot::check(job, spec),
        ActionKind::Storage(spec) => {
            for selector in spec.selectors() {
                is_there(Some(selector))?;
            }
            worker::ready(job, &|| may_act(job))
        }
        ActionKind::Unpack(spec) => {
            is_there(spec.disk.as_ref())?;
            unpack::check(job, spec, &list()?)?;
            worker::ready(job, &|| may_act(job))?;
            let access = &spec.access;
            match &spec.source {
                UnpackSource::Archive { url, digest } => answers(job, url, *digest, access, u64::MAX),
                UnpackSource::Image { url } => {
                    root_layers(url, access, &Unobserved, &job.cancel).map(drop).map_err(|e| unfetched(&e))
                }
            }
        }
        // What is waited for need not be there yet.
        ActionKind::Wait(_) => Ok(()),
        // An earlier action may write what this one clears.
        ActionKind::Wipe(_) if before.iter().any(|action| is_destructive(&action.kind)) => Ok(()),
        ActionKind::Wipe(spec) => wipe::check(machine, job, spec),
        ActionKind::WriteFile(spec) => {
            is_there(spec.disk.as_ref())?;
            match &spec.source {
                FileSource::Download { url, digest } => answers(job, url, *digest, &Access::default(), MAX_DOWNLOAD),
                FileSource::Content(_) => Ok(()),
            }
        }
        ActionKind::WriteImage(spec) => write_image::check(machine, job, spec, |disk, disks| {
            before.iter().any(|action| changes(action, disk, disks))
        }),
    }
}

/// The firmware can start the loader.
fn can_load(spec: &InstallBootloaderSpec, uefi: bool) -> Result<(), Failure> {
    if spec.loader == LoaderSpec::Grub || !spec.firmware.bios(uefi) {
        return Ok(());
    }
    let message = "systemd-boot does not start from a BIOS, and a BIOS started this machine";
    let hint = "write loader: grub, or firmware: uefi if its next start is to be by UEFI";
    Err(final_failure(Problem::new(ErrorCode::InvalidTemplate, message).hint(hint)))
}

/// The layout that a boot loader goes to has what the firmware starts from.
fn started_by(spec: &InstallBootloaderSpec, before: &[AssignedAction], uefi: bool) -> Result<(), Failure> {
    let layouts = before.iter().rev().filter_map(|action| match &action.kind {
        ActionKind::Storage(storage) => Some(&storage.layout),
        _ => None,
    });
    let Some(layout) = layouts.filter(|_| spec.disk.is_none()).find(|layout| layout.mounts_root()) else {
        return Ok(());
    };
    let has = |role| layout.disks.iter().flat_map(|disk| &disk.partitions).any(|part| part.role() == role);
    let old = layout.disks.iter().any(|disk| disk.table == TableSpec::Mbr);
    let missing = if spec.firmware.uefi(uefi) && !has(PartitionRole::Esp) {
        ("UEFI", PartitionRole::Esp)
    } else if spec.firmware.bios(uefi) && !has(PartitionRole::BiosBoot) && !old {
        ("a BIOS", PartitionRole::BiosBoot)
    } else {
        return Ok(());
    };
    let (firmware, role) = (missing.0, missing.1.as_str());
    let message = format!("the layout has no partition with role: {role}, from which {firmware} starts");
    let hint = "add one to the storage action, or name the other firmware in installBootloader";
    Err(final_failure(Problem::new(ErrorCode::InvalidTemplate, message).hint(hint)))
}

/// Whether an action destroys data.
pub(super) const fn is_destructive(kind: &ActionKind) -> bool {
    match kind {
        ActionKind::WriteImage(_) | ActionKind::Wipe(_) | ActionKind::Storage(_) => true,
        ActionKind::RunContainer(spec) => !spec.devices.is_empty(),
        ActionKind::HealthTest(test) => matches!(test, HealthTest::Disks { write: true, .. }),
        _ => false,
    }
}

/// The disk that a field `disk` selects is present. Without that field it is one that the workflow writes.
fn is_there(selector: Option<&DiskSelector>) -> Result<(), Failure> {
    selector.map_or(Ok(()), |selector| one(selector, &list()?).map(drop))
}

/// The file's server answers and begins to send it.
fn answers(job: &Job, url: &str, digest: Digest, access: &Access, limit: u64) -> Result<(), Failure> {
    let file = ProvenFile::open_by(url, access, digest, limit, &Unobserved, &job.cancel);
    let mut file = file.map_err(|e| unfetched(&e))?;
    let Err(error) = file.read(&mut [0]) else { return Ok(()) };
    let unknown = || final_failure(Problem::new(ErrorCode::SourceUnreachable, error.to_string()).at(url));
    Err(file.into_failure().map_or_else(unknown, |e| unfetched(&e)))
}

fn unfetched(error: &WriteError) -> Failure {
    Failure { problem: error.problem(), retryable: error.retryable() }
}

fn named(failure: Failure, action: &str) -> Failure {
    let Failure { mut problem, retryable } = failure;
    problem.message = format!("nothing was written, because action {action} would fail: {}", problem.message);
    Failure { problem, retryable }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use landfall_api::{FirmwareSpec, StorageSpec, message::Retry};

    use super::*;

    #[test]
    fn systemd_boot_is_refused_on_a_bios() {
        let checked = |loader, firmware, uefi| {
            can_load(&InstallBootloaderSpec { loader, firmware, ..InstallBootloaderSpec::default() }, uefi).is_ok()
        };
        assert!(!checked(LoaderSpec::SystemdBoot, FirmwareSpec::Auto, false));
        assert!(checked(LoaderSpec::SystemdBoot, FirmwareSpec::Auto, true));
        assert!(checked(LoaderSpec::SystemdBoot, FirmwareSpec::Uefi, false));
        assert!(checked(LoaderSpec::Grub, FirmwareSpec::Auto, false));
    }

    #[test]
    fn a_layout_without_its_firmwares_partition_is_refused() {
        let after = |disks: serde_json::Value, firmware, uefi| {
            let layout: StorageSpec = serde_json::from_value(serde_json::json!({ "disks": disks })).unwrap();
            let second = Duration::from_secs(1);
            let retry = Retry { max_attempts: 1, initial_backoff: second, max_backoff: second };
            let kind = ActionKind::Storage(layout.resolved());
            let storage =
                AssignedAction { name: "disks".into(), timeout: second, retry, branch: None, when: None, kind };
            let spec = InstallBootloaderSpec { firmware, ..InstallBootloaderSpec::default() };
            started_by(&spec, &[storage], uefi).err().map(|failure| failure.problem.message)
        };
        let disk = |partitions: &str| serde_json::json!([{ "partitions": serde_json::from_str::<serde_json::Value>(partitions).unwrap() }]);
        let root = r#"[{"role": "root"}]"#;
        let both = r#"[{"role": "esp"}, {"role": "biosBoot"}, {"role": "root"}]"#;
        for uefi in [false, true] {
            assert_eq!(after(disk(both), FirmwareSpec::Both, uefi), None);
            let said = after(disk(root), FirmwareSpec::Auto, uefi).unwrap();
            assert!(said.contains(if uefi { "role: esp" } else { "role: biosBoot" }), "{said}");
        }
        let mut old = disk(root);
        old[0]["table"] = "mbr".into();
        assert_eq!(after(old, FirmwareSpec::Bios, true), None);
    }
}
