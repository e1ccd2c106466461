//! The table of signatures: what each is called, where it stands and where that is written down.
//!
//! Offsets count from the start of the disk or partition, or back from its end.

/// From which end an offset counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Start,
    /// The end, rounded down to a multiple of this many bytes.
    End(u64),
}

/// One magic and its places.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signature {
    pub(super) name: &'static str,
    pub(super) side: Side,
    /// Bytes from that side to the first place.
    pub(super) offset: u64,
    /// Bytes from one place to the next.
    pub(super) step: u64,
    /// How many places there are.
    pub(super) count: u64,
    pub(super) magic: &'static [u8],
}

impl Signature {
    /// Its places on a region of this many bytes.
    pub(super) fn places(self, length: u64) -> impl Iterator<Item = u64> {
        let first = match self.side {
            Side::Start => Some(self.offset),
            Side::End(unit) => (length / unit * unit).checked_sub(self.offset),
        };
        let fits = move |at: &u64| at.checked_add(self.magic.len() as u64).is_some_and(|end| end <= length);
        first.into_iter().flat_map(move |first| (0..self.count).map(move |i| first + i * self.step)).filter(fits)
    }
}

const fn at(name: &'static str, offset: u64, magic: &'static [u8]) -> Signature {
    Signature { name, side: Side::Start, offset, step: 0, count: 1, magic }
}

const fn before_end(name: &'static str, unit: u64, offset: u64, magic: &'static [u8]) -> Signature {
    Signature { name, side: Side::End(unit), offset, step: 0, count: 1, magic }
}

const fn every(step: u64, count: u64, signature: Signature) -> Signature {
    Signature { step, count, ..signature }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

pub(super) const GPT: &str = "a GPT";
const MD: &str = "an md RAID member";
const ZFS: &str = "a ZFS device";
const BTRFS: &str = "a btrfs file system";
const LUKS: &str = "a LUKS volume";
const SWAP: &str = "swap space";
const IMSM: &str = "an Intel RAID member";
const DDF: &str = "a DDF RAID member";
const FAT: &str = "a FAT file system";
const BCACHEFS: &str = "a bcachefs file system";

/// Native to the host that made it in version 0.90, little-endian later: Linux, include/uapi/linux/raid/md_p.h.
const MD_LITTLE: &[u8] = &[0xfc, 0x4e, 0x2b, 0xa9];
const MD_BIG: &[u8] = &[0xa9, 0x2b, 0x4e, 0xfc];
/// 0x00bab10c as 64 bits in the byte order of the host: OpenZFS, include/sys/uberblock_impl.h.
const UBERBLOCK_LITTLE: &[u8] = &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0];
const UBERBLOCK_BIG: &[u8] = &[0, 0, 0, 0, 0, 0xba, 0xb1, 0x0c];
/// Bytes of a ZFS label; the disk's end counts in whole ones. The ring of uberblocks is its second half.
const LABEL: u64 = 256 * KIB;
/// LUKS2 on-disk format, section 2.1: the magic of the second header, which may be at nine offsets.
const LUKS_SECOND: &[u8] = b"SKUL\xba\xbe";
/// SNIA Disk Data Format 2.0, section 5.3: the anchor header's signature, big-endian as specified and as some write it.
const DDF_BIG: &[u8] = &[0xde, 0x11, 0xde, 0x11];
const DDF_LITTLE: &[u8] = &[0x11, 0xde, 0x11, 0xde];

