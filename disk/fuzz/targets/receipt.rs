//! The two slots of a receipt: with any content in them, the next receipt written is the one that is read.
//!
//! Input: flags, then for each slot its sequence number (8 bytes), the length of its body (2), its body.
#![no_main]

use landfall_disk::{RECEIPT_PLACE, ReadAt as _, fuzzing::write_mark, read_mark};
use landfall_disk_fuzz::{Disk, Input};
use libfuzzer_sys::fuzz_target;
use sha2::{Digest as _, Sha256};

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let flags = input.u8();
    let sector = if flags & 1 == 0 { 512 } else { 4096 };
    let disk = Disk::new(2 << 20, sector);
    disk.put(510, &[0x55, 0xaa]);
    for at in 0..2 {
        let mut slot = vec![0; 2048];
        slot[..10].copy_from_slice(b"LANDFALL\x01\0");
        let (sequence, length) = (input.u64(), input.u16());
        let body = input.take(usize::from(length).min(2048 - 32 - 24));
        slot[12..14].copy_from_slice(&length.to_le_bytes());
        slot[16..24].copy_from_slice(&sequence.to_le_bytes());
        slot[24..24 + body.len()].copy_from_slice(body);
        if flags & 2 << at != 0 {
            let sum = Sha256::digest(&slot[..2016]);
            slot[2016..].copy_from_slice(&sum);
        }
        disk.put(RECEIPT_PLACE.start + at * 2048, &slot);
    }
    let Some(mut mark) = read_mark(&disk).expect("memory cannot fail") else { return };
    mark.receipt.action_index = mark.receipt.action_index.wrapping_add(1);
    for _ in 0..2 {
        if write_mark(&disk, &mark) {
            assert_eq!(read_mark(&disk).expect("memory cannot fail").as_ref(), Some(&mark));
        }
        mark.receipt.action_index = mark.receipt.action_index.wrapping_add(1);
    }
    let mut around = [0; 512];
    disk.read_at(RECEIPT_PLACE.start - 512, &mut around).expect("memory cannot fail");
    assert_eq!(around, [0; 512], "nothing else is written");
});
