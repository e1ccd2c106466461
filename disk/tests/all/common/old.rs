//! Old disks, with everything on them that an install has to clear.

use std::ops::Range;

use landfall_disk::{KeptPartition, ReadAt, find_kept};

use super::{gpt_disk, noise};

/// The partitions of a disk that an install keeps, by the very code that a restart runs. Without their numbers: the image's own
/// partitions come first, so that a kept one may get another.
pub(crate) fn kept(disk: &dyn ReadAt, sector: u32, labels: &[String]) -> Vec<KeptPartition> {
    let found = find_kept(disk, sector, labels, "disk").unwrap();
    found.into_iter().map(|part| KeptPartition { number: 0, ..part }).collect()
}

/// A disk with a table of the old kind: a primary partition and an extended one with two logical ones, each with
/// signatures at its ends. With the bytes of every partition.
pub(crate) fn with_logicals(size: u64, seed: u64) -> (Vec<u8>, Vec<Range<u64>>) {
    let mut disk = noise(size, seed);
    // Not to the very end: the image's own backup table goes there.
    let sectors = size / 512 - 64;
    let extended = sectors / 2;
    // (record, first, last sector) of the logical ones.
    let half = (sectors - extended) / 2;
    let logical =
        [(extended, extended + 63, extended + half - 1), (extended + half, extended + half + 63, sectors - 1)];
    let primary = 2048 * 512..extended * 512;
    let mut parts = vec![primary];
    table(&mut disk, 0, &[(0x83, 2048, extended - 2048), (0x0f, extended, sectors - extended)]);
    for (at, (record, first, last)) in logical.iter().enumerate() {
        let mut entries = vec![(0x83, first - record, last - first + 1)];
        entries.extend(logical.get(at + 1).map(|(next, ..)| (0x05, next - extended, half)));
        table(&mut disk, *record, &entries);
        parts.push(first * 512..(last + 1) * 512);
    }
    for (at, part) in parts.iter().enumerate() {
        plant(&mut disk, part, at);
    }
    (disk, parts)
}

fn table(disk: &mut [u8], sector: u64, entries: &[(u8, u64, u64)]) {
    let at = sector as usize * 512;
    disk[at + 446..at + 510].fill(0);
    disk[at + 510..at + 512].copy_from_slice(&[0x55, 0xaa]);
    for (slot, (kind, start, count)) in entries.iter().enumerate() {
        let entry = &mut disk[at + 446 + 16 * slot..at + 462 + 16 * slot];
        entry[4] = *kind;
        entry[8..12].copy_from_slice(&u32::try_from(*start).unwrap().to_le_bytes());
        entry[12..].copy_from_slice(&u32::try_from(*count).unwrap().to_le_bytes());
    }
}

/// A disk with a GPT and partitions of (first, last MiB, name), each with signatures at its ends. With the bytes of each.
pub(crate) fn with_gpt(size: u64, sector: u32, parts: &[(Range<u64>, &str)], seed: u64) -> (Vec<u8>, Vec<Range<u64>>) {
    let s = u64::from(sector);
    let sectors: Vec<_> = parts.iter().map(|(r, name)| (r.start / s, r.end / s - 1, *name)).collect();
    let mut disk = gpt_disk(size, sector, &sectors, seed);
    for (at, (part, _)) in parts.iter().enumerate() {
        plant(&mut disk, part, at);
    }
    (disk, parts.iter().map(|(range, _)| range.clone()).collect())
}

/// A disk with sectors of 512 bytes, a partition where a receipt would stand, and 60 partitions behind `from`; their names.
/// They have the numbers from 4 on.
pub(crate) fn crowded(size: u64, from: u64) -> (Vec<u8>, Vec<String>) {
    let names: Vec<String> = (0..60).map(|n| format!("data {n}")).collect();
    let mut parts = vec![(40, 2047, "low"), (10_000, 10_063, "two"), (10_064, 10_127, "three")];
    parts.extend((0..).zip(&names).map(|(n, name)| (from / 512 + 64 * n, from / 512 + 64 * n + 63, name.as_str())));
    (gpt_disk(size, 512, &parts, 5), names)
}

