//! Receipts: an install leaves one on the disk it wrote.
//!
//! The 4096 bytes that end at 1 MiB hold two slots of 2048. A receipt is written to the slot that does not hold the
//! newest valid one, so a write torn by a power cut leaves the previous receipt. `Done` counts only while LBA 0 carries
//! the boot signature; with LBA 0 zeroed it reads as `Intent`. So the single sector of LBA 0 commits bootability and
//! receipt in one.
//!
//! A slot: magic (8 bytes), version (2), zero (2), length of the body (4), sequence number (8), body as JSON
//! ([`DiskReceipt`], and which partitions the install kept), zeroes, SHA-256 of all before it (32). Numbers are
//! little-endian. A reader ignores fields of the body that it does not know.

use std::{io, path::Path};

use jiff::{SignedDuration, Timestamp};
pub use landfall_api::RECEIPT_PLACE as PLACE;
use landfall_api::{DiskReceipt, Receipt, ReceiptState};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::{BlockDevice, DiskError, ReadAt, device::RealDevice, exact, gpt};

const SLOT: usize = 2048;
const MAGIC: &[u8; 8] = b"LANDFALL";
const VERSION: u16 = 1;
const BODY: usize = 24;
const SUM: usize = SLOT - 32;

type Place = [u8; 2 * SLOT];

/// A receipt that cannot be put on the disk.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MarkError {
    #[error("the device failed")]
    Io(#[from] io::Error),
    #[error("the receipt takes {0} bytes, more than a slot holds")]
    TooLong(usize),
    #[error("the receipt cannot be serialised")]
    Json(#[from] serde_json::Error),
}

/// What a slot holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Body {
    #[serde(flatten)]
    mark: DiskReceipt,
    /// GUIDs of the partitions that the install kept. Here and nowhere else is known later which partitions of the table
    /// did not come with the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kept: Vec<Uuid>,
}

fn encode(body: &Body, sequence: u64) -> Result<[u8; SLOT], MarkError> {
    let body = serde_json::to_vec(body)?;
    if body.len() > SUM - BODY {
        return Err(MarkError::TooLong(body.len()));
    }
    let mut slot = [0; SLOT];
    slot[..8].copy_from_slice(MAGIC);
    slot[8..10].copy_from_slice(&VERSION.to_le_bytes());
    slot[12..16].copy_from_slice(&(body.len() as u32).to_le_bytes());
    slot[16..24].copy_from_slice(&sequence.to_le_bytes());
    slot[BODY..BODY + body.len()].copy_from_slice(&body);
    let sum = Sha256::digest(&slot[..SUM]);
    slot[SUM..].copy_from_slice(&sum);
    Ok(slot)
}

fn decode(slot: &[u8]) -> Option<(u64, Body)> {
    let whole = slot.len() == SLOT && slot.starts_with(MAGIC) && Sha256::digest(&slot[..SUM])[..] == slot[SUM..];
    if !whole || slot[8..10] != VERSION.to_le_bytes() {
        return None;
    }
    let length = u32::from_le_bytes(slot[12..16].try_into().ok()?) as usize;
    let sequence = u64::from_le_bytes(slot[16..24].try_into().ok()?);
    let body = slot[BODY..SUM].get(..length)?;
    Some((sequence, serde_json::from_slice(body).ok()?))
}

/// Which slot holds the newest valid receipt, and the receipt.
fn newest(place: &[u8]) -> Option<(usize, u64, Body)> {
    let valid = place.chunks(SLOT).enumerate().filter_map(|(i, slot)| decode(slot).map(|(seq, body)| (i, seq, body)));
    valid.max_by_key(|(_, seq, _)| *seq)
}

/// Whether these bytes, taken from the place, hold a receipt of ours and nothing else.
pub(crate) fn is_ours(place: &[u8]) -> bool {
    place.len() == 2 * SLOT && place.chunks(SLOT).all(|slot| slot.iter().all(|b| *b == 0) || slot.starts_with(MAGIC))
}

fn read_place(disk: &(impl ReadAt + ?Sized)) -> io::Result<Option<Place>> {
    if disk.size() < PLACE.end {
        return Ok(None);
    }
    let mut place = [0; 2 * SLOT];
    disk.read_at(PLACE.start, &mut place)?;
    Ok(Some(place))
}

/// The receipt on a disk as it counts: `Done` without the boot signature in LBA 0 is `Intent`.
///
/// # Errors
/// The device's.
pub fn read_mark(disk: &(impl ReadAt + ?Sized)) -> io::Result<Option<DiskReceipt>> {
    let Some((_, _, Body { mut mark, .. })) = read_place(disk)?.and_then(|place| newest(&place)) else {
        return Ok(None);
    };
    let mut first = [0; 512];
    disk.read_at(0, &mut first)?;
    if !gpt::has_signature(&first) {
        mark.receipt.state = ReceiptState::Intent;
    }
    Ok(Some(mark))
}

