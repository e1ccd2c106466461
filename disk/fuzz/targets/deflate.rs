//! Our own inflater against zlib's: the same streams are good, and give the same.
//!
//! Input: how it is fed, how much room it has, the raw DEFLATE stream.
#![no_main]

use flate2::{Decompress, FlushDecompress, Status};
use landfall_disk::fuzzing::inflate;
use landfall_disk_fuzz::Input;
use libfuzzer_sys::fuzz_target;

const MOST: usize = 1 << 20;

/// What zlib makes of it, and how much of the input the stream has; `None` if it is corrupt, cut or too long.
fn reference(stored: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut zlib, mut raw) = (Decompress::new(false), vec![0; MOST]);
    match zlib.decompress(stored, &mut raw, FlushDecompress::Finish) {
        Ok(Status::StreamEnd) => {
            raw.truncate(zlib.total_out() as usize);
            Some((raw, zlib.total_in() as usize))
        }
        _ => None,
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (step, room) = (1 + usize::from(input.u8()) * 5, 1 + usize::from(input.u8()) * 257);
    let stored = input.0;
    let ended = |(raw, end): (Vec<u8>, Option<usize>)| end.map(|end| (raw, end));
    let whole = inflate(stored, stored.len(), MOST, MOST).ok().and_then(ended);
    let pieces = inflate(stored, step, room, MOST).ok().and_then(ended);
    let fits = |found: &Option<(Vec<u8>, usize)>| found.as_ref().is_none_or(|(raw, _)| raw.len() < MOST);
    let zlib = reference(stored);
    if fits(&whole) && fits(&pieces) && fits(&zlib) {
        assert!(whole == zlib, "ours {:?}, zlib's {:?}", summary(&whole), summary(&zlib));
        assert!(pieces == zlib, "ours in pieces {:?}, zlib's {:?}", summary(&pieces), summary(&zlib));
    }
});

fn summary(found: &Option<(Vec<u8>, usize)>) -> Option<(usize, usize)> {
    found.as_ref().map(|(raw, end)| (raw.len(), *end))
}
