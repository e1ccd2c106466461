//! Mutations of stored images, as AFL makes them: bits, bytes, blocks, ends, and two images joined.

use super::replay::Random;

/// The longest block that is deleted, doubled or swapped.
const BLOCK: usize = 4096;
/// Bytes that parsers trip over.
const EDGES: [u8; 6] = [0, 1, 0x7f, 0x80, 0xfe, 0xff];

fn below(random: &mut Random, bound: usize) -> usize {
    random.next() as usize % bound.max(1)
}

/// A place; one in four is in the first or the last 64 bytes, where headers and sums are.
fn place(random: &mut Random, length: usize) -> usize {
    let edge = below(random, 64.min(length));
    match below(random, 8) {
        0 => edge,
        1 => length - 1 - edge,
        _ => below(random, length),
    }
}

fn block(random: &mut Random, length: usize) -> std::ops::Range<usize> {
    let start = place(random, length);
    let longest = [8, 64, 512, BLOCK][below(random, 4)];
    start..length.min(start + 1 + below(random, longest))
}

/// One to three mutations of `bytes`; `other` is what a splice takes from. With what was done.
pub(crate) fn mutate(bytes: &[u8], other: &[u8], random: &mut Random) -> (Vec<u8>, String) {
    let (mut bytes, mut done) = (bytes.to_vec(), Vec::new());
    let times = [1, 1, 1, 2, 3][below(random, 5)];
    for _ in 0..times {
        if !bytes.is_empty() {
            done.push(once(&mut bytes, other, random));
        }
    }
    (bytes, done.join(", then "))
}

fn once(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) -> String {
    let length = bytes.len();
    match below(random, 8) {
        0 | 1 => {
            let (at, bit) = (place(random, length), below(random, 8));
            bytes[at] ^= 1 << bit;
            format!("bit {bit} of byte {at}")
        }
        2 => {
            let (at, byte) = (place(random, length), EDGES[below(random, EDGES.len())]);
            bytes[at] = byte;
            format!("byte {at} set to {byte}")
        }
        3 => {
            let range = block(random, length);
            bytes.drain(range.clone());
            format!("{range:?} deleted")
        }
        4 => {
            let range = block(random, length);
            let copy = bytes[range.clone()].to_vec();
            bytes.splice(range.end..range.end, copy);
            format!("{range:?} doubled")
        }
        5 => {
            let (a, b) = (block(random, length), place(random, length));
            let size = a.len().min(length - b);
            for at in 0..size {
                bytes.swap(a.start + at, b + at);
            }
            format!("{size} bytes at {} and {b} swapped", a.start)
        }
        6 => {
            let at = place(random, length);
            bytes.truncate(at);
            format!("cut at {at}")
        }
        _ => {
            let (at, from) = (place(random, length), place(random, other.len()));
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
            format!("byte {at} on replaced by another image's from {from} on")
        }
    }
}
