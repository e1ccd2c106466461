//! What `landfall-image pack` makes, judged by zstd's own tool, by the digests computed anew, and by what it refuses.

use std::fs;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use landfall_disk::{ChunkKind, Index, IndexError, SeekTable};
use landfall_image::inspect::{InspectError, Report, inspect};
use landfall_image::pack;
use landfall_image::pack::{PackError, Packed, Recipe, index_path, pack};
use sha2::{Digest as _, Sha256};

const CHUNK: usize = 64 << 10;

/// Ten chunks and a half: text, noise, holes and written zeros.
fn disk() -> Vec<u8> {
    let mut disk = vec![0; 10 * CHUNK + CHUNK / 2];
    for (at, byte) in disk[..2 * CHUNK].iter_mut().enumerate() {
        *byte = b"landfall "[at % 9];
    }
    let mut state = 1_u32;
    for byte in &mut disk[5 * CHUNK + 512..7 * CHUNK] {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = state.to_be_bytes()[0];
    }
    // The last byte of a chunk that is zero otherwise.
    disk[9 * CHUNK - 1] = 1;
    disk
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn packed(input: &Path, output: &Path, threads: usize) -> Result<Packed, PackError> {
    pack(&Recipe {
        input,
        output,
        index: None,
        level: 3,
        chunk: Some(CHUNK as u64),
        threads: NonZeroUsize::new(threads).unwrap(),
    })
}

/// That disk, packed: a directory with all of it, the disk, the packed image, and what was said of it.
fn packed_disk(threads: usize) -> (tempfile::TempDir, Vec<u8>, PathBuf, Packed) {
    let (dir, disk) = (tempfile::tempdir().unwrap(), disk());
    let output = dir.path().join("disk.zst");
    let report = packed(&write(dir.path(), "disk.img", &disk), &output, threads).unwrap();
    (dir, disk, output, report)
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn any_zstd_tool_unpacks_it_to_the_same_bytes() {
    let (_dir, disk, output, _) = packed_disk(2);
    let mut read = Vec::new();
    zstd::Decoder::new(File::open(&output).unwrap()).unwrap().read_to_end(&mut read).unwrap();
    assert!(read == disk, "the library reads something else");
    match Command::new("zstd").args(["-d", "-c"]).arg(&output).output() {
        Ok(run) => {
            assert!(run.status.success() && run.stdout == disk, "zstd: {}", String::from_utf8_lossy(&run.stderr))
        }
        Err(error) => eprintln!("zstd cannot be run ({error}); only the library was asked"),
    }
}

#[test]
fn every_chunk_decodes_alone_with_the_indexed_digests() {
    let (_dir, disk, output, report) = packed_disk(3);
    let (stored, text) = (fs::read(&output).unwrap(), fs::read(index_path(&output)).unwrap());
    let index = Index::parse(&text).unwrap();
    assert_eq!(report.index_digest.as_bytes(), Sha256::digest(&text).as_slice());
    assert_eq!(index.stored_digest.unwrap().as_bytes(), Sha256::digest(&stored).as_slice());
    assert_eq!(index.raw_digest.unwrap().as_bytes(), Sha256::digest(&disk).as_slice());
    assert_eq!((index.raw_bytes, index.stored_bytes), (disk.len() as u64, stored.len() as u64));
    assert_eq!((report.data_chunks, report.zero_chunks), (5, 6));
    let runs: Vec<_> = index.chunks.iter().map(|c| (c.is_data(), c.raw_bytes().div_ceil(CHUNK as u64))).collect();
    assert_eq!(runs, [(true, 1), (true, 1), (false, 3), (true, 1), (true, 1), (false, 1), (true, 1), (false, 2)]);
    for chunk in &index.chunks {
        let raw = &disk[usize::try_from(chunk.raw.start).unwrap()..usize::try_from(chunk.raw.end).unwrap()];
        let frames = &stored[usize::try_from(chunk.stored.start).unwrap()..usize::try_from(chunk.stored.end).unwrap()];
        assert!(zstd::decode_all(frames).unwrap() == raw);
        let ChunkKind::Data { stored_digest, raw_digest } = chunk.kind else {
            assert!(raw.iter().all(|byte| *byte == 0));
            continue;
        };
        assert_eq!(stored_digest.unwrap(), Sha256::digest(frames).as_slice());
        assert_eq!(raw_digest.unwrap(), Sha256::digest(raw).as_slice());
        // One frame, which states its size and carries a checksum (RFC 8878, 3.1.1.1.1: descriptor bit 2).
        assert_eq!(zstd::zstd_safe::find_frame_compressed_size(frames), Ok(frames.len()));
        assert_eq!(zstd::zstd_safe::get_frame_content_size(frames).unwrap(), Some(raw.len() as u64));
        assert_ne!(frames[4] & 4, 0);
    }
}

#[test]
fn the_seek_table_lists_every_frame_and_ends_the_file() {
    let (_dir, disk, output, _) = packed_disk(2);
    let stored = fs::read(&output).unwrap();
    let table = SeekTable::parse(&stored).unwrap();
    assert_eq!(table.frames.len(), 11);
    let (mut at, mut raw_at) = (0, 0);
    for frame in &table.frames {
        let end = at + frame.stored as usize;
        let raw = zstd::decode_all(&stored[at..end]).unwrap();
        assert!(raw == disk[raw_at..raw_at + frame.raw as usize]);
        (at, raw_at) = (end, raw_at + raw.len());
    }
    assert_eq!((at + table.to_bytes().unwrap().len(), raw_at), (stored.len(), disk.len()));
}

#[test]
fn threads_holes_and_the_inputs_compression_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk();
    let plain = write(dir.path(), "disk.img", &disk);
    let sparse = dir.path().join("sparse.img");
    let file = File::create(&sparse).unwrap();
    file.set_len(disk.len() as u64).unwrap();
    for (number, page) in disk.chunks(4096).enumerate().filter(|(_, page)| page.iter().any(|byte| *byte != 0)) {
        file.write_all_at(page, number as u64 * 4096).unwrap();
    }
    let zst = write(dir.path(), "a", &zstd::encode_all(&disk[..], 1).unwrap());
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&disk).unwrap();
    let gz = write(dir.path(), "b", &gzip.finish().unwrap());
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 0);
    xz.write_all(&disk).unwrap();
    let xz = write(dir.path(), "c", &xz.finish().unwrap());

    let first = dir.path().join("first.zst");
    packed(&plain, &first, 1).unwrap();
    let bytes = (fs::read(&first).unwrap(), fs::read(index_path(&first)).unwrap());
    for (input, threads) in
        [(&plain, 1), (&plain, 2), (&plain, 7), (&sparse, 2), (&zst, 3), (&gz, 2), (&xz, 2), (&first, 2)]
    {
        let output = dir.path().join("again.zst");
        packed(input, &output, threads).unwrap();
        let again = (fs::read(&output).unwrap(), fs::read(index_path(&output)).unwrap());
        assert!(again == bytes, "{} with {threads} threads", input.display());
    }
}

