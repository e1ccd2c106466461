//! Disks that fail, lie, lose and shrink: a typed error that names the place, or success with the right bytes, and nothing
//! is committed that is not there.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use crate::common::device::{DISK, Device, PHYSICAL, SECTOR, Zeroing};
use crate::common::formats::{bmap, qcow2};
use crate::common::order::DEVICE;
use crate::common::watch::Watch;
use crate::common::{MIB, MemorySource, digest, gpt_image, mark, mbr_image, noise, packed, vmdk, words};
use bzip2::{Compression, write::BzEncoder};
use landfall_api::{DiskReceipt, ErrorCode, ReceiptState};
use landfall_disk::judge::{Findings, State, judge};
use landfall_disk::{
    Expectation, Index, Installed, Order, RECEIPT_PLACE, Unobserved, WriteError, clear_device, install, read_mark,
    what_is_there,
};
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

/// 6 MiB; 3 to 4 MiB is zero, and runs of zeroes are elsewhere.
fn image() -> Vec<u8> {
    let mut image = gpt_image(6 * MIB, 512, &[(2048, 6143), (6144, 12200)], 3);
    image[3 * MIB as usize..4 * MIB as usize].fill(0);
    image
}

fn order<'a>(expectation: Expectation<'a>, image: &[u8], compare: bool, read_back: bool) -> Order<'a> {
    Order { compare, read_back, ..crate::common::order::order(expectation, mark(image, DISK)) }
}

fn run(device: &Device, compare: bool, read_back: bool) -> Result<Installed, WriteError> {
    let image = image();
    let stored = zstd::encode_all(&image[..], 1).unwrap();
    let order = order(Expectation::Stored(digest(&stored)), &image, compare, read_back);
    install(device, &mut MemorySource::new(&stored), &order, &Unobserved)
}

fn run_packed(device: &Device, compare: bool, read_back: bool) -> Result<Installed, WriteError> {
    let image = image();
    let (stored, index) = packed(&image, 256 << 10);
    let order = order(Expectation::Index(&index), &image, compare, read_back);
    install(device, &mut MemorySource::new(&stored), &order, &Unobserved)
}

type Run = fn(&Device, bool, bool) -> Result<Installed, WriteError>;
const BOTH: [Run; 2] = [run, run_packed];

/// A disk with an old system, and noise everywhere else.
fn old() -> Vec<u8> {
    static OLD: OnceLock<Vec<u8>> = OnceLock::new();
    OLD.get_or_init(make_old).clone()
}

fn make_old() -> Vec<u8> {
    let mut old = noise(DISK, 1);
    for zero in old.chunks_exact_mut(8).filter(|bytes| **bytes == [0; 8]) {
        zero.copy_from_slice(b"old data");
    }
    let table = gpt_image(DISK, 512, &[(4096, 16000)], 9);
    let place = RECEIPT_PLACE.start as usize..RECEIPT_PLACE.end as usize;
    old[..34 * 512].copy_from_slice(&table[..34 * 512]);
    old[DISK as usize - 33 * 512..].copy_from_slice(&table[DISK as usize - 33 * 512..]);
    old[place].fill(0);
    old
}

fn assert_installed(device: &Device, case: &str) {
    let (disk, image) = (device.content(), image());
    let part = MIB as usize..12201 * 512;
    assert!(disk[part.clone()] == image[part], "{case}: the partitions differ");
    let found = Findings::of(&disk, 512).unwrap();
    assert!(found.uefi_boots() && found.primary.is_some() && found.backup.is_some(), "{case}");
}

fn assert_unbootable(device: &Device, case: &str) {
    assert!(!Findings::of(&device.content(), 512).unwrap().anything_boots(), "{case}: it boots");
}

#[test]
fn a_sector_that_takes_no_write_is_named() {
    // LBA 0, the header, the entries, the gap, the receipt's place, edges of blocks, zeroes, the backup table and header.
    let last = DISK / SECTOR - 1;
    for sector in [0, 1, 2, 33, 500, 2040, 2048, 2049, 4095, 5000, 6143, 7000, 9000, 12200, last - 32, last] {
        for (which, run) in BOTH.into_iter().enumerate() {
            for zeroing in [Zeroing::Makes, Zeroing::Refuses] {
                let bad_writes = sector * SECTOR..(sector + 1) * SECTOR;
                let device = Device { bad_writes, zeroing, ..Device::new(old()) };
                let error = run(&device, false, false).unwrap_err();
                assert_eq!(error.code(), ErrorCode::DeviceIo, "{error}");
                let (text, name) = (words(&error), format!("sector {sector} "));
                assert!(text.contains(&name) && text.contains(DEVICE), "sector {sector}, {which}: {text}");
                let state = judge(&device.content(), &old(), &vec![0; DISK as usize], 512).unwrap();
                assert!([State::Old, State::Unbootable].contains(&state), "sector {sector}: {state}");
            }
        }
    }
}