/// The partitions that the newest install kept, by their GUIDs, whichever workflow it belonged to; none without a receipt.
///
/// # Errors
/// The device's.
pub fn kept_partitions(disk: &(impl ReadAt + ?Sized)) -> io::Result<Vec<Uuid>> {
    Ok(read_place(disk)?.and_then(|place| newest(&place)).map(|(_, _, body)| body.kept).unwrap_or_default())
}

/// How many kept partitions a receipt like this one has room for, whatever state and time it gets; `most` if it has more.
pub(crate) fn room_for_kept(mark: &DiskReceipt, most: usize) -> usize {
    let mut mark = mark.clone();
    // The longest of both.
    mark.receipt.state = ReceiptState::Intent;
    mark.receipt.written_at = Timestamp::UNIX_EPOCH + SignedDuration::from_nanos(1);
    let fits = |kept: &usize| encode(&Body { mark: mark.clone(), kept: vec![Uuid::nil(); *kept] }, 1).is_ok();
    (1..=most).take_while(fits).count()
}

/// Writes a receipt into the slot beside the newest one, with the GUIDs of the partitions that the install keeps. Not
/// flushed.
pub(crate) fn write_mark(device: &dyn BlockDevice, mark: &DiskReceipt, kept: Vec<Uuid>) -> Result<(), MarkError> {
    let mut place = read_place(device)?.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    // Our sequence numbers never reach the last number, which could have no successor.
    let found = newest(&place).filter(|(_, sequence, _)| *sequence < u64::MAX);
    let (slot, sequence) = found.as_ref().map_or((0, 1), |(slot, sequence, _)| (1 - slot, sequence + 1));
    if found.is_none() {
        // The slot holds unknown data; it must not stay beside a receipt.
        place.fill(0);
    }
    place[slot * SLOT..(slot + 1) * SLOT].copy_from_slice(&encode(&Body { mark: mark.clone(), kept }, sequence)?);
    if (device.logical_sector() as usize) <= SLOT && newest_exists(&place, 1 - slot) {
        exact::write(device, PLACE.start + (slot * SLOT) as u64, &place[slot * SLOT..(slot + 1) * SLOT])?;
    } else {
        // One sector holds both slots, or the other slot is to be cleared.
        exact::write(device, PLACE.start, &place)?;
    }
    Ok(())
}

fn newest_exists(place: &Place, slot: usize) -> bool {
    decode(&place[slot * SLOT..(slot + 1) * SLOT]).is_some()
}

/// The receipt on the device at this path, if there is one. **Blocking**, and for ever on a disk that hangs: call it from a
/// thread of its own.
///
/// # Errors
/// [`DiskError::Read`] if the device cannot be opened or read.
pub fn read_receipt(device: &Path) -> Result<Option<Receipt>, DiskError> {
    let read = |source| DiskError::Read { path: device.into(), source };
    let open = RealDevice::open_read_only(device).map_err(read)?;
    Ok(read_mark(&open).map_err(read)?.map(|mark| mark.receipt))
}

#[cfg(test)]
pub(crate) mod tests {
    use landfall_api::{Digest, DiskId};
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    pub(crate) fn mark(state: ReceiptState, index: u32) -> DiskReceipt {
        DiskReceipt {
            disk: DiskId { serial: "S".into(), size_bytes: 8 << 20, ..DiskId::default() },
            receipt: Receipt {
                machine_uid: Uuid::from_u128(1),
                workflow_uid: Uuid::from_u128(2),
                workflow_name: "w".into(),
                generation: 3,
                action_index: index,
                image_digest: Some(Digest::from_sha256([9; 32])),
                state,
                written_at: jiff::Timestamp::from_second(1_700_000_000).unwrap(),
            },
        }
    }

    fn body(mark: DiskReceipt) -> Body {
        Body { mark, kept: Vec::new() }
    }

