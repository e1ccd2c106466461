//! Decoding of arbitrary headers and tables ends without a panic, and allocates nothing by an unchecked number.

use proptest::prelude::*;

use super::super::header::Header;
use super::super::tables;
use super::*;
use crate::{buffer::Pool, decode::Sink};

/// Plan and pass, without keeping what comes out: an image may claim to be as large as any disk.
fn run(file: &[u8]) -> Result<u64, DecodeError> {
    let plan = plan(file)?;
    let (out, pieces) = crossbeam_channel::bounded(4);
    std::thread::scope(|scope| {
        let drain = scope.spawn(move || pieces.iter().filter(Result::is_ok).count());
        let mut sink = Sink::new(std::sync::Arc::new(Pool::new(1 << 20)), out);
        let done = plan.decode(&mut Pieces { bytes: file, step: 50_000 }, &mut sink, UNORDERED);
        let end = sink.end();
        drop(sink);
        assert!(drain.join().unwrap() > 0 || done.is_err());
        done.map(|()| end)
    })
}

/// A small file with clusters of 4 KiB: header, L1 table and two L2 tables at 4, 8 and 12 KiB, then data.
fn small() -> Vec<u8> {
    let mut file = vec![0; 4096 * 40];
    file[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
    file[20..24].copy_from_slice(&12_u32.to_be_bytes());
    file[24..32].copy_from_slice(&(4_u64 << 20).to_be_bytes());
    file[36..40].copy_from_slice(&2_u32.to_be_bytes());
    file[40..48].copy_from_slice(&4096_u64.to_be_bytes());
    file[100..104].copy_from_slice(&104_u32.to_be_bytes());
    for (i, table) in [8192_u64, 12288].into_iter().enumerate() {
        file[4096 + i * 8..][..8].copy_from_slice(&table.to_be_bytes());
    }
    for i in 0..30 {
        let host = (4 + i as u64) * 4096;
        let at = 8192 + (i * 37 % 1024) * 8;
        file[at..at + 8].copy_from_slice(&host.to_be_bytes());
        file[host as usize..][..4096].fill(i as u8);
    }
    file
}

/// Entries that are likely to mean something.
fn entry() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (0_u64..45, 0_u64..2).prop_map(|(cluster, flag)| (cluster * 4096) | flag | (flag << 63)),
        (0_u64..180_000, 0_u64..16).prop_map(|(host, sectors)| (1 << 62) | (sectors << 58) | host),
    ]
}

proptest! {
    #[test]
    fn arbitrary_headers_never_panic(start in prop::collection::vec(any::<u8>(), 0..300), keep in 0_usize..120) {
        let mut bytes = small()[..keep].to_vec();
        bytes.extend(start);
        if let Ok(header) = Header::parse(&bytes) {
            prop_assert!(header.size > 0 && header.clusters() < 1 << 32);
            prop_assert!(header.l1_entries() * 8 <= 32 << 20);
        }
    }

    #[test]
    fn arbitrary_entries_never_panic(entry in entry(), bits in 12_u32..=21) {
        let mut bytes = small();
        bytes[20..24].copy_from_slice(&bits.to_be_bytes());
        bytes[40..48].copy_from_slice(&(1_u64 << 21).to_be_bytes());
        bytes[36..40].copy_from_slice(&2_u32.to_be_bytes());
        let header = Header::parse(&bytes).unwrap();
        if let Ok(tables::Mapping::Compressed { host, sectors }) = tables::mapping(entry, &header) {
            prop_assert!(host < 1 << 56 && u64::from(sectors) * 512 <= 2 << bits);
        }
        if let Ok(Some(offset)) = tables::l2_table(entry, &header) {
            prop_assert!(offset.is_multiple_of(header.cluster()) && offset < 1 << 56);
        }
    }

    #[test]
    fn arbitrary_changes_never_panic_and_never_lose_a_byte(
        changes in prop::collection::vec((0_usize..16_384, any::<u8>()), 0..12),
        entries in prop::collection::vec((0_usize..1536, entry()), 0..12),
        length in 0_usize..4096 * 40,
        cut in any::<bool>(),
    ) {
        let mut file = small();
        for (at, entry) in entries {
            file[4096 + at * 8..][..8].copy_from_slice(&entry.to_be_bytes());
        }
        for (at, byte) in changes {
            file[at] = byte;
        }
        if cut {
            file.truncate(length);
        }
        if let Ok(end) = run(&file) {
            prop_assert_eq!(end, plan(&file).unwrap().raw_bytes());
        }
    }
}

#[test]
fn the_small_file_they_all_start_from_decodes() {
    assert_eq!(run(&small()).unwrap(), 4 << 20);
    assert!(decode(&small(), UNORDERED, 4096).is_ok());
}
