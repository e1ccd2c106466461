//! Archives and layers of images. Input: one byte, of which the lowest bit says that it is a layer and the next that it goes to a
//! directory of the system, and a tar stream. The checksum of each block that looks like a header is put right first.
#![no_main]

use std::{fs, io::BufReader, path::Path};

use landfall_unpack::{Limits, Manner, Target, Unpacker};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { entries: 500, bytes: 1 << 20 };

fuzz_target!(|data: &[u8]| {
    let Some((first, stream)) = data.split_first() else { return };
    let manner = if first & 1 == 1 { Manner::Layer } else { Manner::Archive };
    let path = if first & 2 == 2 { "/app" } else { "/" };
    let mut stream = stream.to_vec();
    for block in stream.as_chunks_mut::<512>().0 {
        if block[257..].starts_with(b"ustar") {
            seal(block);
        }
    }
    // In memory where there is such a place: each run is brought to the disk.
    let memory = Path::new("/dev/shm");
    let temporary = std::env::temp_dir();
    let home = if memory.is_dir() { memory } else { &temporary };
    let arena = home.join(format!("landfall-fuzz-tar-{}", std::process::id()));
    fs::create_dir_all(arena.join("root")).expect("the arena is made");
    fs::create_dir_all(arena.join("outside")).expect("the outside is made");
    fs::write(arena.join("outside/file"), "safe").expect("the outside is filled");
    let root = arena.join("root");
    let target = Target { system: &root, path, hidden: &[] };
    let unpacked = Unpacker::new(&target, LIMITS, &|| true).and_then(|mut unpacker| {
        // Odd pieces, so that headers lie across them.
        unpacker.archive(&mut BufReader::with_capacity(777, &stream[..]), manner)?;
        unpacker.finish()
    });
    match unpacked {
        Ok(tally) => assert!(tally.entries <= LIMITS.entries && tally.bytes <= LIMITS.bytes, "{tally:?}"),
        Err(error) => {
            let problem = error.problem();
            assert!(!problem.message.contains('\n') && !problem.hint.is_empty(), "{problem:?}");
        }
    }
    assert_eq!(fs::read(arena.join("outside/file")).expect("the outside stands"), b"safe");
    let names = |place: &str| fs::read_dir(arena.join(place)).map(Iterator::count).expect("it can be listed");
    assert_eq!((names(""), names("outside")), (2, 1), "nothing was made outside");
    assert!(path == "/" || names("root") == 1, "nothing was made beside the directory");
    fs::remove_dir_all(&arena).expect("the arena is removed");
});

fn seal(header: &mut [u8; 512]) {
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}
