//! VMDK (streamOptimized): what the one pass puts out is the same however it is fed, and the same that the file's tables lead
//! to by random access.
//!
//! Input: how it is fed (1 byte), the file.
#![no_main]

use std::io::Read as _;

use flate2::read::ZlibDecoder;
use landfall_disk::Format;
use landfall_disk::fuzzing::{How, Stopped, decode};
use landfall_disk_fuzz::Input;
use libfuzzer_sys::fuzz_target;

const MOST: u64 = 8 << 20;
const SECTOR: usize = 512;

fn u32_at(file: &[u8], at: usize) -> usize {
    file[at..][..4].try_into().map_or(0, u32::from_le_bytes) as usize
}

fn u64_at(file: &[u8], at: usize) -> usize {
    file[at..][..8].try_into().map_or(0, u64::from_le_bytes) as usize
}

/// The disk by its tables. The file decodes, so that nothing of it is missing.
fn by_tables(file: &[u8]) -> Vec<u8> {
    let (capacity, grain, zeroes) = (u64_at(file, 12), u64_at(file, 20) * SECTOR, file[8] & 4 != 0);
    let mut disk = vec![0; capacity * SECTOR];
    // Of a file whose tables are behind the grains: the footer, before the marker of the end.
    let at = if u64_at(file, 56) == usize::MAX { file.len() - 2 * SECTOR } else { 0 };
    let directory = u64_at(file, at + 56) * SECTOR;
    for (number, out) in disk.chunks_mut(grain).enumerate() {
        let table = u32_at(file, directory + number / 512 * 4) * SECTOR;
        let place = if table == 0 { 0 } else { u32_at(file, table + number % 512 * 4) };
        if place == 0 || (zeroes && place == 1) {
            continue;
        }
        let (at, stored) = (u64_at(file, place * SECTOR), u32_at(file, place * SECTOR + 8));
        assert_eq!(at * SECTOR, number * grain, "the entry leads to the grain");
        let mut raw = Vec::new();
        let stored = &file[place * SECTOR + 12..][..stored];
        ZlibDecoder::new(stored).read_to_end(&mut raw).expect("it was unpacked before");
        out.copy_from_slice(&raw[..out.len()]);
    }
    disk
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let step = 1 + usize::from(input.u8()) * 97;
    let file = input.0;
    let one = decode(Format::Vmdk, file, How { step, ordered: true, threads: 1, most: MOST });
    let other = decode(Format::Vmdk, file, How { step: file.len(), ordered: false, threads: 2, most: MOST });
    match (one, other) {
        (Ok(one), Ok(other)) => {
            assert_eq!(one.length, other.length);
            let raw = one.bytes(MOST);
            assert!(raw == other.bytes(MOST), "the same file in other pieces gives another disk");
            assert!(raw.is_none_or(|raw| raw == by_tables(file)), "the tables lead to another disk");
        }
        (Err(Stopped::Enough), _) | (_, Err(Stopped::Enough)) | (Err(_), Err(_)) => {}
        (one, other) => panic!("one way {:?}, the other {:?}", one.map(drop), other.map(drop)),
    }
});
