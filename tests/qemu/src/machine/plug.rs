//! Disks and a port that are plugged into a machine, or out of it, while it runs; and what its firmware tries at the next start.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use super::arguments::PORT_SLOT;
use super::{DiskBus, DiskSpec, Machine, Medium, NicSpec, Plug};
use crate::{DiskImage, LabError, Network, wait_event};

impl Machine {
    /// Plugs in one more blank SCSI disk, which stays for later power-ons; its index. The machine needs a SCSI disk from the
    /// start: the new one is on the same bus.
    ///
    /// # Errors
    /// [`LabError::Qmp`] if the machine is off or has no SCSI bus.
    pub async fn plug_disk(&mut self, bytes: u64) -> Result<usize, LabError> {
        let at = self.disks.len();
        let path = self.dir.join(format!("disk{at}.raw"));
        let image = DiskImage::create(&path, bytes)?;
        let serial = format!("{}-{at}", self.spec.serial);
        let qmp = self.on()?;
        let (file, disk) = (format!("file{at}"), format!("disk{at}"));
        let node = json!({ "driver": "file", "node-name": file, "filename": path, "discard": "unmap" });
        qmp.command("blockdev-add", node).await?;
        qmp.command("blockdev-add", json!({ "driver": "raw", "node-name": disk, "file": file, "discard": "unmap" }))
            .await?;
        let device = json!({
            "driver": "scsi-hd", "id": format!("dev{at}"), "bus": "scsi.0", "channel": 0, "scsi-id": at, "lun": 0,
            "drive": disk, "serial": serial,
        });
        qmp.command("device_add", device).await?;
        self.spec.disks.push(DiskSpec {
            bytes,
            bus: DiskBus::Scsi,
            serial,
            sector: 512,
            failing: false,
            recorded: false,
            removable: false,
            pulled: false,
            first: false,
            path_to: None,
        });
        self.disks.push(image);
        Ok(at)
    }

    /// Takes a disk out for good, as seen from the next power-on. Its file and its number stay.
    pub fn pull_disk(&mut self, index: usize) {
        if let Some(disk) = self.spec.disks.get_mut(index) {
            disk.pulled = true;
        }
    }

    /// Takes a disk out, see [`MachineBuilder::removable`](super::MachineBuilder::removable), and returns when the guest has
    /// let go of it. It is there again at the next power-on. `limit` is what that may take under KVM.
    ///
    /// # Errors
    /// [`LabError::Qmp`] if the machine is off or the disk sits in no slot, [`LabError::Timeout`].
    pub async fn unplug_disk(&mut self, index: usize, limit: Duration) -> Result<(), LabError> {
        let (device, limit) = (format!("dev{index}"), limit * self.accel.patience());
        let qmp = self.on()?;
        let mut events = qmp.events();
        qmp.command("device_del", json!({ "id": device })).await?;
        // The parts of a device have an event each; only its own names it.
        while wait_event(&mut events, "DEVICE_DELETED", limit).await?["data"]["device"] != json!(device) {}
        Ok(())
    }
}

/// Moves a disk to the first slot, as seen from the next power-on: the kernel's names change.
pub fn put_first(machine: &mut Machine, index: usize) {
    for (n, disk) in machine.spec.disks.iter_mut().enumerate() {
        disk.first = n == index;
    }
}

/// Whether the firmware tries the network, before the disks, as seen from the next power-on. Without it the firmware has no way to
/// the network at all: one whose disk is empty would go on to it otherwise.
pub fn set_netboot(machine: &mut Machine, netboot: bool) {
    machine.spec.netboot = netboot;
}

/// Puts a CD in, or takes it out, as seen from the next power-on. It is the first thing that the firmware starts.
pub(crate) fn set_cd(machine: &mut Machine, file: Option<PathBuf>) {
    machine.spec.medium = file.map(|file| (file, Medium::Cd));
}

/// Plugs one more virtio port into the slot of [`Extra::PortSlot`](super::Extra::PortSlot), and its cable into the network. It stays
/// for later power-ons.
///
/// # Errors
/// [`LabError::Qmp`] if the machine is off or has no empty slot.
pub async fn plug_nic(machine: &mut Machine, network: &Network) -> Result<(), LabError> {
    let no_slot = || LabError::Qmp { command: "device_add".into(), message: "there is no empty slot".into() };
    let mac = machine.spec.port_slot.take().ok_or_else(no_slot)?;
    let (net, tap) = (format!("net{}", machine.spec.nics.len()), network.add_tap(Network::BRIDGE)?);
    let qmp = machine.on()?;
    let cable = json!({ "type": "tap", "id": net, "ifname": tap, "script": "no", "downscript": "no" });
    qmp.command("netdev_add", cable).await?;
    let port = json!({ "driver": "virtio-net-pci", "bus": PORT_SLOT, "netdev": net, "mac": mac, "romfile": "" });
    qmp.command("device_add", port).await?;
    machine.spec.nics.push(NicSpec { mac, plug: Plug::Lab, card: None });
    machine.taps.push(tap);
    Ok(())
}