    fn file() -> (tempfile::NamedTempFile, RealDevice) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(2 << 20).unwrap();
        let device = RealDevice::open(file.path()).unwrap();
        (file, device)
    }

    #[test]
    fn done_counts_only_while_the_boot_signature_is_there() {
        let (_file, device) = file();
        assert_eq!(read_mark(&device).unwrap(), None);
        write_mark(&device, &mark(ReceiptState::Done, 0), Vec::new()).unwrap();
        assert_eq!(read_mark(&device).unwrap(), Some(mark(ReceiptState::Intent, 0)));
        let mut first = vec![0; 512];
        first[510..].copy_from_slice(&[0x55, 0xaa]);
        device.write_at(0, &first).unwrap();
        assert_eq!(read_mark(&device).unwrap(), Some(mark(ReceiptState::Done, 0)));
    }

    #[test]
    fn the_kept_partitions_stand_beside_the_receipt() {
        let (_file, device) = file();
        assert!(kept_partitions(&device).unwrap().is_empty());
        let kept: Vec<Uuid> = (0..30).map(Uuid::from_u128).collect();
        write_mark(&device, &mark(ReceiptState::Intent, 0), kept.clone()).unwrap();
        assert_eq!(kept_partitions(&device).unwrap(), kept);
        assert_eq!(read_mark(&device).unwrap(), Some(mark(ReceiptState::Intent, 0)));
        // As agents wrote it before there was such a list.
        let old = serde_json::to_vec(&mark(ReceiptState::Done, 1)).unwrap();
        assert_eq!(serde_json::from_slice::<Body>(&old).unwrap(), body(mark(ReceiptState::Done, 1)));
        assert_eq!(serde_json::to_vec(&body(mark(ReceiptState::Done, 1))).unwrap(), old);
    }

    #[test]
    fn a_torn_mark_leaves_the_one_before_it() {
        let (_file, device) = file();
        for index in 0..5 {
            write_mark(&device, &mark(ReceiptState::Intent, index), Vec::new()).unwrap();
            assert_eq!(read_mark(&device).unwrap().unwrap().receipt.action_index, index);
        }
        let before = read_place(&device).unwrap().unwrap();
        write_mark(&device, &mark(ReceiptState::Intent, 9), Vec::new()).unwrap();
        let after = read_place(&device).unwrap().unwrap();
        for kept in 1..7_u32 {
            // Any part of the changed 512-byte sectors arrived, but not all of them.
            let mut torn = before;
            let changed: Vec<usize> =
                (0..8).filter(|i| before[i * 512..(i + 1) * 512] != after[i * 512..(i + 1) * 512]).collect();
            for (bit, sector) in changed.iter().enumerate().filter(|(bit, _)| kept & (1 << bit) != 0) {
                if bit + 1 < changed.len() {
                    torn[sector * 512..(sector + 1) * 512].copy_from_slice(&after[sector * 512..(sector + 1) * 512]);
                }
            }
            assert_eq!(newest(&torn).unwrap().2.mark.receipt.action_index, 4);
        }
    }

    #[test]
    fn a_receipt_can_follow_any_sequence_number() {
        let (_file, device) = file();
        device.write_at(PLACE.start, &encode(&body(mark(ReceiptState::Intent, 0)), u64::MAX - 1).unwrap()).unwrap();
        for index in 1..5 {
            write_mark(&device, &mark(ReceiptState::Intent, index), Vec::new()).unwrap();
            assert_eq!(read_mark(&device).unwrap().unwrap().receipt.action_index, index);
        }
    }

    #[test]
    fn a_receipt_with_room_holds_so_many_and_no_more() {
        let mut long = mark(ReceiptState::Intent, 0);
        long.receipt.workflow_name = "x".repeat(63);
        let kept = |count: usize| (0..count).map(|n| Uuid::from_u128(n as u128)).collect::<Vec<_>>();
        for mark in [mark(ReceiptState::Intent, 0), long] {
            let room = room_for_kept(&mark, 128);
            assert!((30..50).contains(&room), "{room}");
            for (state, written_at) in
                [(ReceiptState::Intent, "2026-11-23T07:00:00.123456789Z"), (ReceiptState::Done, "2026-11-23T07:00:00Z")]
            {
                let mut mark = mark.clone();
                (mark.receipt.state, mark.receipt.written_at) = (state, written_at.parse().unwrap());
                encode(&Body { mark, kept: kept(room) }, u64::MAX).unwrap();
            }
            let mut last = mark.clone();
            last.receipt.written_at = "2026-11-23T07:00:00.123456789Z".parse().unwrap();
            assert!(matches!(encode(&Body { mark: last, kept: kept(room + 1) }, 1), Err(MarkError::TooLong(_))));
            assert_eq!(room_for_kept(&mark, 3), 3);
        }
    }

    #[test]
    fn a_receipt_that_does_not_fit_is_refused() {
        let mut long = mark(ReceiptState::Intent, 0);
        long.receipt.workflow_name = "x".repeat(3000);
        assert!(matches!(encode(&body(long), 1), Err(MarkError::TooLong(_))));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_never_a_receipt_and_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
            prop_assert!(newest(&bytes).is_none());
        }

        #[test]
        fn a_changed_byte_is_never_a_receipt(at in 0_usize..SLOT, bit in 0..8) {
            let mut slot = encode(&body(mark(ReceiptState::Done, 1)), 7).unwrap();
            slot[at] ^= 1_u8 << bit;
            prop_assert!(decode(&slot).is_none());
        }

        #[test]
        fn wild_lengths_with_a_right_sum_never_panic(length in any::<u32>(), sequence in any::<u64>()) {
            let mut slot = encode(&body(mark(ReceiptState::Done, 1)), sequence).unwrap();
            slot[12..16].copy_from_slice(&length.to_le_bytes());
            let sum = Sha256::digest(&slot[..SUM]);
            slot[SUM..].copy_from_slice(&sum);
            // Only a panic would fail this test.
            let _ = decode(&slot);
        }
    }
}
