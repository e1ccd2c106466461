//! How the pieces come: in order where that is asked for, and large.

use std::sync::Arc;

use crossbeam_channel::unbounded;

use super::*;
use crate::buffer::Pool;
use crate::decode::{Decoded, Sink};

const MIB: usize = 1 << 20;

/// Offset, length and whether it is more than zeroes, of every piece as it came.
fn pieces(file: &[u8], limits: Limits) -> Result<Vec<(u64, u64, bool)>, DecodeError> {
    let plan = plan(file)?;
    let (out, came) = unbounded();
    let mut sink = Sink::new(Arc::new(Pool::new(MIB)), out);
    let done = plan.decode(&mut Pieces { bytes: file, step: 300_000 }, &mut sink, limits);
    drop(sink);
    let came: Vec<_> = came
        .iter()
        .map(|piece| match piece.unwrap() {
            Decoded::Block { offset, bytes } => (offset, bytes.len as u64, true),
            Decoded::Zeroes(range) => (range.start, range.end - range.start, false),
        })
        .collect();
    assert!(done.is_ok() || limits.ordered && came.is_empty(), "refused only before anything was sent");
    done.map(|()| came)
}

#[test]
fn images_from_qemu_img_decode_in_disk_order() {
    let lab = Lab::new();
    let raw = disk(20 * MIB + 1536);
    for words in [
        "", "-c", "-c -o compression_type=zstd", "-o cluster_size=4k", "-c -o cluster_size=2M", "-o preallocation=full",
    ] {
        let file = lab.convert(&raw, words);
        let mut next = 0;
        for (offset, length, _) in pieces(&file, ORDERED).unwrap_or_else(|e| panic!("{words}: {e:?}")) {
            assert_eq!(offset, next, "{words}");
            next = offset + length;
        }
        assert_eq!(next, raw.len() as u64, "{words}");
        assert!(decode(&file, ORDERED, 77_777).unwrap() == raw, "{words}");
    }
}

#[test]
fn unordered_images_are_refused_before_output_if_order_matters() {
    let lab = Lab::new();
    lab.run("qemu-img", "create -f qcow2 image 40M");
    lab.io("image", &["write -P 1 30M 6M", "write -P 2 10M 6M"]);
    let file = lab.read("image");
    let text = reason(pieces(&file, ORDERED).unwrap_err());
    assert!(text.contains("give the digest of the stored file instead"), "{text}");
    assert!(decode(&file, UNORDERED, 1 << 20).unwrap() == lab.reference("image"));
}

#[test]
fn a_little_disorder_is_put_in_order() {
    let lab = Lab::new();
    lab.run("qemu-img", "create -f qcow2 image 12M");
    lab.io(
        "image",
        &["write -P 1 4M 64k", "write -P 2 3M 64k", "write -c -P 3 2M 64k", "write -P 4 8M 64k", "write -P 5 6M 1M"],
    );
    assert!(decode(&lab.read("image"), ORDERED, 1 << 20).unwrap() == lab.reference("image"));
}

#[test]
fn blocks_are_whole_where_the_disk_is_full() {
    let lab = Lab::new();
    let raw: Vec<u8> = disk(64 * MIB).iter().map(|byte| byte | 1).collect();
    for words in ["", "-c", "-c -o cluster_size=4k", "-c -o cluster_size=2M"] {
        let pieces = pieces(&lab.convert(&raw, words), UNORDERED).unwrap();
        assert!(pieces.len() <= 64 * 3 / 2, "{words}: {} pieces of 64 MiB", pieces.len());
    }
}
