//! Disks that fail or hang while the machine runs: a filter of QEMU's (`blkdebug`, `throttle`) put between a disk and its
//! file, and taken away again.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::Machine;
use crate::{LabError, Log, Mark, wait_event};

/// The kernel's numbers of an input/output error, and of a device that is full.
const EIO: u32 = 5;
const ENOSPC: u32 = 28;
/// QEMU's name of the line in its log for each error that an NVMe disk answers.
pub(super) const NVME_ERROR: &str = "pci_nvme_err_aio";
/// `blkdebug` counts these, whatever the disk's own sectors are.
const SECTOR: u64 = 512;

/// What a disk answers with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskFault {
    /// `blkdebug`'s names of the requests.
    requests: &'static [&'static str],
    /// Only where they touch the 512 bytes at this offset.
    at: Option<u64>,
    errno: u32,
    once: bool,
}

impl DiskFault {
    const fn of(requests: &'static [&'static str], at: Option<u64>) -> Self {
        Self { requests, at, errno: EIO, once: false }
    }

    /// An input/output error for each write that touches the 512 bytes at this offset.
    pub const fn write(at: u64) -> Self {
        Self::of(&["write"], Some(at))
    }

    /// The same for reads.
    pub const fn read(at: u64) -> Self {
        Self::of(&["read"], Some(at))
    }

    /// The same for each flush.
    pub const fn flush() -> Self {
        Self::of(&["flush"], None)
    }

    /// The same for each request to discard or zero a range without data.
    pub const fn discard() -> Self {
        Self::of(&["discard", "write-zeroes"], None)
    }

    /// Only the first such request fails.
    #[must_use]
    pub const fn once(self) -> Self {
        Self { once: true, ..self }
    }

    /// The error is that the device is full.
    #[must_use]
    pub const fn no_space(self) -> Self {
        Self { errno: ENOSPC, ..self }
    }

    fn rules(self) -> Vec<Value> {
        let rule = |kind: &&str| {
            let mut rule = json!({ "event": "none", "iotype": kind, "errno": self.errno, "once": self.once });
            if let Some(at) = self.at {
                rule["sector"] = (at / SECTOR).into();
            }
            rule
        };
        self.requests.iter().map(rule).collect()
    }
}

impl Machine {
    /// From now on, until [`Machine::mend_disk`] or the end of this power-on, a disk fails in this way.
    ///
    /// # Errors
    /// [`LabError::Qmp`] if the machine is off, or the disk fails already.
    pub async fn fail_disk(&mut self, index: usize, fault: DiskFault) -> Result<(), LabError> {
        let [good, bad] = [node("disk", index), node("bad", index)];
        let filter = json!({ "driver": "blkdebug", "node-name": bad, "image": good, "inject-error": fault.rules() });
        self.on()?.command("blockdev-add", filter).await?;
        self.see_through(index, &bad).await
    }

    /// From now on, until [`Machine::mend_disk`] or the end of this power-on, a disk answers nothing: QEMU lets one byte a
    /// second through. Linux resets an NVMe controller after a minute of that, and then QEMU 7.2 stands still for ever.
    ///
    /// # Errors
    /// [`LabError::Qmp`] if the machine is off, or the disk hangs or fails already.
    pub async fn hang_disk(&mut self, index: usize) -> Result<(), LabError> {
        let [good, bad, limits] = [node("disk", index), node("bad", index), node("limits", index)];
        let group = json!({ "qom-type": "throttle-group", "id": limits, "limits": { "bps-total": 1 } });
        self.on()?.command("object-add", group).await?;
        let filter = json!({ "driver": "throttle", "node-name": bad, "file": good, "throttle-group": limits });
        self.on()?.command("blockdev-add", filter).await?;
        self.see_through(index, &bad).await
    }

    /// Ends a disk's fault; one that hangs answers again.
    ///
    /// # Errors
    /// [`LabError::Qmp`] if the machine is off, or the disk neither failed nor hung.
    pub async fn mend_disk(&mut self, index: usize) -> Result<(), LabError> {
        self.see_through(index, &node("disk", index)).await?;
        self.on()?.command("blockdev-del", json!({ "node-name": node("bad", index) })).await?;
        // Only a disk that hung has limits.
        let _ = self.on()?.command("object-del", json!({ "id": node("limits", index) })).await;
        Ok(())
    }

    /// The errors that its disks answer from now on; see [`DiskErrors::next`].
    ///
    /// # Errors
    /// [`LabError::Qmp`] if it is off.
    pub fn disk_errors(&mut self) -> Result<DiskErrors, LabError> {
        let (log, mark) = (self.qemu_log.clone(), self.qemu_log.mark());
        Ok(DiskErrors { events: self.on()?.events(), log, mark })
    }

    async fn see_through(&mut self, index: usize, node: &str) -> Result<(), LabError> {
        let path = format!("/machine/peripheral/dev{index}");
        let change = json!({ "path": path, "property": "drive", "value": node });
        self.on()?.command("qom-set", change).await.map(drop)
    }
}

/// The errors that a machine's disks answer to its guest.
#[derive(Debug)]
pub struct DiskErrors {
    events: broadcast::Receiver<Value>,
    /// QEMU's own, and where it was read to.
    log: Log,
    mark: Mark,
}

impl DiskErrors {
    /// Waits for the next one.
    ///
    /// # Errors
    /// [`LabError::Timeout`], or [`LabError::Qmp`] if QEMU is gone.
    pub async fn next(&mut self, limit: Duration) -> Result<(), LabError> {
        tokio::select! {
            event = wait_event(&mut self.events, "BLOCK_IO_ERROR", limit) => event.map(drop),
            found = self.log.wait_line(self.mark, NVME_ERROR, limit, |line| line.contains(NVME_ERROR)) => {
                self.mark = self.log.mark();
                found.map(drop)
            }
        }
    }
}

fn node(kind: &str, index: usize) -> String {
    format!("{kind}{index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_becomes_rules_for_its_requests() {
        let [rule] = &DiskFault::write(51_200).rules()[..] else { panic!() };
        assert_eq!((&rule["iotype"], &rule["sector"], &rule["errno"]), (&json!("write"), &json!(100), &json!(5)));
        assert_eq!((&rule["once"], &DiskFault::flush().rules()[0]["sector"]), (&json!(false), &Value::Null));
        let once = DiskFault::discard().once().no_space().rules();
        assert_eq!((once.len(), &once[1]["errno"], &once[1]["once"]), (2, &json!(28), &json!(true)));
    }
}