#[test]
fn an_unreadable_sector_is_named_before_anything_is_destroyed() {
    for sector in [0, 1, DISK / SECTOR - 1] {
        let device = Device { bad_reads: sector * SECTOR..(sector + 1) * SECTOR, ..Device::new(old()) };
        let error = run(&device, false, false).unwrap_err();
        assert_eq!(error.code(), ErrorCode::DeviceIo);
        assert!(error.to_string().contains("partition table"), "{error}");
        assert!(device.content() == old(), "the disk was touched");
    }
}

/// The same with a person's word that what cannot be read is lost.
fn run_forced(device: &Device, keep: &[String]) -> Result<Installed, WriteError> {
    let image = image();
    let order = order(Expectation::Stored(digest(&image)), &image, false, true);
    let order = Order { forgive: true, keep, ..order };
    install(device, &mut MemorySource::new(&image), &order, &Unobserved)
}

#[test]
fn a_torn_sector_is_written_over_with_a_persons_word() {
    // LBA 0 and the tables, the receipt, where signatures are looked for, and both ends of the backup table.
    for at in [0, 4096, RECEIPT_PLACE.start, 2 * MIB, 4 * MIB, DISK - 5 * PHYSICAL, DISK - PHYSICAL] {
        let torn = || Device { torn: Mutex::new(Some(at)), ..Device::new(old()) };
        let device = torn();
        run_forced(&device, &[]).unwrap_or_else(|error| panic!("{at}: {}", words(&error)));
        assert_installed(&device, &format!("torn at {at}"));
        let device = torn();
        let without = run(&device, false, false);
        if at < MIB || at == DISK - PHYSICAL {
            assert_eq!(without.unwrap_err().code(), ErrorCode::DeviceIo, "{at}");
        }
    }
    // The intent survives its own sector's repair.
    let device = Device { torn: Mutex::new(Some(RECEIPT_PLACE.start)), ..Device::new(old()) };
    let image = image();
    let forced = Order { forgive: true, ..order(Expectation::Stored(digest(b"other")), &image, false, false) };
    install(&device, &mut MemorySource::new(&image), &forced, &Unobserved).unwrap_err();
    assert_eq!(read_mark(&device.content()).unwrap().unwrap().receipt.state, ReceiptState::Intent);
    // Clearing is an install's start.
    for at in [0, RECEIPT_PLACE.start, DISK - PHYSICAL] {
        let device = Device { torn: Mutex::new(Some(at)), ..Device::new(old()) };
        clear_device(&device, &forced, &Unobserved, || Ok(())).unwrap();
        assert_unbootable(&device, "cleared");
        assert!(what_is_there(&device.content()).unwrap().is_none(), "{at}");
    }
    // Which partitions there were cannot be read, so none can be kept.
    let device = Device { bad_reads: 0..DISK, ..Device::new(old()) };
    assert!(run_forced(&device, &["root".into()]).is_err());
    assert!(device.content() == old(), "nothing was written");
}

#[test]
fn a_disk_that_fails_everywhere_is_left_even_with_force() {
    let device = Device { bad_reads: 0..DISK, ..Device::new(old()) };
    let error = run_forced(&device, &[]).unwrap_err();
    assert!(matches!(error, WriteError::Unreadable { .. } | WriteError::DeviceIo { .. }), "{error:?}");
    assert!(device.content() == old() || !Findings::of(&device.content(), 512).unwrap().anything_boots());
}

#[test]
fn a_failed_read_back_names_the_sector_and_commits_nothing() {
    for run in BOTH {
        let device = Device { bad_reads: 4700 * SECTOR..4701 * SECTOR, ..Device::new(old()) };
        let error = run(&device, false, true).unwrap_err();
        assert!(error.code() == ErrorCode::DeviceIo && error.to_string().contains("read back"), "{error}");
        assert_unbootable(&device, "read back");
    }
}

#[test]
fn what_cannot_be_read_for_a_comparison_is_written() {
    for run in BOTH {
        let device = Device { bad_reads: 4700 * SECTOR..4701 * SECTOR, ..Device::new(old()) };
        run(&device, true, false).unwrap();
        assert_installed(&device, "compared");
    }
}

