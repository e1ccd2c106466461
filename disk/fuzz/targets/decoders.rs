//! The decoders of gzip, xz, zstd, bzip2 and lz4: input in other pieces gives the same output, and if the reference
//! library of the format is available, it agrees.
//!
//! Input: format, how it is fed, the stored bytes.
#![no_main]

use std::io::Read;

use landfall_disk::Format;
use landfall_disk::fuzzing::{How, Stopped, decode};
use landfall_disk_fuzz::Input;
use libfuzzer_sys::fuzz_target;

const MOST: u64 = 4 << 20;
const FORMATS: [Format; 5] = [Format::Gzip, Format::Xz, Format::Zstd, Format::Bzip2, Format::Lz4];

fn reference(format: Format, stored: &[u8]) -> Option<Vec<u8>> {
    let mut raw = Vec::new();
    match format {
        Format::Gzip => flate2::read::MultiGzDecoder::new(stored).read_to_end(&mut raw).ok()?,
        Format::Xz => liblzma::read::XzDecoder::new_multi_decoder(stored).read_to_end(&mut raw).ok()?,
        Format::Zstd => zstd::stream::read::Decoder::new(stored).ok()?.read_to_end(&mut raw).ok()?,
        Format::Bzip2 => bzip2::read::MultiBzDecoder::new(stored).read_to_end(&mut raw).ok()?,
        // Its decoder stops at the end of the first frame.
        _ => return None,
    };
    Some(raw)
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let format = FORMATS[usize::from(input.u8()) % FORMATS.len()];
    let step = 1 + usize::from(input.u8()) * 33;
    let stored = input.0;
    let one = decode(format, stored, How { step, ordered: true, threads: 1, most: MOST });
    let other = decode(format, stored, How { step: stored.len(), ordered: false, threads: 2, most: MOST });
    match (one, other) {
        (Ok(one), Ok(other)) => {
            let raw = one.bytes(MOST).expect("it is no more than was asked for");
            assert!(
                other.bytes(MOST).as_ref() == Some(&raw),
                "{format}: the same input in other pieces gives another output"
            );
            if format != Format::Lz4 {
                assert!(reference(format, stored) == Some(raw), "{format}: the reference library disagrees");
            }
        }
        (Err(Stopped::Enough), _) | (_, Err(Stopped::Enough)) | (Err(_), Err(_)) => {}
        (one, other) => panic!("{format}: in order {:?}, in parallel {:?}", one.map(drop), other.map(drop)),
    }
});
