//! What is written of right files, and that nothing cut or altered is taken for one.

use std::sync::Arc;

use crossbeam_channel::unbounded;
use proptest::prelude::*;

use super::*;
use crate::buffer::Pool;
use crate::decode::testing::Pieces;
use crate::decode::{Decoded, Limits, Sink};

#[test]
fn files_of_qemu_img_decode_as_it_reads_them() {
    let lab = Lab::new();
    // Less than a grain; one and a half; several tables, the last of them not full; nothing at all.
    for length in [512, 4096, 96 << 10, 5 * MIB + 1536, 70 * MIB] {
        let raw = disk(length);
        let file = lab.convert(&raw);
        assert!(decode(&file).unwrap() == raw, "{length} bytes");
        assert!(lab.reference(&file) == raw, "{length} bytes");
    }
    assert!(decode(&lab.convert(&vec![0; 3 * MIB])).unwrap() == vec![0; 3 * MIB]);
}

#[test]
fn files_of_vmware_decode_as_qemu_img_reads_them() {
    let lab = Lab::new();
    for (length, grain) in [(512, 128), (4096, 128), (5 * MIB + 1536, 8), (70 * MIB, 128), (20 * MIB + 512, 8192)] {
        let raw = disk(length);
        let made = made::of(&raw, grain);
        assert!(decode(&made.bytes).unwrap() == raw, "{length} bytes in grains of {grain} sectors");
        assert!(lab.reference(&made.bytes) == raw, "{length} bytes in grains of {grain} sectors");
    }
}

#[test]
fn a_last_grain_beyond_the_end_is_cut() {
    let mut bytes = disk(9 * 4096);
    let grains = [(0, bytes[..8 * 4096].to_vec()), (64, bytes[8 * 4096..].repeat(8))];
    let file = made::file(72, 64, &grains).bytes;
    bytes.truncate(72 * 512);
    assert!(decode(&file).unwrap() == bytes);
}

#[test]
fn an_entry_of_zeroes_needs_its_flag() {
    let raw = disk(MIB);
    let made = made::of(&raw, 8);
    let number = raw.chunks(4096).position(|grain| grain.iter().all(|byte| *byte == 0)).unwrap();
    let mut file = made.bytes;
    file[made.tables[0] + 4 * number] = 1;
    assert!(decode(&file).is_err());
    // Of header and footer.
    for at in [0, made.footer] {
        file[at + 8] |= 4;
    }
    assert!(decode(&file).unwrap() == raw);
}

#[test]
fn no_part_of_a_file_is_taken_for_the_whole() {
    let raw = disk(3 * MIB);
    // Behind its last grain there are zeroes that are no part of it.
    let theirs = Lab::new().convert(&raw);
    let (_, end) = markers(&theirs);
    check_format(Format::Vmdk, &theirs[..end], &raw);
    check_format(Format::Vmdk, &made::of(&raw, 16).bytes, &raw);
    for length in (end..theirs.len()).step_by(256) {
        match decode(&theirs[..length]) {
            Ok(decoded) => assert!(length.is_multiple_of(512) && decoded == raw, "{length}"),
            Err(DecodeError::Unfinished(_)) => assert!(!length.is_multiple_of(512), "{length}"),
            other => panic!("{length}: {other:?}"),
        }
    }
}

/// Where a file of `qemu-img` has the markers of its grains, and where the last of these ends, bytes.
fn markers(file: &[u8]) -> (Vec<usize>, usize) {
    let mut next = u64::from_le_bytes(file[64..72].try_into().unwrap()) as usize * 512;
    let mut markers = Vec::new();
    while let Some(size) = file.get(next + 8..next + 12).map(|size| u32::from_le_bytes(size.try_into().unwrap()))
        && size > 0
    {
        markers.push(next);
        next = (next + 12 + size as usize).next_multiple_of(512);
    }
    (markers, next)
}

#[test]
fn a_file_cut_between_two_grains_is_cut() {
    let raw = disk(3 * MIB);
    let made = made::of(&raw, 16);
    let theirs = Lab::new().convert(&raw);
    let (markers, _) = markers(&theirs);
    assert!(markers.len() > 5);
    let ours = made.grains.iter().chain(&made.tables).chain([&made.directory, &made.footer, &made.end]);
    let cuts = ours.map(|at| &made.bytes[..*at]).chain(markers.iter().map(|at| &theirs[..*at]));
    for cut in cuts {
        let result = decode(cut);
        assert!(matches!(result, Err(DecodeError::Unfinished(_))), "{}: {:?}", cut.len(), result.map(|raw| raw.len()));
    }
}