/// Every one of them. The exact ones come before those whose magic is short.
pub(super) const SIGNATURES: &[Signature] = &[
    // UEFI 2.10, section 5.3.2: LBA 1 and the last, at either sector size.
    at(GPT, 512, b"EFI PART"),
    at(GPT, 4096, b"EFI PART"),
    before_end(GPT, 512, 512, b"EFI PART"),
    before_end(GPT, 512, 4096, b"EFI PART"),
    // cryptsetup, LUKS1 and LUKS2 on-disk formats.
    at(LUKS, 0, b"LUKS\xba\xbe"),
    at(LUKS, 16 * KIB, LUKS_SECOND),
    at(LUKS, 32 * KIB, LUKS_SECOND),
    at(LUKS, 64 * KIB, LUKS_SECOND),
    at(LUKS, 128 * KIB, LUKS_SECOND),
    at(LUKS, 256 * KIB, LUKS_SECOND),
    at(LUKS, 512 * KIB, LUKS_SECOND),
    at(LUKS, MIB, LUKS_SECOND),
    at(LUKS, 2 * MIB, LUKS_SECOND),
    at(LUKS, 4 * MIB, LUKS_SECOND),
    // lvm2, lib/label/label.h: in any of the first four sectors of 512.
    every(512, 4, at("an LVM volume", 0, b"LABELONE")),
    // Linux, md_p.h: 0.90 in the last whole 64 KiB but one boundary; 1.0 in the last 8 KiB, 1.1 at the start, 1.2 at 4 KiB.
    before_end(MD, 64 * KIB, 64 * KIB, MD_LITTLE),
    before_end(MD, 64 * KIB, 64 * KIB, MD_BIG),
    before_end(MD, 4 * KIB, 8 * KIB, MD_LITTLE),
    at(MD, 0, MD_LITTLE),
    at(MD, 4 * KIB, MD_LITTLE),
    // mdadm, super-intel.c: the last sector but one.
    before_end(IMSM, 512, 1024, b"Intel Raid ISM Cfg Sig. "),
    before_end(IMSM, 512, 8192, b"Intel Raid ISM Cfg Sig. "),
    // The last sector; libblkid's ddf_raid.c knows a second place some firmware uses.
    before_end(DDF, 512, 512, DDF_BIG),
    before_end(DDF, 512, 512, DDF_LITTLE),
    before_end(DDF, 512, 4096, DDF_BIG),
    before_end(DDF, 512, 0x2_0200, DDF_BIG),
    before_end(DDF, 512, 0x2_0200, DDF_LITTLE),
    // ZFS on-disk specification, section 1.2: two labels at the start, two at the end; uberblocks every KiB at the least.
    every(KIB, 128, at(ZFS, LABEL / 2, UBERBLOCK_LITTLE)),
    every(KIB, 128, at(ZFS, LABEL / 2, UBERBLOCK_BIG)),
    every(KIB, 128, at(ZFS, LABEL + LABEL / 2, UBERBLOCK_LITTLE)),
    every(KIB, 128, at(ZFS, LABEL + LABEL / 2, UBERBLOCK_BIG)),
    every(KIB, 128, before_end(ZFS, LABEL, 2 * LABEL - LABEL / 2, UBERBLOCK_LITTLE)),
    every(KIB, 128, before_end(ZFS, LABEL, 2 * LABEL - LABEL / 2, UBERBLOCK_BIG)),
    every(KIB, 128, before_end(ZFS, LABEL, LABEL / 2, UBERBLOCK_LITTLE)),
    every(KIB, 128, before_end(ZFS, LABEL, LABEL / 2, UBERBLOCK_BIG)),
    // btrfs on-disk format: superblocks at 64 KiB, 64 MiB and 256 GiB, the magic 64 bytes into each.
    at(BTRFS, 64 * KIB + 64, b"_BHRfS_M"),
    at(BTRFS, 64 * MIB + 64, b"_BHRfS_M"),
    at(BTRFS, (256 << 30) + 64, b"_BHRfS_M"),
    // Linux, bcache.h: the superblock in sector 8. bcachefs-tools: there, and a copy behind the megabyte reserved for it.
    at("a bcache device", 0x1018, &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca]),
    at(BCACHEFS, 0x1018, &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9]),
    at(BCACHEFS, MIB + 0x1018, &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9]),
    // Ceph, BlueStore.cc: the label's first line.
    at("a BlueStore device", 0, b"bluestore block device"),
    // Linux, swap.h: the last ten bytes of the first page, whose size is the host's.
    at(SWAP, 4 * KIB - 10, b"SWAPSPACE2"),
    at(SWAP, 4 * KIB - 10, b"SWAP-SPACE"),
    at(SWAP, 8 * KIB - 10, b"SWAPSPACE2"),
    at(SWAP, 8 * KIB - 10, b"SWAP-SPACE"),
    at(SWAP, 16 * KIB - 10, b"SWAPSPACE2"),
    at(SWAP, 16 * KIB - 10, b"SWAP-SPACE"),
    at(SWAP, 32 * KIB - 10, b"SWAPSPACE2"),
    at(SWAP, 32 * KIB - 10, b"SWAP-SPACE"),
    at(SWAP, 64 * KIB - 10, b"SWAPSPACE2"),
    at(SWAP, 64 * KIB - 10, b"SWAP-SPACE"),
    // ECMA-119, section 8.1: the first volume descriptor in sector 16 of 2048 bytes. An isohybrid has it behind its MBR.
    at("an ISO 9660 file system", 0x8001, b"CD001"),
    at("an NTFS file system", 3, b"NTFS    "),
    at("an exFAT file system", 3, b"EXFAT   "),
    // Microsoft's FAT specification, section 3: BS_FilSysType.
    at(FAT, 0x52, b"FAT32   "),
    at(FAT, 0x36, b"FAT16   "),
    at(FAT, 0x36, b"FAT12   "),
    at(FAT, 0x36, b"FAT     "),
    at("an XFS file system", 0, b"XFSB"),
    at("an F2FS file system", KIB, &[0x10, 0x20, 0xf5, 0xf2]),
    // Linux, ext4.h: s_magic of the superblock at 1024.
    at("an ext file system", 0x438, &[0x53, 0xef]),
];