#[test]
fn zeroes_that_the_device_only_said_it_made_are_written() {
    for (which, run) in BOTH.into_iter().enumerate() {
        let mut hollow = old();
        // Zero wherever a look at the two ends would fall, and something in between.
        for edge in [3 * MIB, 4 * MIB] {
            hollow[edge as usize - 8192..edge as usize + 8192].fill(0);
        }
        for old in [old(), hollow] {
            let device = Device { zeroing: Zeroing::Lies, ..Device::new(old) };
            run(&device, false, false).unwrap();
            assert_installed(&device, &format!("a liar, {which}"));
        }
    }
}

#[test]
fn a_disk_that_fakes_zeroes_never_boots_unverified() {
    let device = Device { zeroing: Zeroing::Lies, ..Device::new(old()) };
    let image = image();
    // Another digest: the whole body is written, and the verdict is no.
    let order = order(Expectation::Stored(digest(b"another")), &image, false, false);
    install(&device, &mut MemorySource::new(&image), &order, &Unobserved).unwrap_err();
    assert_unbootable(&device, "a liar");
}

#[test]
fn a_disk_that_refuses_to_make_zeroes_gets_them_written() {
    for run in BOTH {
        let device = Device { zeroing: Zeroing::Refuses, ..Device::new(old()) };
        run(&device, false, true).unwrap();
        assert_installed(&device, "refused");
    }
}

#[test]
fn a_slow_disk_is_waited_for() {
    for run in BOTH {
        let device = Device { slow: Duration::from_millis(2), ..Device::new(old()) };
        run(&device, true, true).unwrap();
        assert_installed(&device, "slow");
    }
}

#[test]
fn reading_back_finds_flipped_bits_and_lost_writes() {
    let last = DISK / SECTOR - 1;
    // In the gap, in data, in zeroes that replaced something, in a partition's last sector; then what the commit writes.
    let places = [500, 2048, 5000, 7000, 12200, 1, 2, last - 32, last, 0];
    for sector in places {
        for (which, run) in BOTH.into_iter().enumerate() {
            let at = sector * SECTOR + 11;
            // What is lost was not written by clearing either, and must differ from what should be there.
            let flips = Device { flips: Some(at), ..Device::new(old()) };
            let mut before = old();
            let here = (sector * SECTOR) as usize..((sector + 1) * SECTOR) as usize;
            before[here].fill(0x77);
            let loses = Device { loses: sector * SECTOR..(sector + 1) * SECTOR, ..Device::new(before) };
            for (what, device) in [("flipped", flips), ("lost", loses)] {
                let error = run(&device, false, true).unwrap_err();
                let case = format!("{what}, sector {sector}, {which}: {error:?}");
                match error {
                    WriteError::ReadBack { offset, length, .. } => {
                        assert!((offset..offset + length).contains(&at), "{case}");
                    }
                    _ => panic!("{case}"),
                }
                let found = Findings::of(&device.content(), 512).unwrap();
                match which_step(sector) {
                    Step::Body => assert!(!found.anything_boots(), "{case}: it boots"),
                    // All that is there is verified by then, and still no firmware that is known takes it.
                    Step::Table => assert!(!found.boot_signature, "{case}: it boots"),
                    // There only success can be denied.
                    Step::Lba0 => {}
                }
            }
        }
    }
}

enum Step {
    Body,
    Table,
    Lba0,
}

fn which_step(sector: u64) -> Step {
    match sector {
        0 => Step::Lba0,
        1..2048 => Step::Table,
        _ if sector >= DISK / SECTOR - 33 => Step::Table,
        _ => Step::Body,
    }
}

