//! The judgement on an installed disk, made on the host: it is the image, whole, with tables that independent tools
//! accept.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use landfall_api::{ReceiptState, Workflow};
use landfall_disk::{Entry, RECEIPT_PLACE, RECEIPT_TYPE, Table};
use landfall_lab::Machine;

use super::raw::{Disk, first_difference};

const SECTOR: u32 = 512;

/// Requires that a disk holds the raw image `image`, written by this action of this workflow: both tables, every
/// partition byte for byte, the boot code, and a receipt that names disk, workflow and action.
pub(super) async fn require_image(
    machine: &Machine, disk: usize, image: &Path, workflow: &Workflow, action: u32,
) -> anyhow::Result<()> {
    let path = machine.disk(disk).path().to_owned();
    let image = image.to_owned();
    let serial = machine.spec().disks[disk].serial.clone();
    let run = workflow.metadata.uid.context("a workflow without a uid")?;
    // Hundreds of megabytes are read, on a thread that serves no other test.
    let judged = tokio::task::spawn_blocking(move || {
        same_content(&path, &image)?;
        valid_for_others(&path)?;
        let file = File::open(&path)?;
        let mark = landfall_disk::read_mark(&Disk::new(&file)?)?.context("there is no receipt")?;
        let receipt = &mark.receipt;
        ensure!(
            (receipt.workflow_uid, receipt.action_index, receipt.state) == (run, action, ReceiptState::Done),
            "the receipt is not that of action {action} of workflow {run}: {receipt:?}"
        );
        ensure!(mark.disk.serial == serial, "the receipt is that of disk {}, not of {serial}", mark.disk.serial);
        anyhow::Ok(())
    });
    judged.await?.with_context(|| format!("disk {disk} of {} ({:?})", machine.name(), machine.spec().disks[disk].bus))
}

/// Both copies of the table are valid, say the same, and lead to the image's partitions with the image's bytes.
fn same_content(disk: &Path, image: &Path) -> anyhow::Result<()> {
    let (disk, image) = (File::open(disk)?, File::open(image)?);
    let last = disk.metadata()?.len() / u64::from(SECTOR) - 1;
    let primary = Table::read(&Disk::new(&disk)?, 1, SECTOR).context("the primary table")?;
    let backup = Table::read(&Disk::new(&disk)?, last, SECTOR).context("the backup table at the disk's end")?;
    ensure!(primary.entries == backup.entries, "the two copies of the table differ");
    ensure!(primary.header.alternate_lba == last, "the primary table does not lead to the backup");
    let wanted = Table::read(&Disk::new(&image)?, 1, SECTOR).context("the image's table")?;
    ensure!(primary.header.disk_guid == wanted.header.disk_guid, "the disk has another identity than the image");
    let images_own = |table: &Table| table.used().filter(|e| e.kind != RECEIPT_TYPE).collect::<Vec<Entry>>();
    let partitions = images_own(&wanted);
    ensure!(images_own(&primary) == partitions, "the disk has other partitions than the image");
    ensure!(!partitions.is_empty(), "the image has no partitions");
    for partition in partitions {
        if let Some(at) = first_difference(&disk, &image, partition.bytes(SECTOR))? {
            bail!("partition {} differs from the image at byte {at}", partition.index + 1);
        }
    }
    // Boot code stands before the table of the old kind, and after the entries where there is room for it.
    let entries_end = (2 + primary.entries_sectors(SECTOR)) * u64::from(SECTOR);
    for range in [0..440, entries_end..RECEIPT_PLACE.start] {
        if let Some(at) = first_difference(&disk, &image, range)? {
            bail!("the boot code differs from the image at byte {at}");
        }
    }
    Ok(())
}

/// Checks with tools that share no code with ours.
fn valid_for_others(disk: &Path) -> anyhow::Result<()> {
    for (program, option, fine) in [("sgdisk", "-v", "No problems found"), ("sfdisk", "--verify", "No errors detected")]
    {
        let output = Command::new(program)
            .args([option.as_ref(), disk.as_os_str()])
            .env("LC_ALL", "C")
            .output()
            .with_context(|| format!("cannot run {program} (scripts/setup installs it)"))?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        ensure!(output.status.success() && said.contains(fine), "{program} {option} reports an error: {said}");
    }
    Ok(())
}
