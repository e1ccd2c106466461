//! The disks that a container may write: chosen, authorised, and given back.

use std::{fs, path::Path};

use landfall_api::{ErrorCode, Problem, RunContainer};
use landfall_disk::{Disk, LendRequest, Lent, WriteError, lend, take_back};
use nix::sys::stat::makedev;

use super::plan::Node;
use crate::{Context, Failure, Reporter, storage};

/// Every disk that the template names; nothing is changed.
pub(super) fn lend_all(context: &Context<'_>, spec: &RunContainer) -> Result<Vec<Lent>, Failure> {
    let job = context.job;
    let mut all: Vec<Lent> = Vec::new();
    for device in &spec.devices {
        let disk = Disk::select(&device.disk, &job.disks).cloned();
        let disk = disk.map_err(|error| Failure::last(error.problem()))?;
        if all.iter().any(|lent| lent.disk.id.same_disk(&disk.id)) {
            let message = format!("two devices of the container are the disk {}", disk.id.name);
            let hint = "select each by facts that only it has, such as serial";
            return Err(Failure::last(Problem::new(ErrorCode::AmbiguousDisk, message).hint(hint).at(&device.path)));
        }
        let authority = context.authority(storage::guard(job));
        let request = LendRequest { disk, authority, earlier_runs: job.assignment.earlier_runs.clone() };
        all.push(lend(&request, context.report).map_err(|e| failed(&e))?);
    }
    Ok(all)
}

/// The block devices of the container: each disk under its name, and its partitions.
pub(super) fn nodes(spec: &RunContainer, all: &[Lent], sys: &Path) -> Vec<Node> {
    let of_disk = |(device, lent): (&landfall_api::ContainerDevice, &Lent)| {
        let name = device.path.trim_start_matches("/dev/").to_owned();
        let mut nodes = vec![Node { name: name.clone(), number: lent.number }];
        let entries = fs::read_dir(sys.join("block").join(&lent.disk.id.name)).into_iter().flatten().flatten();
        nodes.extend(entries.filter_map(|entry| partition(&name, &entry.path())));
        nodes
    };
    spec.devices.iter().zip(all).flat_map(of_disk).collect()
}

fn partition(disk: &str, folder: &Path) -> Option<Node> {
    let number: u32 = fs::read_to_string(folder.join("partition")).ok()?.trim().parse().ok()?;
    let device = fs::read_to_string(folder.join("dev")).ok()?;
    let (major, minor) = device.trim().split_once(':')?;
    Some(Node { name: format!("{disk}{number}"), number: makedev(major.parse().ok()?, minor.parse().ok()?) })
}

/// Flushes them all and looks whether what must stay stayed; `ended` is how the program ended. A disk that it spoiled counts for
/// more than that the program failed, which might be tried again.
pub(super) fn take_all_back(ended: Result<(), Failure>, all: &[Lent], report: &Reporter) -> Result<(), Failure> {
    let back = |lent: &Lent| take_back(&lent.disk, lent.mark.as_ref(), report).err();
    all.iter().filter_map(back).collect::<Vec<_>>().iter().rev().fold(ended, |before, error| {
        let mut failure = failed(error);
        if let Err(before) = before {
            failure.problem.causes.push(before.problem.to_string());
            failure.retryable &= before.retryable;
        }
        Err(failure)
    })
}

fn failed(error: &WriteError) -> Failure {
    Failure { problem: error.problem(), retryable: error.retryable() }
}

#[cfg(test)]
mod tests {
    use landfall_api::{ContainerDevice, DiskFacts, DiskId, DiskSelector};

    use super::*;
    use crate::testing::container;

    #[test]
    fn a_failing_program_hides_no_lost_receipt() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(8 << 20).unwrap();
        let disk = landfall_disk::disk_at(file.path()).unwrap();
        let receipt = landfall_api::Receipt {
            machine_uid: uuid::Uuid::nil(),
            workflow_uid: uuid::Uuid::nil(),
            workflow_name: "w".into(),
            generation: 1,
            action_index: 0,
            image_digest: None,
            state: landfall_api::ReceiptState::Done,
            written_at: "2026-01-01T00:00:00Z".parse().unwrap(),
        };
        let mark = Some(landfall_api::DiskReceipt { disk: disk.id.clone(), receipt });
        let report = Reporter::new(std::io::sink());
        let ended = || Err(Failure::passing(Problem::new(ErrorCode::ProgramFailed, "ended with exit code 3")));
        let marked = [Lent { disk: disk.clone(), number: 0, mark, held: None }];
        let Failure { problem, retryable } = take_all_back(ended(), &marked, &report).unwrap_err();
        assert_eq!((problem.code, retryable), (ErrorCode::ReceiptMismatch, false), "{problem}");
        assert!(problem.causes.iter().any(|cause| cause.contains("exit code 3")), "{problem:?}");
        take_all_back(Ok(()), &marked, &report).unwrap_err();
        let blank = [Lent { disk, number: 0, mark: None, held: None }];
        assert_eq!(take_all_back(ended(), &blank, &report), ended());
        take_all_back(Ok(()), &blank, &report).unwrap();
    }

    #[test]
    fn partitions_have_the_name_of_their_disk() {
        let sys = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = sys.path().join("block").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("nvme0n1/nvme0n1p12/partition", "12\n");
        put("nvme0n1/nvme0n1p12/dev", "259:13\n");
        put("nvme0n1/queue/rotational", "0\n");
        let id = DiskId { name: "nvme0n1".into(), ..DiskId::default() };
        let lent =
            Lent { disk: DiskFacts { id, ..DiskFacts::default() }, number: makedev(259, 1), mark: None, held: None };
        let device = ContainerDevice { disk: DiskSelector::default(), path: "/dev/target".into() };
        let spec = RunContainer { devices: vec![device], ..container() };
        let nodes = nodes(&spec, &[lent], sys.path());
        let named = |name: &str, minor| Node { name: name.into(), number: makedev(259, minor) };
        assert_eq!(nodes, [named("target", 1), named("target12", 13)]);
    }
}