#[test]
fn a_failed_run_says_why_and_leaves_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("out.zst");
    fs::write(&output, "old").unwrap();
    fs::write(index_path(&output), "old").unwrap();
    let mut cut = zstd::encode_all(&disk()[..], 1).unwrap();
    cut.truncate(cut.len() / 2);
    let mut longer = zstd::encode_all(&disk()[..], 1).unwrap();
    longer.extend(b"garbage");
    let gzipped = zstd::encode_all(&disk()[..100_000], 1).unwrap();
    for (name, bytes, said) in [
        ("empty", &b""[..], "is empty"),
        ("odd", &[1; 513], "513 bytes, which is not a multiple of 512"),
        ("odd.zst", &gzipped, "100000 bytes, which is not a multiple of 512"),
        ("cut.zst", &cut, "cannot read the disk image"),
        ("longer.zst", &longer, "cannot read the disk image"),
        ("x.qcow2", b"QFI\xfb and so on", "qemu-img convert"),
        ("x.bz2", b"BZh91AY&SY", "bzip2 -dc"),
    ] {
        let error = anyhow::Error::from(packed(&write(dir.path(), name, bytes), &output, 2).unwrap_err());
        assert!(format!("{error:#}").contains(said), "{name}: {error:#}");
    }
    assert!(matches!(packed(&dir.path().join("none"), &output, 2), Err(PackError::Input { .. })));
    assert!(matches!(packed(dir.path(), &output, 2), Err(PackError::Input { .. })));
    assert_eq!((fs::read(&output).unwrap(), fs::read(index_path(&output)).unwrap()), (b"old".into(), b"old".into()));
    assert!(names(dir.path()).iter().all(|name| !name.ends_with(".tmp")), "{:?}", names(dir.path()));
}