/// Puts signatures at both ends of a partition: one of three kinds, the first of each such as libblkid takes for
/// whole.
pub(crate) fn plant(disk: &mut [u8], part: &Range<u64>, kind: usize) {
    let (start, end) = (part.start as usize, part.end as usize);
    let mut put = |at: usize, bytes: &[u8]| disk[at..at + bytes.len()].copy_from_slice(bytes);
    match kind % 3 {
        0 => {
            put(start, b"LUKS\xba\xbe\0\x01");
            // md 1.0: magic, version 1, and where the superblock is, in sectors of 512.
            let at = (end - start) / 4096 * 4096 - 8192;
            put(start + at, &[0; 256]);
            put(start + at, &[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0]);
            put(start + at + 144, &((at / 512) as u64).to_le_bytes());
        }
        1 => {
            put(start + 512, &lvm_label());
            let end = (end - start) / (256 << 10) * (256 << 10) + start;
            for label in [end - (512 << 10), end - (256 << 10)] {
                for i in 0..32 {
                    put(label + (128 << 10) + i * 1024, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0]);
                }
            }
        }
        _ => {
            put(start + 1024, &[0; 64]);
            put(start + 1024, &[1, 0, 0, 0, 20, 0, 0, 0]);
            put(start + 4086, b"SWAPSPACE2");
            // md 0.90: magic, major 0, minor 90.
            let at = start + (end - start) / 0x1_0000 * 0x1_0000 - 0x1_0000;
            put(at, &[0; 256]);
            put(at, &[0xfc, 0x4e, 0x2b, 0xa9, 0, 0, 0, 0, 90, 0, 0, 0]);
        }
    }
}

/// What a whole disk, or a partition, can be a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Member {
    /// With a superblock of version 1.2.
    Md,
    Lvm,
    Zfs,
}

impl Member {
    /// As `wipefs` calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Md => "linux_raid_member",
            Self::Lvm => "LVM2_member",
            Self::Zfs => "zfs_member",
        }
    }

    /// Puts its marks on a region, which begins with nothing that boots.
    pub(crate) fn mark(self, disk: &mut [u8], region: &Range<u64>) {
        let (start, end) = (region.start as usize, region.end as usize);
        let mut put = |at: usize, bytes: &[u8]| disk[at..at + bytes.len()].copy_from_slice(bytes);
        put(start, &[0; 512]);
        match self {
            Self::Md => put(start + 4096, &md_superblock((end - start) as u64 / 512)),
            Self::Lvm => put(start + 512, &lvm_label()),
            Self::Zfs => {
                let label = 256 << 10;
                let end = start + (end - start) / label * label;
                for at in [start, start + label, end - 2 * label, end - label] {
                    for ring in 0..32 {
                        put(at + label / 2 + ring * 1024, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0]);
                    }
                }
            }
        }
    }
}

/// Version 1.2, 8 sectors into a member of so many sectors (Linux, include/uapi/linux/raid/md_p.h).
fn md_superblock(sectors: u64) -> [u8; 256] {
    let mut block = [0; 256];
    block[..8].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0]);
    block[16..32].copy_from_slice(b"landfall-test-md");
    block[72] = 1;
    block[128..136].copy_from_slice(&2048_u64.to_le_bytes());
    block[136..144].copy_from_slice(&(sectors - 2048).to_le_bytes());
    block[144] = 8;
    // md.c, calc_sb_1_csum: the sum of all words, folded once.
    let sum: u64 = block.chunks_exact(4).map(|word| u64::from(u32::from_le_bytes(word.try_into().unwrap()))).sum();
    let sum = (sum as u32).wrapping_add((sum >> 32) as u32);
    block[216..220].copy_from_slice(&sum.to_le_bytes());
    block
}

fn lvm_label() -> [u8; 512] {
    let mut label = [0; 512];
    label[..12].copy_from_slice(b"LABELONE\x01\0\0\0");
    label[20..32].copy_from_slice(b"\x20\0\0\0LVM2 001");
    let sum = lvm_checksum(&label[20..]);
    label[16..20].copy_from_slice(&sum.to_le_bytes());
    label
}

/// LVM2's lib/misc/crc.c: CRC-32 with an initial value of its own and not inverted at the end.
fn lvm_checksum(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    bytes.iter().fold(0xf597_a6cf, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}