#[test]
fn an_image_that_needs_more_memory_is_refused_unwritten() {
    let image = image();
    let window = |log: u32| {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
        encoder.set_parameter(zstd::zstd_safe::CParameter::WindowLog(log)).unwrap();
        std::io::Write::write_all(&mut encoder, &image).unwrap();
        encoder.finish().unwrap()
    };
    let xz = |dictionary: u32| {
        let mut options = liblzma::stream::LzmaOptions::new_preset(0).unwrap();
        options.dict_size(dictionary);
        let filters = [liblzma::stream::Filters::new()];
        let [mut filters] = filters;
        filters.lzma2(&options);
        let stream = liblzma::stream::Stream::new_stream_encoder(&filters, liblzma::stream::Check::Crc64).unwrap();
        let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
        std::io::Write::write_all(&mut encoder, &image).unwrap();
        encoder.finish().unwrap()
    };
    let (small, large, chunks) = (window(20), window(26), packed(&image, 4 << 20));
    let bzip2 = |level: u32| {
        let mut encoder = BzEncoder::new(Vec::new(), Compression::new(level));
        std::io::Write::write_all(&mut encoder, &image).unwrap();
        encoder.finish().unwrap()
    };
    let lz4 = |mode: BlockMode| {
        let info = FrameInfo::new().block_size(BlockSize::Max4MB).block_mode(mode);
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        std::io::Write::write_all(&mut encoder, &image).unwrap();
        encoder.finish().unwrap()
    };
    let cases: [(&str, &[u8], Expectation<'_>, u64); 8] = [
        ("raw", &image, Expectation::Waived, 32),
        ("zstd, 1 MiB", &small, Expectation::Waived, 33),
        ("zstd, 64 MiB", &large, Expectation::Waived, 96),
        ("xz, 64 MiB", &xz(64 << 20), Expectation::Waived, 96),
        // 3.7 million bytes are 3.5 MiB.
        ("bzip2 -9", &bzip2(9), Expectation::Waived, 35),
        ("lz4, blocks of 4 MiB", &lz4(BlockMode::Independent), Expectation::Waived, 40),
        ("lz4, linked blocks of 4 MiB", &lz4(BlockMode::Linked), Expectation::Waived, 44),
        ("chunks of 4 MiB", &chunks.0, Expectation::Index(&chunks.1), 48),
    ];
    let qcow2 = qcow2(&image);
    // The buffers; 1 MiB of head; four batches of 4 MiB; tables and the clusters in hand are less than 1 MiB.
    let qcow2 = qcow2.as_deref().map(|stored| ("qcow2", stored, Expectation::Waived, 49));
    // Three grains of 4 MiB; its table is less than 1 MiB.
    let vmdk = vmdk::of(&image, 8192).bytes;
    let vmdk = ("vmdk, grains of 4 MiB", &vmdk[..], Expectation::Waived, 44);
    for (what, stored, expectation, needed) in cases.into_iter().chain(qcow2).chain([vmdk]) {
        for read_back in [false, true] {
            let install_in = |memory: u64| {
                let device = Device::new(old());
                let order = Order { memory: Some(memory), ..order(expectation, stored, false, read_back) };
                let result = install(&device, &mut MemorySource::new(stored), &order, &Unobserved);
                (result, device.content() == old())
            };
            let (result, untouched) = install_in(needed * MIB - 1);
            let error = result.expect_err(what);
            assert!(error.code() == ErrorCode::NotEnoughMemory && untouched, "{what}: {error}");
            assert!(error.problem().hint.contains("give the machine more memory"), "{what}");
            let (needs, has) = (error.to_string(), format!("has {} MiB", needed - 1));
            assert!(needs.contains("MiB of memory") && needs.contains(&has), "{what}: {needs}");
            assert!(install_in(needed * MIB + 64 * MIB).0.is_ok(), "{what}");
        }
    }
}

#[test]
fn a_lost_receipt_is_no_success() {
    for run in BOTH {
        let device = Device { loses: RECEIPT_PLACE, ..Device::new(old()) };
        let error = run(&device, false, true).unwrap_err();
        assert!(matches!(error, WriteError::ReadBack { offset, .. } if offset == RECEIPT_PLACE.start), "{error:?}");
    }
}

#[test]
fn a_failed_flush_ends_the_write_at_once() {
    for run in BOTH {
        let good = Device::new(old());
        run(&good, false, false).unwrap();
        let (flushes, new) = (good.flushes.load(Ordering::Acquire), good.content());
        assert!(flushes > 6);
        let mut said = Vec::new();
        for bad_flush in 1..=flushes {
            let device = Device { bad_flush, ..Device::new(old()) };
            let error = run(&device, false, false).unwrap_err();
            assert_eq!(error.code(), ErrorCode::DeviceIo);
            said.push(error.to_string());
            assert_eq!(device.flushes.load(Ordering::Acquire), bad_flush, "it went on after a flush that failed");
            let state = judge(&device.content(), &old(), &new, 512).unwrap();
            // Without LBA 0 the most lenient firmware may still find the old table, and near the end the new one.
            assert!(state != State::Broken, "flush {bad_flush}: {state}");
            let signed = Findings::of(&device.content(), 512).unwrap().boot_signature;
            assert!(signed == (bad_flush == 1 || bad_flush == flushes), "flush {bad_flush}: {state}");
        }
        assert_eq!(said.len(), STEPS_FLUSHED.len(), "{said:?}");
        for (said, step) in said.iter().zip(STEPS_FLUSHED) {
            assert_eq!(*said, format!("cannot flush {step} {DEVICE}"));
        }
    }
}

/// What the flushes of an install follow, in order.
const STEPS_FLUSHED: [&str; 11] = [
    "the receipt to", "the clearing of LBA 0 of", "the clearing of the partition table of",
    "the clearing of the backup partition table of", "the clearing of the old partitions of",
    "the clearing of both ends of", "the image to", "the image's first and last bytes to",
    "the backup partition table to", "the partition table and the receipt to", "LBA 0 to",
];

#[test]
fn an_intent_is_reported_even_if_its_flush_failed() {
    // Otherwise the next attempt would find an unexpected receipt.
    let (device, reported) = (Device { bad_flush: 1, ..Device::new(old()) }, Mutex::new(Vec::new()));
    let receipt = |written: &DiskReceipt| reported.lock().unwrap().push(written.receipt.state);
    let image = image();
    let order = order(Expectation::Stored(digest(&image)), &image, false, false);
    install(&device, &mut MemorySource::new(&image), &order, &Watch { receipt: &receipt, ..Watch::default() })
        .unwrap_err();
    assert_eq!(read_mark(&device.content()).unwrap().unwrap().receipt.state, ReceiptState::Intent);
    assert_eq!(*reported.lock().unwrap(), [ReceiptState::Intent]);
}

#[test]
fn a_disk_that_shrinks_meanwhile_is_never_committed() {
    for run in BOTH {
        let good = Device::new(old());
        run(&good, false, false).unwrap();
        let ops = good.ops.load(Ordering::Acquire);
        for shrinks in [0, 1, ops / 4, ops / 2, ops * 3 / 4, ops - 8] {
            let device = Device { shrinks, ..Device::new(old()) };
            let error = run(&device, false, false).unwrap_err();
            assert_eq!(error.code(), ErrorCode::DeviceIo, "{error:?}");
            let state = judge(&device.content(), &old(), &vec![0; DISK as usize], 512).unwrap();
            assert!([State::Old, State::Unbootable].contains(&state), "after {shrinks} of {ops}: {state}");
        }
    }
}

#[test]
fn an_image_larger_than_the_disk_is_refused_unwritten() {
    // Its own table claims 6 MiB, so that nothing but the length of what follows says that it is too large.
    let mut long = image();
    long.extend(noise(6 * MIB, 4));
    let claims = gpt_image(12 * MIB, 512, &[(2048, 23000)], 2);
    let refused = |what: &str, source: &[u8], expectation: Expectation<'_>| {
        let device = Device::new(old());
        let error =
            install(&device, &mut MemorySource::new(source), &order(expectation, source, false, false), &Unobserved)
                .unwrap_err();
        match error {
            WriteError::DiskTooSmall { needed, size, .. } => assert_eq!((needed, size), (12 * MIB, DISK), "{what}"),
            other => panic!("{what}: {other:?}"),
        }
        assert_eq!((device.ops.load(Ordering::Acquire), device.flushes.load(Ordering::Acquire)), (0, 0), "{what}");
        assert!(device.content() == old(), "{what}");
    };
    let stored = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
    refused("the GPT", &stored(&claims), Expectation::Stored(digest(&stored(&claims))));
    refused("the length of a raw image", &long, Expectation::Stored(digest(&long)));
    let mbr = mbr_image(12 * MIB, 7);
    refused("a table of the old kind", &mbr, Expectation::Stored(digest(&mbr)));
    let (chunks, index) = packed(&long, MIB as usize);
    refused("a manifest", &chunks, Expectation::Index(&index));
    let map = Index::parse(bmap(&long).as_bytes()).unwrap();
    refused("a bmap", &long, Expectation::Index(&map));
    refused("a bmap of something compressed", &stored(&long), Expectation::Index(&map));
    match qcow2(&long) {
        Some(file) => refused("a qcow2", &file, Expectation::Stored(digest(&file))),
        None => eprintln!("SKIPPED: qcow2: no qemu-img"),
    }
    let vmdk = vmdk::of(&long, 128).bytes;
    refused("a vmdk", &vmdk, Expectation::Stored(digest(&vmdk)));
}
