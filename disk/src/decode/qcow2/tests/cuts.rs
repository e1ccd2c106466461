//! A file that is cut short is never a success.

use super::*;

/// Cut before it was read, and between reading the tables and the stream.
fn check(file: &[u8], raw: &[u8], what: &str) {
    let whole = plan(file).unwrap();
    let lengths = (1..file.len()).step_by(file.len() / 101 + 1).chain([71, 72, 103, 104, 111, 112, file.len() - 1]);
    for length in lengths.chain((1..9).map(|i| file.len() - i * 300)) {
        let cut = &file[..length];
        let at_once = decode(cut, UNORDERED, 65536);
        let source = &mut Memory { total: None, ..memory(cut) };
        let unknown = Plan::read(source, None, &AtomicBool::new(false));
        let unknown = unknown
            .and_then(|plan| collect(|sink| plan.decode(&mut Pieces { bytes: cut, step: 65536 }, sink, UNORDERED)));
        let later = collect(|sink| whole.decode(&mut Pieces { bytes: cut, step: 65536 }, sink, UNORDERED));
        for result in [at_once, unknown, later] {
            match result {
                Err(DecodeError::Unfinished(_)) => {}
                // What QEMU puts after the last cluster is no part of the image.
                Ok(decoded) if decoded == raw && needed(file) <= length as u64 => {}
                other => panic!("{what} of {} cut at {length}: {:?}", file.len(), other.map(|raw| raw.len())),
            }
        }
    }
}

/// Bytes up to which the file has anything that matters, found by asking for less and less.
fn needed(file: &[u8]) -> u64 {
    let plan = plan(file).unwrap();
    let tables = plan.watched.iter().map(|watched| watched.place().end).max().unwrap_or_default();
    let data = plan.map.runs.last().map(|run| {
        let end = run.stored(&plan.header).end;
        if run.compressed() { end - 511 } else { end }
    });
    tables.min(file.len() as u64 - 511).max(data.unwrap_or_default())
}

#[test]
fn a_cut_file_is_never_a_success() {
    let lab = Lab::new();
    let raw = disk((5 << 20) + 1024);
    for words in [
        "", "-c", "-c -o compression_type=zstd", "-c -o cluster_size=4k", "-o cluster_size=2M", "-o preallocation=full",
    ] {
        check(&lab.convert(&raw, words), &raw, words);
    }
}
