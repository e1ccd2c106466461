//! What a machine is made of.

use std::path::{Path, PathBuf};

use super::{Board, Card, DiskBus, Medium, Processors};
use crate::{Accel, Firmware, Keys, LabError, Machine, Network};

/// One disk.
#[derive(Debug, Clone)]
pub struct DiskSpec {
    /// Capacity, bytes.
    pub bytes: u64,
    /// How it is attached.
    pub bus: DiskBus,
    /// Serial number, at most 20 characters.
    pub serial: String,
    /// Bytes of a logical sector.
    pub sector: u32,
    /// Whether its SMART log says that it is degraded; NVMe alone.
    pub failing: bool,
    /// Whether QEMU records every write and flush in the order the guest made them, see [`crate::blklog`].
    pub recorded: bool,
    /// Whether it has a slot of its own, so that it can be unplugged, see [`Machine::unplug_disk`].
    pub removable: bool,
    /// Whether it was taken out, see [`Machine::pull_disk`].
    pub pulled: bool,
    /// Whether the machine finds it before the others, see [`put_first`](super::put_first).
    pub first: bool,
    /// It is a second path to the disk of this index: same content, same serial number, no world-wide name.
    pub path_to: Option<usize>,
}

/// One network port.
#[derive(Debug, Clone)]
pub struct NicSpec {
    /// MAC address, lower-case with colons.
    pub mac: String,
    /// Where its cable leads.
    pub plug: Plug,
    /// Its card; `None`: the machine's, see [`MachineSpec::card`].
    pub card: Option<Card>,
}

/// Where the cable of a network port leads.
#[derive(Debug, Clone)]
pub enum Plug {
    /// To the lab's network.
    Lab,
    /// To the lab's other network, see [`Network::island`].
    Island,
    /// Nowhere: there is no carrier.
    Nothing,
    /// To another machine.
    Cable(Cable),
}

/// One end of a cable between two machines. Frames are datagrams between two sockets, so it carries LACP, which a bridge does not
/// forward. There is always a carrier.
#[derive(Debug, Clone)]
pub struct Cable {
    /// The socket of this end.
    pub own: PathBuf,
    /// The socket of the other end.
    pub other: PathBuf,
}

impl Cable {
    /// Both ends of a cable with its sockets in `dir`.
    pub fn ends(dir: &Path, name: &str) -> [Self; 2] {
        let [a, b] = ["a", "b"].map(|end| dir.join(format!("{name}.{end}")));
        [Self { own: a.clone(), other: b.clone() }, Self { own: b, other: a }]
    }
}

/// What not every machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extra {
    /// See [`MachineSpec::ipv6`].
    Ipv6,
    /// See [`MachineSpec::watchdog`].
    Watchdog,
    /// See [`MachineSpec::tpm`] and [`MachineSpec::bmc`].
    TpmAndBmc,
    /// See [`MachineSpec::names_console`].
    NamedConsole,
    /// See [`MachineSpec::screen`].
    Screen,
    /// See [`MachineSpec::port_slot`].
    PortSlot,
}

/// A machine's parts.
#[derive(Debug, Clone)]
pub struct MachineSpec {
    /// Name, and the name of its directory.
    pub name: String,
    /// Firmware.
    pub firmware: Firmware,
    /// Board.
    pub board: Board,
    /// Memory, MiB.
    pub memory_mib: u32,
    /// Processors; of several sockets each has a NUMA node of its own, with its share of the memory.
    pub processors: Processors,
    /// Disks, in boot order after the network.
    pub disks: Vec<DiskSpec>,
    /// Whether QEMU makes the firmware's boot order, at each power-on anew. If not, the firmware's own variables decide, as in a
    /// server.
    pub qemu_orders: bool,
    /// Whether the firmware boots from HTTP and not by PXE.
    pub http_boot: bool,
    /// Whether its firmware tries the network at all, see [`set_netboot`](super::set_netboot).
    pub netboot: bool,
    /// Whether the firmware boots over IPv6 and not over IPv4; UEFI alone.
    pub ipv6: bool,
    /// The keys of Secure Boot; `None`: the firmware does not know it.
    pub secure_boot: Option<Keys>,
    /// Whether it has a watchdog, which resets it (Intel 6300ESB, 30 s).
    pub watchdog: bool,
    /// Whether it has a TPM 2.0 with a certificate of its endorsement key, see [`endorsement_key`](super::endorsement_key).
    pub tpm: bool,
    /// Whether it has a BMC, see [`BMC_ADDRESS`](super::BMC_ADDRESS).
    pub bmc: bool,
    /// What its hardware clock shows when it is switched on, as `1970-01-01T00:00:00`; `None`: the host's time.
    pub clock: Option<&'static str>,
    /// Whether it has a screen, a VGA card; otherwise its firmware writes to the serial console too.
    pub screen: bool,
    /// Whether the firmware names the serial console as the machine's (ACPI's table SPCR).
    pub names_console: bool,
    /// The card of every port.
    pub card: Card,
    /// Ports, in boot order.
    pub nics: Vec<NicSpec>,
    /// The address of the port that can be plugged into its empty slot, see [`plug_nic`](super::plug_nic).
    pub port_slot: Option<String>,
    /// SMBIOS system UUID.
    pub uuid: String,
    /// SMBIOS system serial number.
    pub serial: String,
    /// Boot this kernel, with this initramfs and command line, instead of what firmware finds.
    pub direct_kernel: Option<(PathBuf, PathBuf, String)>,
    /// What the firmware starts before network and disks.
    pub medium: Option<(PathBuf, Medium)>,
}