#[test]
fn only_the_end_that_the_header_promises_counts() {
    let raw = disk(3 * MIB);
    let (made, theirs) = (made::of(&raw, 16), Lab::new().convert(&raw));
    let ours = &made.bytes;
    let (markers, end) = markers(&theirs);
    let last = *markers.last().unwrap();
    let zeroed = |file: &[u8], from: usize, length: usize| [&file[..from], &vec![0; length - from][..]].concat();
    for (what, file, refused) in [
        ("whole", ours.clone(), None),
        ("without the marker of the end", ours[..made.end].to_vec(), Some("without footer and marker of the end")),
        ("footer and marker of the end zeroed", zeroed(ours, made.footer, ours.len()), Some("KDMV")),
        ("the footer's marker too", zeroed(ours, made.footer - 512, ours.len()), Some("comes before its footer")),
        ("the directory too", zeroed(ours, made.directory - 512, ours.len()), Some("comes before its footer")),
        ("tables before grains, whole", theirs.clone(), None),
        ("without the zeroes behind its last grain", theirs[..end].to_vec(), None),
        ("without its last grain", theirs[..last].to_vec(), Some("its grains end at sector")),
        ("zeroes in place of its last grain", zeroed(&theirs, last, last + 1024), Some("its grains end at sector")),
    ] {
        match (decode(&file), refused) {
            (Ok(decoded), None) => assert!(decoded == raw, "{what}"),
            (Err(DecodeError::Bad(said) | DecodeError::Unfinished(said)), Some(word)) => {
                assert!(said.contains(word), "{what}: {said}");
            }
            (decoded, _) => panic!("{what}: {:?}", decoded.map(|decoded| decoded.len())),
        }
    }
}

/// Offset, length and whether it is more than zeroes, of every piece as it came.
fn pieces(file: &[u8]) -> Vec<(u64, u64, bool)> {
    let (out, came) = unbounded();
    let mut sink = Sink::new(Arc::new(Pool::new(MIB)), out);
    let input = &mut Pieces { bytes: file, step: 300_000 };
    super::super::super::decode(Format::Vmdk, input, &mut sink, Limits::default()).unwrap();
    drop(sink);
    let piece = |piece| match piece {
        Ok(Decoded::Block { offset, bytes }) => (offset, bytes.len as u64, true),
        Ok(Decoded::Zeroes(range)) => (range.start, range.end - range.start, false),
        Err(error) => panic!("{error}"),
    };
    came.iter().map(piece).collect()
}

#[test]
fn pieces_come_in_disk_order_and_whole() {
    let mut raw = disk(12 * MIB);
    raw[..2 * MIB].fill(0);
    raw[5 * MIB..9 * MIB].fill(0);
    raw[2 * MIB] = 1;
    raw[5 * MIB - 1] = 1;
    raw[9 * MIB] = 1;
    let mib = MIB as u64;
    // The start is always a block; what is zero for long is none.
    let all = [(0, 1, true), (1, 1, false), (2, 1, true), (3, 1, true), (4, 1, true), (5, 4, false)];
    let expected: Vec<_> = all
        .into_iter()
        .chain([(9, 1, true), (10, 1, true), (11, 1, true)])
        .map(|(at, length, data)| (at * mib, length * mib, data))
        .collect();
    assert_eq!(pieces(&made::of(&raw, 128).bytes), expected);
    assert_eq!(pieces(&Lab::new().convert(&raw)), expected);
}

#[test]
fn what_takes_more_memory_is_refused_with_the_figure() {
    let raw = disk(MIB);
    let limits = |window| Limits { window, ..Limits::default() };
    for (grain, needed) in [(128, 3 * (64 << 10) + 140), (8192, 3 * (4 << 20) + 140)] {
        let file = made::of(&raw, grain).bytes;
        let run = |window| {
            let (out, came) = unbounded();
            let mut sink = Sink::new(Arc::new(Pool::new(MIB)), out);
            let input = &mut Pieces { bytes: &file, step: 300_000 };
            let done = super::super::super::decode(Format::Vmdk, input, &mut sink, limits(window));
            drop(sink);
            (done, came.iter().count())
        };
        let (refused, pieces) = run(needed - 1);
        assert!(matches!(refused, Err(DecodeError::Memory(bytes)) if bytes == needed), "{refused:?}");
        assert_eq!(pieces, 0);
        assert!(run(needed).0.is_ok());
    }
}

proptest! {
    #[test]
    fn altered_bytes_never_give_another_disk(
        kind in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        near in any::<bool>(),
    ) {
        let raw = disk(300 << 10);
        let mut file = if kind { made::of(&raw, 8).bytes } else { made::of(&raw, 128).bytes };
        for (at, byte) in changes {
            let end = if near { 1024 } else { file.len() };
            file[at.index(end)] = byte;
        }
        if let Ok(decoded) = decode(&file) {
            prop_assert!(decoded == raw);
        }
    }

    #[test]
    fn arbitrary_headers_never_panic(at in 0_usize..90, bytes in prop::collection::vec(any::<u8>(), 0..24)) {
        let mut file = made::of(&disk(64 << 10), 8).bytes;
        file[at..at + bytes.len()].copy_from_slice(&bytes);
        // A disk of terabytes is not put out.
        if super::super::open(&file).is_ok_and(|header| header.raw_bytes() < 64 << 20) {
            // Only a panic or an endless loop fails this test.
            let _ = decode(&file);
        }
    }
}
