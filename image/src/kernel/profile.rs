//! Profiles: which drivers a boot image carries.

use std::collections::BTreeSet;

use super::tree::KernelTree;

/// A set of drivers for one kind of machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// Virtual machines: virtio, the emulated Intel and Realtek cards, VMware, Hyper-V, Xen, NVMe, AHCI, IDE.
    Vm,
    /// Physical servers: every network and disk controller driver the kernel has, and all of `vm`.
    Server,
    /// Only what `--module` names.
    None,
}

/// Every machine: the file systems the agent opens on an installed disk, what they ask the crypto API for, and what it takes to
/// fetch and mount the rest.
const COMMON: &[&str] = &[
    "ext4", "vfat", "nls_cp437", "nls_ascii", "nls_iso8859_1", "nls_utf8", "xfs", "btrfs", "crc32c_generic",
    "crc32c_intel", "crct10dif_generic", "crct10dif_pclmul", "af_packet", // What landfall.net makes.
    "8021q", "bonding", // The tools layer is a squashfs file.
    "loop", "squashfs", "efivarfs", "sd_mod", "nvme", "ahci",
];

const VM: &[&str] = &[
    "virtio_pci", "virtio_mmio", "virtio_net", "virtio_blk", "virtio_scsi",
    // A fresh virtual machine has little entropy; TLS waits for it.
    "virtio_rng", "e1000", "e1000e", "igb", "igbvf", "ixgbevf", "r8169", "8139cp", "8139too", "vmxnet3", "vmw_pvscsi",
    "mptspi", "mptsas", "sym53c8xx", "ata_piix", "ata_generic", "hv_vmbus", "hv_netvsc", "hv_storvsc", "pci_hyperv",
    "xen_netfront", "xen_blkfront", // QEMU's watchdog.
    "i6300esb",
];

/// Directories below `kernel/` whose every module is a driver a server may need before it can fetch anything.
const SERVER_DIRECTORIES: &[&str] = &[
    "drivers/net/ethernet/", "drivers/net/phy/", "drivers/net/mdio/", "drivers/net/pcs/", "drivers/scsi/",
    "drivers/ata/", "drivers/nvme/host/", "drivers/message/fusion/", "drivers/nvdimm/", "drivers/mmc/",
    "drivers/usb/host/", "drivers/usb/storage/", "drivers/net/usb/", "drivers/pci/controller/", "drivers/virtio/",
    "drivers/watchdog/", "drivers/char/ipmi/", "drivers/char/tpm/",
];

/// Single modules of the server profile outside of those directories.
const SERVER: &[&str] = &[
    "mlx4_en", "dm_mod", "dm_multipath", "raid0", "raid1", "raid10", "raid456", "usbhid",
    "hid_generic", // What iTCO_wdt is found by.
    "lpc_ich", "i2c_i801",
];

/// Modules in those directories that are for desktops, tests or PCMCIA: they would only waste space.
const SERVER_EXCLUDED: &[&str] = &[
    "pcmcia", "scsi_debug", "/ufs/", "/8390/axnet", "sdio_uart", "mmc_test", "softdog", "pretimeout", "ipmi_watchdog",
    "ipmi_poweroff",
];

impl Profile {
    /// The profile's modules in this kernel: modules that the kernel neither has nor has built in are left out, since a
    /// profile serves several kernels and architectures.
    pub fn modules(self, tree: &KernelTree) -> BTreeSet<String> {
        let mut wanted: BTreeSet<String> = match self {
            Self::None => BTreeSet::new(),
            Self::Vm | Self::Server => [COMMON, VM].concat().into_iter().map(str::to_owned).collect(),
        };
        if self == Self::Server {
            wanted.extend(SERVER.iter().map(|name| (*name).to_owned()));
            let drivers = tree.modules.values().filter(|module| {
                let path = module.path.strip_prefix("kernel/").unwrap_or(&module.path);
                SERVER_DIRECTORIES.iter().any(|directory| path.starts_with(directory))
                    && !SERVER_EXCLUDED.iter().any(|part| path.contains(part))
            });
            wanted.extend(drivers.map(|module| module.name.clone()));
        }
        wanted.retain(|name| tree.modules.contains_key(name));
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::FakeTree, *};

    #[test]
    fn the_server_profile_takes_whole_driver_directories() {
        let fake = FakeTree::new("6.1")
            .module("kernel/drivers/net/ethernet/new/brandnew.ko", "name=brandnew\0")
            .module("kernel/drivers/net/ethernet/8390/pcmcia_card_pcmcia.ko", "name=old\0")
            .module("kernel/drivers/net/wireless/wifi.ko", "name=wifi\0")
            .module("kernel/drivers/net/virtio_net.ko", "name=virtio_net\0");
        let tree = KernelTree::open(fake.path(), None).unwrap();
        assert_eq!(Profile::Server.modules(&tree).into_iter().collect::<Vec<_>>(), ["brandnew", "virtio_net"]);
        assert_eq!(Profile::Vm.modules(&tree).into_iter().collect::<Vec<_>>(), ["virtio_net"]);
        assert!(Profile::None.modules(&tree).is_empty());
    }
}