impl MachineSpec {
    /// Whether a port has this card.
    pub(super) fn has_card(&self, card: Card) -> bool {
        self.nics.iter().any(|nic| nic.card.unwrap_or(self.card) == card)
    }
}

/// Puts a machine together.
#[derive(Debug, Clone)]
pub struct MachineBuilder {
    spec: MachineSpec,
}

impl MachineBuilder {
    /// UEFI, Q35, 512 MiB, one processor, one virtio port, no disk. MAC address, UUID and serial number follow from the name, so a
    /// machine of the same name is the same machine.
    pub(super) fn new(name: &str) -> Self {
        let seed = seed(name);
        let spec = MachineSpec {
            name: name.to_owned(),
            firmware: Firmware::Uefi,
            board: Board::Q35,
            memory_mib: 512,
            processors: Processors { sockets: 1, cores: 1, threads: 1 },
            disks: Vec::new(),
            qemu_orders: true,
            http_boot: false,
            netboot: true,
            ipv6: false,
            secure_boot: None,
            watchdog: false,
            tpm: false,
            bmc: false,
            clock: None,
            screen: false,
            names_console: false,
            card: Card::Virtio,
            nics: vec![NicSpec { mac: mac(seed, 0), plug: Plug::Lab, card: None }],
            port_slot: None,
            uuid: format!("{:08x}-1a2d-4fa1-8000-{:012x}", seed >> 32, seed & 0xffff_ffff_ffff),
            serial: format!("LAB-{:08X}", seed & 0xffff_ffff),
            direct_kernel: None,
            medium: None,
        };
        Self { spec }
    }

    /// Firmware.
    #[must_use]
    pub fn firmware(mut self, firmware: Firmware) -> Self {
        self.spec.firmware = firmware;
        self
    }

    /// UEFI HTTP Boot in place of PXE.
    #[must_use]
    pub fn http_boot(mut self) -> Self {
        self.spec.http_boot = true;
        self
    }

    /// UEFI that knows Secure Boot, with these keys.
    #[must_use]
    pub fn secure_boot(mut self, keys: Keys) -> Self {
        (self.spec.firmware, self.spec.secure_boot) = (Firmware::Uefi, Some(keys));
        self
    }

    /// Board.
    #[must_use]
    pub fn board(mut self, board: Board) -> Self {
        self.spec.board = board;
        self
    }

    /// The card of every port.
    #[must_use]
    pub fn card(mut self, card: Card) -> Self {
        self.spec.card = card;
        self
    }

    /// Something that not every machine has.
    #[must_use]
    pub fn with(mut self, extra: Extra) -> Self {
        match extra {
            Extra::Ipv6 => self.spec.ipv6 = true,
            Extra::Watchdog => self.spec.watchdog = true,
            Extra::TpmAndBmc => (self.spec.tpm, self.spec.bmc) = (true, true),
            Extra::NamedConsole => self.spec.names_console = true,
            Extra::Screen => self.spec.screen = true,
            Extra::PortSlot => self.spec.port_slot = Some(mac(seed(&self.spec.name), PLUGGED)),
        }
        self
    }

    /// A hardware clock that shows this when it is switched on, as `1970-01-01T00:00:00`.
    #[must_use]
    pub fn clock(mut self, shows: &'static str) -> Self {
        self.spec.clock = Some(shows);
        self
    }

    /// Memory, MiB.
    #[must_use]
    pub fn memory_mib(mut self, mib: u32) -> Self {
        self.spec.memory_mib = mib;
        self
    }

    /// Processors: one socket with this many cores.
    #[must_use]
    pub fn cpus(self, cores: u32) -> Self {
        self.processors(Processors { sockets: 1, cores, threads: 1 })
    }

    /// Processors.
    #[must_use]
    pub fn processors(mut self, processors: Processors) -> Self {
        self.spec.processors = processors;
        self
    }

    /// One more disk.
    #[must_use]
    pub fn disk(mut self, bytes: u64, bus: DiskBus) -> Self {
        let serial = format!("{}-{}", self.spec.serial, self.spec.disks.len());
        self.spec.disks.push(DiskSpec {
            bytes,
            bus,
            serial,
            sector: 512,
            failing: false,
            recorded: false,
            removable: false,
            pulled: false,
            first: false,
            path_to: None,
        });
        self
    }

    /// Records every write and flush to the disk added last.
    #[must_use]
    pub fn recorded(mut self) -> Self {
        if let Some(disk) = self.spec.disks.last_mut() {
            disk.recorded = true;
        }
        self
    }

