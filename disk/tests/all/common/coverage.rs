//! Which power cuts of a recording cover every distinct pair of the last step and the next one. For sectors of 512 bytes.

use std::collections::BTreeMap;

use landfall_disk::RECEIPT_PLACE;

use super::replay::{ODDS, Random, SURE, Survive};
use super::{MIB, Op};

/// Cuts of one install; more, if it has more pairs of steps.
const CUTS: usize = 160;
/// A body is taken as written in pieces of this size.
const PIECE: u64 = 256 << 10;

/// The recording with its body in order. Which thread wrote first is chance, and nothing is flushed between: whatever
/// order the body has, a cut can leave the same states.
pub(crate) fn in_order(ops: Vec<Op>, sector: u32) -> Vec<Op> {
    let flushes: Vec<_> = ops.iter().enumerate().filter(|(_, op)| matches!(op, Op::Flush)).map(|(at, _)| at).collect();
    // The commit has four.
    let [.., before, body, _, _, _, _] = flushes[..] else { panic!("{} flushes", flushes.len()) };
    let mut sectors = BTreeMap::new();
    for op in &ops[before + 1..body] {
        let Op::Write(offset, data) = op else { panic!("a flush in the body") };
        for (at, bytes) in (*offset..).step_by(sector as usize).zip(data.chunks(sector as usize)) {
            assert!(sectors.insert(at, bytes).is_none(), "the sector at {at} is written twice");
        }
    }
    let mut ordered = ops[..=before].to_vec();
    for (at, bytes) in sectors {
        match ordered.last_mut() {
            Some(Op::Write(start, data)) if *start + data.len() as u64 == at && !at.is_multiple_of(PIECE) => {
                data.extend_from_slice(bytes);
            }
            _ => ordered.push(Op::Write(at, bytes.to_vec())),
        }
    }
    ordered.extend_from_slice(&ops[body..]);
    ordered
}

/// What an operation is a step of: how many flushes came before it, and its place.
fn steps(ops: &[Op], disk: u64) -> Vec<(usize, &'static str)> {
    let mut flushes = 0;
    let step = |op: &Op| {
        let place = match op {
            Op::Flush => {
                flushes += 1;
                return (flushes - 1, "flush");
            }
            Op::Write(0, _) => "LBA 0",
            Op::Write(512, _) => "header",
            Op::Write(at, _) if *at < 34 * 512 => "entries",
            Op::Write(at, _) if RECEIPT_PLACE.contains(at) => "receipt",
            Op::Write(at, _) if *at < MIB => "gap",
            Op::Write(at, _) if *at == disk - 512 => "backup header",
            Op::Write(at, _) if *at >= disk - 33 * 512 => "backup entries",
            Op::Write(..) => "body",
        };
        (flushes, place)
    };
    ops.iter().map(step).collect()
}

/// After which operations the power is cut, and what survives; and how many pairs of steps there are.
pub(crate) fn choose(ops: &[Op], disk: u64, random: &mut Random) -> (BTreeMap<usize, Vec<Survive>>, usize) {
    let steps = steps(ops, disk);
    let mut pairs: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (at, last) in steps.iter().enumerate() {
        pairs.entry((*last, steps.get(at + 1).copied())).or_default().push(at);
    }
    let mut cuts: BTreeMap<usize, Vec<Survive>> = BTreeMap::new();
    for places in pairs.values() {
        let at = places[random.next() as usize % places.len()];
        cuts.entry(at).or_default().extend(SURE);
    }
    for _ in pairs.len() * SURE.len()..CUTS {
        let odds = ODDS[random.next() as usize % ODDS.len()];
        cuts.entry(random.next() as usize % ops.len()).or_default().push(Survive::Some(odds));
    }
    (cuts, pairs.len())
}
