//! What cannot be written, or contradicts itself, is refused with the reason.

use super::*;

const KIB: usize = 1024;

#[track_caller]
fn says(file: &[u8], word: &str) {
    let text = match decode(file) {
        Err(DecodeError::Bad(reason)) => reason,
        other => panic!("{word:?}: {:?}", other.map(|raw| raw.len())),
    };
    assert!(text.contains(word), "{text:?} says {word:?}");
}

/// Overwrites a part.
fn set(file: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = file.to_vec();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

fn small() -> made::Made {
    made::of(&disk(512 * KIB), 16)
}

#[test]
fn a_header_that_cannot_be_is_refused() {
    let file = small().bytes;
    for (at, bytes, word) in [
        (0, &b"KDMW"[..], "KDMV"),
        (4, &[4], "version 4"),
        (4, &[0], "version 0"),
        (8, &[1, 0, 0, 0], "monolithicSparse"),
        (8, &[1, 0, 1, 0], "need markers"),
        (8, &[1, 0, 2, 0], "need markers"),
        (8, &[1, 0, 7, 0], "flags 0x40000"),
        (8, &[1, 0, 3, 0x80], "flags 0x80000000"),
        (12, &[0; 8], "empty"),
        (12, &[0, 0, 0, 0, 1], "descriptor states 1024 sectors"),
        (12, &[0xff; 8], "grain tables, more than the limit"),
        (20, &[4], "4 sectors"),
        (20, &[24], "24 sectors"),
        (20, &[0, 64], "16384 sectors"),
        (20, &[0; 8], "0 sectors"),
        (28, &[0], "descriptor cannot be"),
        (28, &[0xff; 8], "descriptor"),
        (36, &[0], "several files"),
        (36, &[0xff; 8], "descriptor cannot be"),
        (44, &[0, 4], "1024 entries"),
        (56, &[5, 0, 0, 0, 0, 0, 0, 0], "impossible places"),
        (64, &[5], "impossible places"),
        (64, &[0xff; 8], "impossible places"),
        (72, &[1], "not closed"),
        (73, b"\r\n \n", "took the file for a text"),
        (77, &[0], "algorithm 0"),
        (77, &[2], "algorithm 2"),
    ] {
        says(&set(&file, at, bytes), word);
    }
}

#[test]
fn a_descriptor_of_another_disk_is_refused() {
    let file = small().bytes;
    let replaced = |from: &str, to: &str| {
        let at = file.windows(from.len()).position(|bytes| bytes == from.as_bytes()).unwrap();
        set(&file, at, to.as_bytes())
    };
    for (from, to, word) in [
        ("# Disk", "% Disk", "no VMDK descriptor"),
        ("\"streamOptimized\"", "\"monolithicFlat\" ", "kind monolithicFlat"),
        ("createType", "createTime", "no createType"),
        ("parentCID=ffffffff", "parentCID=0badcafe", "differs from another disk"),
        ("parentCID", "parentcid", ""),
        ("parentCID", "parent_ID", "no parentCID"),
        ("RDONLY 1024 SPARSE", "RDONLY 1023 SPARSE", "states 1023 sectors"),
        ("RDONLY 1024 SPARSE", "RDONLY 1024 VMFS  ", "not sparse"),
        ("RDONLY", "RDONE ", "0 extents"),
        ("# Extent description", "RW 1 SPARSE \"x\"     ", "2 extents"),
    ] {
        let altered = replaced(from, to);
        if word.is_empty() { assert!(decode(&altered).is_ok()) } else { says(&altered, word) }
    }
}

#[test]
fn grains_out_of_order_twice_or_outside_are_refused() {
    let grain = |byte: u8| vec![byte; 8 * KIB];
    let of = |grains: &[(u64, Vec<u8>)]| made::file(1000, 16, grains).bytes;
    assert!(decode(&of(&[(16, grain(1)), (32, grain(2))])).is_ok());
    says(&of(&[(32, grain(2)), (16, grain(1))]), "disk's sector 16 comes out of order or a second time");
    says(&of(&[(16, grain(1)), (16, grain(1))]), "a second time");
    says(&of(&[(1008, grain(1))]), "beyond the disk's 1000 sectors");
    says(&of(&[(u64::MAX, grain(1))]), "beyond the disk's 1000 sectors");
    says(&of(&[(24, grain(1))]), "multiple of 16 sectors");
    // The disk ends within its last grain: 992 to 1000.
    assert!(decode(&of(&[(992, vec![1; 4 * KIB])])).is_ok());
    says(&of(&[(992, vec![1; 4 * KIB - 1])]), "4095 of 8192 bytes");
    says(&of(&[(992, vec![1; 8 * KIB + 1])]), "more than the 8192 bytes");
}

#[test]
fn a_grain_that_unpacks_wrongly_is_refused() {
    let of = |raw: Vec<u8>| made::file(1000, 16, &[(16, raw)]);
    says(&of(vec![1; 8 * KIB - 1]).bytes, "8191 of 8192 bytes");
    says(&of(vec![1; 8 * KIB + 1]).bytes, "more than the 8192 bytes");
    says(&of(vec![1; 80 * KIB]).bytes, "more than the 8192 bytes");
    says(&of(Vec::new()).bytes, "0 of 8192 bytes");
    let made = of((0..8 * KIB).map(|at| (at * at / 7) as u8).collect());
    let (at, file) = (made.grains[0], &made.bytes);
    let size = u32::from_le_bytes(file[at + 8..at + 12].try_into().unwrap());
    says(&set(file, at + 8, &(size - 1).to_le_bytes()), "end early");
    says(&set(file, at + 8, &(size + 1).to_le_bytes()), "1 bytes follow its end");
    says(&set(file, at + 8, &(17 * KIB as u32).to_le_bytes()), "more than twice its length");
    says(&set(file, at + 12, &[0xff; 4]), "does not unpack");
    // Only its checksum shows it.
    let end = at + 12 + size as usize;
    says(&set(file, end - 1, &[!file[end - 1]]), "does not unpack");
}

#[test]
fn tables_that_differ_from_the_grains_are_refused() {
    let made = small();
    let file = &made.bytes;
    let (table, directory) = (made.tables[0], made.directory);
    let entry = (0..512).map(|i| table + 4 * i).find(|at| file[*at..at + 4] != [0; 4]).unwrap();
    says(&set(file, entry, &[0; 4]), "differ for the disk's bytes 0 to 4194304");
    says(&set(file, entry, &[9]), "differ for");
    says(&set(file, table + 4 * 500, &[200]), "differ for");
    says(&set(file, directory, &[0; 4]), "differ for");
    says(&set(file, directory, &[1]), "where no grain table is");
    // A grain that no table lists.
    let mut grains: Vec<(u64, Vec<u8>)> = vec![(0, vec![1; 8 * KIB]), (16, vec![2; 8 * KIB])];
    let both = made::file(1000, 16, &grains);
    grains.pop();
    let first = made::file(1000, 16, &grains);
    let tables = first.bytes[first.tables[0]..][..2048].to_vec();
    says(&set(&both.bytes, both.tables[0], &tables), "differ for");
}

#[test]
fn tables_of_qemu_img_must_agree_with_the_grains() {
    let file = Lab::new().convert(&disk(40 * MIB));
    let directory = u64::from_le_bytes(file[56..64].try_into().unwrap()) as usize * 512;
    let table = u32::from_le_bytes(file[directory..directory + 4].try_into().unwrap()) as usize * 512;
    let entry = (0..512).map(|i| table + 4 * i).find(|at| file[*at..at + 4] != [0; 4]).unwrap();
    assert!(decode(&file).is_ok());
    says(&set(&file, entry, &[0; 4]), "differ for the disk's bytes 0 to 33554432");
    says(&set(&file, entry, &[1]), "differ for");
    says(&set(&file, directory, &[0; 4]), "differ for");
    says(&set(&file, directory, &[1, 0]), "not in order");
    let swapped = [&file[directory + 4..directory + 8], &file[directory..directory + 4]].concat();
    says(&set(&file, directory, &swapped), "not in order");
    // The second directory is a copy that is not asked.
    let second = u64::from_le_bytes(file[48..56].try_into().unwrap()) as usize * 512;
    assert!(decode(&set(&file, second, &[0; 4])).is_ok());
    // A table between the grains, though all are before them.
    let grain = u32::from_le_bytes(file[entry..entry + 4].try_into().unwrap()) as usize * 512;
    says(&set(&file, grain, &[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]), "where none can be");
    // An end before the last grain.
    says(&set(&file, grain, &[0; 16]), "after the end");
    says(&[&file[..], &[0; 128 * 512]].concat(), "after the end");
    says(&[&file[..], &[0; 511], &[1]].concat(), "after the end");
}

#[test]
fn markers_that_are_wrong_or_missing_are_refused() {
    let made = small();
    let file = &made.bytes;
    let (table, directory, footer) = (made.tables[0] - 512, made.directory - 512, made.footer - 512);
    let without = |range: std::ops::Range<usize>| [&file[..range.start], &file[range.end..]].concat();
    says(&set(file, table + 12, &[9]), "unknown type 9");
    says(&set(file, table, &[3]), "has 3 sectors, and 4 are needed");
    says(&set(file, directory, &[0]), "has 0 sectors, and 1 are needed");
    says(&set(file, footer, &[0]), "has 0 sectors in place of 1");
    says(&without(footer..made.end), "comes before its footer");
    says(&without(directory..made.end), "comes before its footer");
    says(&without(directory..footer), "its footer at sector");
    says(&without(table..directory), "where no grain table is");
    says(&without(made.grains[3]..made.grains[4]), "where no grain table is");
    // More tables than the disk has, the directory twice, a table behind it, a grain behind it.
    let inserted = |at: usize, range: std::ops::Range<usize>| [&file[..at], &file[range], &file[at..]].concat();
    says(&inserted(table, table..directory), "one more than the 1 of its disk");
    says(&inserted(footer, directory..footer), "its grain directory at sector");
    says(&inserted(footer, table..directory), "its grain table at sector");
    says(&inserted(footer, made.grains[0]..made.grains[1]), "its grain at sector");
    says(&inserted(file.len(), made.grains[0]..made.grains[1]), "after the end");
}

#[test]
fn a_footer_that_contradicts_is_refused() {
    let made = small();
    for (at, bytes, word) in [
        (0, &[0][..], "KDMV"),
        (4, &[2], "footer contradicts"),
        (8, &[0], "footer contradicts"),
        (12, &[1], "footer contradicts"),
        (20, &[32], "footer contradicts"),
        (56, &[9], "its footer states"),
        (56, &[0xff; 8], "its footer states"),
    ] {
        says(&set(&made.bytes, made.footer + at, bytes), word);
    }
}