#[test]
fn impossible_requests_are_refused_before_anything_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let input = write(dir.path(), "disk.img", &disk());
    let output = dir.path().join("out.zst");
    let nowhere = dir.path().join("no/such/out.zst");
    assert!(matches!(packed(&input, &nowhere, 1), Err(PackError::NoDirectory(path)) if path == nowhere));
    assert!(matches!(packed(&input, &input, 1), Err(PackError::Same(_))));
    let recipe = |chunk, index| Recipe {
        input: &input,
        output: &output,
        index,
        level: 1,
        chunk: Some(chunk),
        threads: NonZeroUsize::MIN,
    };
    assert!(matches!(pack(&recipe(4096, Some(&output))), Err(PackError::Same(_))));
    assert!(matches!(pack(&recipe(4096, Some(&input))), Err(PackError::Same(_))));
    for chunk in [0, 512, 12_288, 32 << 20, u64::MAX] {
        assert!(matches!(pack(&recipe(chunk, None)), Err(PackError::Chunk(_))), "{chunk}");
    }
    assert_eq!(names(dir.path()), ["disk.img"]);
}

#[test]
fn a_disk_of_nothing_but_zeros_is_one_run() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("disk.img");
    File::create(&input).unwrap().set_len((3 << 20) + 512).unwrap();
    let output = dir.path().join("disk.zst");
    let report = pack(&Recipe {
        input: &input,
        output: &output,
        index: None,
        level: pack::DEFAULT_LEVEL,
        chunk: None,
        threads: NonZeroUsize::MIN,
    })
    .unwrap();
    assert_eq!((report.chunk_bytes, report.data_chunks, report.zero_chunks), (1 << 20, 0, 4));
    assert_eq!(report.fetched_bytes, 0);
    let index = Index::parse(&fs::read(report.index).unwrap()).unwrap();
    assert_eq!(index.chunks.len(), 1);
    assert_eq!(zstd::decode_all(File::open(&output).unwrap()).unwrap().len(), (3 << 20) + 512);
}

#[test]
fn inspect_says_what_an_index_says() {
    let (dir, _, output, report) = packed_disk(1);
    let Report::Index(index) = inspect(&report.index).unwrap() else { panic!("not seen as an index") };
    assert_eq!((index.digest, index.bmap), (report.index_digest.to_string(), false));
    assert_eq!((index.raw_bytes, index.data_bytes), (report.raw_bytes, 5 * CHUNK as u64));
    assert_eq!((index.data_chunks, index.zero_runs), (5, 3));
    assert_eq!(index.fetched_bytes, Some(report.fetched_bytes));
    // The image itself is not an index and is never accepted as one.
    assert_eq!(Index::parse(&fs::read(&output).unwrap()), Err(IndexError::Unknown));
    let cut = write(dir.path(), "cut", &fs::read(&report.index).unwrap()[..400]);
    assert!(matches!(inspect(&cut), Err(InspectError::Index { .. })));
}