    /// Puts the disk added last into a slot of its own, so that it can be unplugged. virtio-blk and NVMe only.
    #[must_use]
    pub fn removable(mut self) -> Self {
        if let Some(disk) = self.spec.disks.last_mut() {
            disk.removable = true;
        }
        self
    }

    /// The firmware's own variables decide what is started, as in a server.
    #[must_use]
    pub fn firmware_orders(mut self) -> Self {
        self.spec.qemu_orders = false;
        self
    }

    /// One more path to the disk added last.
    #[must_use]
    pub fn another_path(mut self) -> Self {
        if let Some(last) = self.spec.disks.len().checked_sub(1) {
            let path_to = Some(self.spec.disks[last].path_to.unwrap_or(last));
            self.spec.disks.push(DiskSpec { path_to, ..self.spec.disks[last].clone() });
        }
        self
    }

    /// Bytes of a logical sector of the disk added last: 512 by default, or 4096.
    #[must_use]
    pub fn sectors_of(mut self, bytes: u32) -> Self {
        if let Some(disk) = self.spec.disks.last_mut() {
            disk.sector = bytes;
        }
        self
    }

    /// The disk added last says that it fails, if it is NVMe: QEMU has no way to say so for others.
    #[must_use]
    pub fn failing(mut self) -> Self {
        if let Some(disk) = self.spec.disks.last_mut() {
            disk.failing = true;
        }
        self
    }

    /// One more port.
    #[must_use]
    pub fn nic(self) -> Self {
        self.port(Plug::Lab, None)
    }

    /// One more port, at the end of a cable.
    #[must_use]
    pub fn cabled(self, end: Cable) -> Self {
        self.port(Plug::Cable(end), None)
    }

    /// One more port, of this card instead of the machine's.
    #[must_use]
    pub fn port(mut self, plug: Plug, card: Option<Card>) -> Self {
        let nth = self.spec.nics.len() as u64;
        self.spec.nics.push(NicSpec { mac: mac(seed(&self.spec.name), nth), plug, card });
        self
    }

    /// No port at all: firmware goes to its disks at once.
    #[must_use]
    pub fn without_nics(mut self) -> Self {
        self.spec.nics.clear();
        self
    }

    /// Gives it the identity (MAC addresses, UUID, serial number) of another, as a careless clone would have.
    #[must_use]
    pub fn identity_of(mut self, other: &MachineSpec) -> Self {
        self.spec.nics.clone_from(&other.nics);
        self.spec.uuid.clone_from(&other.uuid);
        self.spec.serial.clone_from(&other.serial);
        self
    }

    /// Boots this kernel, initramfs and command line directly.
    #[must_use]
    pub fn direct_kernel(mut self, kernel: &Path, initramfs: &Path, command_line: &str) -> Self {
        self.spec.direct_kernel = Some((kernel.to_owned(), initramfs.to_owned(), command_line.to_owned()));
        self
    }

    /// Puts in a boot medium, read-only; it is the first thing that the firmware starts.
    #[must_use]
    pub fn medium(mut self, file: &Path, kind: Medium) -> Self {
        self.spec.medium = Some((file.to_owned(), kind));
        self
    }

    /// Makes its disks below `dir`, and plugs its ports into `network`.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn build(self, network: &Network, dir: &Path, accel: Accel) -> Result<Machine, LabError> {
        // Another processor than the host's.
        let accel = if self.spec.board == Board::Virt { Accel::Tcg } else { accel };
        Machine::create(self.spec, network, dir, accel)
    }

    /// What would be built.
    pub fn spec(&self) -> &MachineSpec {
        &self.spec
    }
}

/// The number of a port that is plugged in; those that are there from the start count from 0.
const PLUGGED: u64 = 64;

/// FNV-1a of a machine's name, from which its addresses and numbers follow.
pub(super) fn seed(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// A MAC address in QEMU's own range.
fn mac(seed: u64, nth: u64) -> String {
    let tail = seed.wrapping_add(nth) & 0xff_ffff;
    format!("52:54:00:{:02x}:{:02x}:{:02x}", tail >> 16, tail >> 8 & 0xff, tail & 0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machines_identity_follows_from_its_name() {
        let (a, b, c) =
            (MachineBuilder::new("m1").spec, MachineBuilder::new("m1").spec, MachineBuilder::new("m2").spec);
        assert_eq!((&a.nics[0].mac, &a.uuid), (&b.nics[0].mac, &b.uuid));
        assert_ne!(a.nics[0].mac, c.nics[0].mac);
        assert_ne!(a.uuid, c.uuid);
        assert_eq!(a.uuid.len(), 36);
    }

    #[test]
    fn ports_of_one_machine_differ() {
        let spec = MachineBuilder::new("m1").nic().nic().spec;
        assert_ne!(spec.nics[0].mac, spec.nics[1].mac);
        assert_ne!(spec.nics[1].mac, spec.nics[2].mac);
    }
}
