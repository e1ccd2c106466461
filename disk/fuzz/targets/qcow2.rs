//! qcow2: header, tables, and the pass over the stream; in order and in parallel the same comes out.
//!
//! Input: how it is fed (1 byte), flags, the file.
#![no_main]

use landfall_disk::Format;
use landfall_disk::fuzzing::{How, Stopped, decode};
use landfall_disk_fuzz::Input;
use libfuzzer_sys::fuzz_target;

const MOST: u64 = 8 << 20;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (step, flags) = (1 + usize::from(input.u8()) * 97, input.u8());
    let file = input.0;
    let threads = 1 + usize::from(flags & 1);
    let parallel = decode(Format::Qcow2, file, How { step, ordered: false, threads, most: MOST });
    if flags & 2 == 0 {
        return;
    }
    let ordered = decode(Format::Qcow2, file, How { step: 4096, ordered: true, threads: 1, most: MOST });
    match (parallel, ordered) {
        (Ok(parallel), Ok(ordered)) => {
            assert_eq!(parallel.length, ordered.length);
            assert!(parallel.bytes(MOST) == ordered.bytes(MOST), "both ways give the same image");
        }
        (Err(Stopped::Enough), _) | (_, Err(Stopped::Enough)) => {}
        (Err(parallel), Ok(_)) => panic!("only in order it decodes: {parallel:?}"),
        // Not every image can be given in order.
        (Ok(_), Err(ordered)) => assert!(matches!(&ordered, Stopped::Bad(why) if why.contains("order")), "{ordered:?}"),
        (Err(_), Err(_)) => {}
    }
});
