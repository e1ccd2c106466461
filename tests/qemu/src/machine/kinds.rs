//! Of which kinds a machine's parts are.

/// How a disk is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskBus {
    /// virtio-blk.
    Virtio,
    /// NVMe.
    Nvme,
    /// A SCSI disk behind virtio-scsi.
    Scsi,
    /// A SATA disk behind AHCI.
    Ahci,
    /// A USB stick behind xHCI.
    Usb,
    /// A SCSI disk behind an LSI SAS1068.
    MptSas,
    /// A SCSI disk behind a MegaRAID SAS.
    MegaSas,
}

/// A network card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Card {
    /// virtio-net.
    Virtio,
    /// Intel 82540EM.
    E1000,
    /// Intel 82574L.
    E1000e,
    /// VMware's.
    Vmxnet3,
    /// Realtek 8139.
    Rtl8139,
    /// A card on USB (RNDIS and CDC), as some BMCs bring along.
    Usb,
}

impl Card {
    /// All.
    pub const ALL: [Self; 6] = [Self::Virtio, Self::E1000, Self::E1000e, Self::Vmxnet3, Self::Rtl8139, Self::Usb];
}

/// A machine's board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Board {
    /// Intel's Q35, with PCI Express.
    Q35,
    /// Intel's 440FX, with PCI.
    Pc,
    /// QEMU's own for arm64 processors. UEFI alone.
    Virt,
}

impl Board {
    /// Those of x86-64.
    pub const X86: [Self; 2] = [Self::Q35, Self::Pc];
}

/// A machine's processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processors {
    /// Sockets, each with a processor.
    pub sockets: u32,
    /// Cores of each socket.
    pub cores: u32,
    /// Threads of each core.
    pub threads: u32,
}

/// How a boot medium is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// A CD in a SATA drive, as a BMC's virtual CD appears.
    Cd,
    /// A USB stick.
    Usb,
}
