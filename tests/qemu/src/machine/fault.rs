//! Disks that fail or hang while the machine runs: a filter of QEMU's (`blkdebug`, `throttle`) put between a disk and its
//! file, and taken away again.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::Machine;
use crate::{LabError, wait_event};

/// The kernel's number of an input/output error.
const EIO: u32 = 5;
/// `blkdebug` counts these, whatever the disk's own sectors are.
const SECTOR: u64 = 512;

/// What a disk answers with an input/output error, each time it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFault {
    /// Writes that touch the 512 bytes at this offset.
    Write(u64),
    /// Reads that touch the 512 bytes at this offset.
    Read(u64),
    /// Flushes.
    Flush,
}

impl DiskFault {
    fn rule(self) -> Value {
        let (kind, sector) = match self {
            Self::Write(at) => ("write", Some(at / SECTOR)),
            Self::Read(at) => ("read", Some(at / SECTOR)),
            Self::Flush => ("flush", None),
        };
        let mut rule = json!({ "event": "none", "iotype": kind, "errno": EIO, "once": false });
        if let Some(sector) = sector {
            rule["sector"] = sector.into();
        }
        rule
    }
}

impl Machine {
    /// From now on, until [`Machine::mend_disk`] or the end of this power-on, a disk fails in this way.
    ///
    /// # Errors
    /// [`LabError::Qmp`] if the machine is off, or the disk fails already.
    pub async fn fail_disk(&mut self, index: usize, fault: DiskFault) -> Result<(), LabError> {
        let [good, bad] = [node("disk", index), node("bad", index)];
        let filter = json!({ "driver": "blkdebug", "node-name": bad, "image": good, "inject-error": [fault.rule()] });
        self.on()?.command("blockdev-add", filter).await?;
        self.see_through(index, &bad).await
    }

    /// From now on, until the end of this power-on, a disk answers nothing: QEMU lets one byte a second through.
    ///
    /// # Errors
    /// [`LabError::Qmp`] if the machine is off, or the disk hangs or fails already.
    pub async fn hang_disk(&mut self, index: usize) -> Result<(), LabError> {
        let [good, slow, limits] = [node("disk", index), node("slow", index), node("limits", index)];
        let group = json!({ "qom-type": "throttle-group", "id": limits, "limits": { "bps-total": 1 } });
        self.on()?.command("object-add", group).await?;
        let filter = json!({ "driver": "throttle", "node-name": slow, "file": good, "throttle-group": limits });
        self.on()?.command("blockdev-add", filter).await?;
        self.see_through(index, &slow).await
    }

    /// Ends a disk's fault.
    ///
    /// # Errors
    /// [`LabError::Qmp`] if the machine is off, or the disk did not fail.
    pub async fn mend_disk(&mut self, index: usize) -> Result<(), LabError> {
        self.see_through(index, &node("disk", index)).await?;
        self.on()?.command("blockdev-del", json!({ "node-name": node("bad", index) })).await.map(drop)
    }

    /// The errors that its disks answer from now on; see [`DiskErrors::next`].
    ///
    /// # Errors
    /// [`LabError::Qmp`] if it is off.
    pub fn disk_errors(&mut self) -> Result<DiskErrors, LabError> {
        Ok(DiskErrors(self.on()?.events()))
    }

    async fn see_through(&mut self, index: usize, node: &str) -> Result<(), LabError> {
        let path = format!("/machine/peripheral/dev{index}");
        let change = json!({ "path": path, "property": "drive", "value": node });
        self.on()?.command("qom-set", change).await.map(drop)
    }
}

/// The errors that a machine's disks answer to its guest.
#[derive(Debug)]
pub struct DiskErrors(broadcast::Receiver<Value>);

impl DiskErrors {
    /// Waits for the next one.
    ///
    /// # Errors
    /// [`LabError::Timeout`], or [`LabError::Qmp`] if QEMU is gone.
    pub async fn next(&mut self, limit: Duration) -> Result<(), LabError> {
        wait_event(&mut self.0, "BLOCK_IO_ERROR", limit).await.map(drop)
    }
}

fn node(kind: &str, index: usize) -> String {
    format!("{kind}{index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_read_and_write_faults_name_a_sector() {
        let rule = DiskFault::Write(51_200).rule();
        assert_eq!((&rule["iotype"], &rule["sector"], &rule["errno"]), (&json!("write"), &json!(100), &json!(5)));
        assert_eq!(DiskFault::Flush.rule()["sector"], Value::Null);
    }
}
