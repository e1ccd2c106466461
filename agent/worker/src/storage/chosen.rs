//! The disks that the selectors of a layout choose.

use landfall_api::{DiskFacts, Storage, message::WorkerJob};
use landfall_disk::{Disk, SelectionGuard, list_disks};

use crate::Failure;

/// One for each selector, in their order. The agent chose by the same facts before it started this worker.
pub(super) fn disks(job: &WorkerJob, storage: &Storage) -> Result<Vec<DiskFacts>, Failure> {
    let chosen = storage.selectors().map(|selector| Disk::select(selector, &job.disks).cloned());
    chosen.map(|disk| disk.map_err(|error| Failure::last(error.problem()))).collect()
}

/// Whether the machine still has the disks that it had when these were chosen, by the same names, and no others.
pub(crate) fn guard(job: &WorkerJob) -> SelectionGuard {
    let known = job.disks.clone();
    SelectionGuard::new(move || {
        let now = list_disks().map_err(|error| error.to_string())?;
        same(&known, &now)
    })
}

fn same(known: &[DiskFacts], now: &[DiskFacts]) -> Result<(), String> {
    // A disk may have none of the latter two, and keeps those that it has.
    let who =
        |disk: &DiskFacts| (disk.id.name.clone(), disk.id.size_bytes, disk.id.wwn.clone(), disk.id.serial.clone());
    let lacks = |disks: &[DiskFacts], disk: &DiskFacts| disks.iter().all(|other| who(other) != who(disk));
    let (gone, new) = (known.iter().find(|disk| lacks(now, disk)), now.iter().find(|disk| lacks(known, disk)));
    match (gone, new) {
        (Some(disk), _) => Err(format!("disk {} has gone", disk.id.name)),
        (None, Some(disk)) => Err(format!("disk {} has appeared", disk.id.name)),
        (None, None) => Ok(()),
    }
}

/// The item of the layout's `disks` that the disk number `n` belongs to.
pub(super) fn item(storage: &Storage, n: usize) -> usize {
    let items = storage.layout.disks.iter().enumerate();
    let mut of = items.flat_map(|(item, layout)| layout.select.iter().map(move |_| item));
    of.nth(n).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use landfall_api::DiskId;

    use super::*;

    #[test]
    fn another_set_of_disks_voids_the_choice() {
        let disk = |name: &str, serial: &str, size_bytes| DiskFacts {
            id: DiskId { name: name.into(), serial: serial.into(), size_bytes, ..DiskId::default() },
            ..DiskFacts::default()
        };
        let known = [disk("sda", "A", 1), disk("sdb", "B", 1)];
        for (now, says) in [
            (vec![disk("sdb", "B", 1), disk("sda", "A", 1)], Ok(())),
            (vec![disk("sda", "A", 1)], Err("disk sdb has gone")),
            (vec![disk("sda", "A", 1), disk("sdb", "B", 1), disk("sdc", "C", 1)], Err("disk sdc has appeared")),
            (vec![disk("sda", "B", 1), disk("sdb", "A", 1)], Err("disk sda has gone")),
            (vec![disk("sda", "A", 1), disk("sdb", "B", 2)], Err("disk sdb has gone")),
        ] {
            assert_eq!(same(&known, &now), says.map_err(str::to_owned), "{now:?}");
        }
    }
}
