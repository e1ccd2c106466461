//! What cannot be written, or contradicts itself, is refused with the reason before anything is sent.

use super::*;

/// Why the file is refused by the plan.
fn refused(file: &[u8]) -> String {
    reason(plan(file).map(|plan| plan.raw_bytes()).unwrap_err())
}

#[track_caller]
fn says(text: &str, words: &[&str]) {
    assert!(words.iter().all(|word| text.contains(word)), "{text:?} says {words:?}");
}

/// Overwrites a part.
fn set(file: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = file.to_vec();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

fn long(file: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(file[at..at + 8].try_into().unwrap())
}

/// A small image, and the places of its L1 table and its first L2 table.
fn small(lab: &Lab, words: &str) -> (Vec<u8>, usize, usize) {
    let file = lab.convert(&vec![5; 3 << 20], words);
    let l1 = long(&file, 40) as usize;
    let l2 = (long(&file, l1) & 0x00ff_ffff_ffff_fe00) as usize;
    (file, l1, l2)
}

#[test]
fn what_needs_more_than_the_file_is_refused_by_name() {
    let lab = Lab::new();
    lab.run("qemu-img", "create -f qcow2 base.qcow2 4M");
    lab.run("qemu-img", "create -f qcow2 -b base.qcow2 -F qcow2 image");
    says(&refused(&lab.read("image")), &["\"base.qcow2\"", "qemu-img convert"]);

    // QEMU makes LUKS images only where it can measure its own CPU time, so the field is set by hand.
    for (method, name) in [(1_u32, "AES"), (2, "LUKS"), (9, "method 9")] {
        says(&refused(&set(&lab.read("base.qcow2"), 32, &method.to_be_bytes())), &["encrypted", name]);
    }

    lab.run("qemu-img", "create -f qcow2 -o data_file=elsewhere.raw image 4M");
    says(&refused(&lab.read("image")), &["\"elsewhere.raw\""]);

    lab.run("qemu-img", "create -f qcow2 -o extended_l2=on image 4M");
    says(&refused(&lab.read("image")), &["extended L2", "extended_l2=off"]);
}

#[test]
fn unknown_header_features_are_refused_by_number_and_name() {
    let lab = Lab::new();
    let (file, ..) = small(&lab, "");
    says(&refused(&set(&file, 79, &[2])), &["corrupt"]);
    says(&refused(&set(&file, 73, &[1])), &["bit 48"]);
    // The table names bit 1 "corrupt bit"; let it be the name of bit 9.
    let name = file.windows(11).position(|bytes| bytes == b"corrupt bit").unwrap();
    says(&refused(&set(&set(&file, name - 1, &[9]), 78, &[2])), &["bit 9", "\"corrupt bit\""]);
    says(&refused(&set(&file, 4, &4_u32.to_be_bytes())), &["version 4"]);
    says(&refused(&set(&file, 104, &[1])), &["contradicts"]);
    says(&refused(&set(&set(&file, 104, &[7]), 79, &[8])), &["compression type 7"]);
    says(&refused(&set(&file, 79, &[8])), &["contradicts"]);
}

#[test]
fn a_header_whose_numbers_cannot_be_is_refused() {
    let lab = Lab::new();
    let (file, ..) = small(&lab, "");
    for (at, bytes, words) in [
        (0, &b"QFI\x00"[..], &["does not start"][..]),
        (20, &8_u32.to_be_bytes(), &["2^8"]),
        (20, &22_u32.to_be_bytes(), &["2^22"]),
        (20, &u32::MAX.to_be_bytes(), &["2^4294967295"]),
        (24, &0_u64.to_be_bytes(), &["empty"]),
        (24, &u64::MAX.to_be_bytes(), &["larger than any disk"]),
        (24, &(1_u64 << 40).to_be_bytes(), &["L1 table", "entries"]),
        (36, &u32::MAX.to_be_bytes(), &["L1 table", "32 MiB"]),
        (36, &0_u32.to_be_bytes(), &["L1 table has 0 entries"]),
        (40, &0_u64.to_be_bytes(), &["L1 table cannot be at 0"]),
        (40, &12345_u64.to_be_bytes(), &["L1 table cannot be at 12345"]),
        (40, &(1_u64 << 55).to_be_bytes(), &["L1 table goes on"]),
        (100, &7_u32.to_be_bytes(), &["header states"]),
        (100, &u32::MAX.to_be_bytes(), &["header states"]),
    ] {
        says(&refused(&set(&file, at, bytes)), words);
    }
    lab.run("qemu-img", "create -f qcow2 -o cluster_size=512 image 1M");
    says(&refused(&lab.read("image")), &["512 bytes", "4096"]);
}

#[test]
fn tables_over_the_limit_are_refused_unread_with_their_size() {
    let lab = Lab::new();
    lab.run("qemu-img", "create -f qcow2 -o cluster_size=4k image 32G");
    let mut file = lab.read("image");
    let l1 = long(&file, 40) as usize;
    // 16384 tables of 4 KiB, and the L1 table itself.
    let full: Vec<u8> = (0..16384_u64).flat_map(|i| ((1 << 30) + i * 4096).to_be_bytes()).collect();
    file.resize(file.len().max(l1 + full.len()), 0);
    says(&refused(&set(&file, l1, &full)), &["67239936 bytes", "48 MiB"]);
}

#[test]
fn clusters_that_are_not_where_clusters_can_be_are_refused() {
    let lab = Lab::new();
    for words in ["", "-c", "-o compat=0.10"] {
        let (file, l1, l2) = small(&lab, words);
        let far = (file.len() as u64).next_multiple_of(65536) + (1 << 40);
        says(&refused(&set(&file, l1, &far.to_be_bytes())), &["L2 table goes on"]);
        says(&refused(&set(&file, l1, &(l1 as u64 + 512).to_be_bytes())), &["not the start of a cluster"]);
        says(&refused(&set(&file, l1, &(l1 as u64).to_be_bytes())), &["share the bytes"]);
        says(&refused(&set(&file, l2 + 80, &far.to_be_bytes())), &["extends to"]);
        says(&refused(&set(&file, l2 + 80, &66048_u64.to_be_bytes())), &["not the start of a cluster"]);
        // The same cluster for two guest offsets, and a table as data.
        let twice = file[l2 + 160..l2 + 168].to_vec();
        says(&refused(&set(&file, l2 + 80, &twice)), &["share the bytes"]);
        says(&refused(&set(&file, l2 + 80, &(l2 as u64).to_be_bytes())), &["lies in the table"]);
        says(&refused(&set(&file, l2 + 80, &(l1 as u64).to_be_bytes())), &["lies in the table"]);
    }
    let (file, _, l2) = small(&lab, "-o compat=0.10");
    says(&refused(&set(&file, l2 + 80, &1_u64.to_be_bytes())), &["version 2 does not support"]);
}

#[test]
fn one_table_used_twice_is_refused() {
    let lab = Lab::new();
    lab.run("qemu-img", "create -f qcow2 -o cluster_size=4k image 8M");
    lab.io("image", &["write -P 1 0 64k", "write -P 2 4M 64k"]);
    let file = lab.read("image");
    let l1 = long(&file, 40) as usize;
    let first = file[l1..l1 + 8].to_vec();
    says(&refused(&set(&file, l1 + 16, &first)), &["share the bytes"]);
}

#[test]
fn an_undecodable_compressed_cluster_is_never_a_success() {
    let lab = Lab::new();
    let raw: Vec<u8> = disk(6 << 20).iter().map(|byte| byte & 0x0f).collect();
    for words in ["-c", "-c -o compression_type=zstd"] {
        let file = lab.convert(&raw, words);
        let l1 = long(&file, 40) as usize;
        let l2 = (long(&file, l1) & 0x00ff_ffff_ffff_fe00) as usize;
        // The head's are found by the plan, the others by the pass.
        for guest in [3, 40, 80] {
            let host = (long(&file, l2 + guest * 8) & ((1 << 54) - 1)) as usize;
            let text = reason(decode(&set(&file, host, &[0xff; 12]), UNORDERED, 1 << 20).unwrap_err());
            says(&text, &["compressed cluster of the guest offset", &(guest << 16).to_string()]);
        }
    }
}

#[test]
fn changes_between_reading_tables_and_streaming_are_noticed() {
    let lab = Lab::new();
    for words in ["", "-c"] {
        let (file, l1, l2) = small(&lab, words);
        let head = (long(&file, l2) & ((1 << 54) - 1) & !511) as usize;
        let plan = plan(&file).unwrap();
        for (at, what) in [(30, "header"), (l1 + 1, "L1"), (l2 + 8 * 47, "L2"), (l2 + 65535, "L2"), (head + 20, "head")]
        {
            let changed = set(&file, at, &[file[at] ^ 4]);
            for limits in [UNORDERED, ORDERED] {
                let input = &mut Pieces { bytes: &changed, step: 4096 };
                let text = reason(collect(|sink| plan.decode(input, sink, limits)).unwrap_err());
                says(&text, &["changed while it was read"]);
                assert!(!text.is_empty(), "{what}");
            }
        }
    }
}

#[test]
fn tables_that_take_more_memory_are_refused_with_the_figure() {
    // 64 GiB in clusters of 4 KiB: 32,768 entries in the L1 table, and one L2 table for each 2 MiB of data.
    let lab = Lab::new();
    lab.run("qemu-img", "create -f qcow2 -o cluster_size=4096 image 64G");
    let needed = |file: &[u8]| {
        let refused = Plan::read(&mut memory(file), Some(0), &AtomicBool::new(false));
        let Err(DecodeError::Memory(needed)) = refused else { panic!("{refused:?}") };
        assert!(Plan::read(&mut memory(file), Some(needed), &AtomicBool::new(false)).is_ok());
        needed
    };
    // The head, four batches, and a cluster in the hands of each thread.
    let always = (1 << 20) + 4 * (4 << 20) + 2 * 4096;
    assert_eq!(needed(&lab.read("image")), always + 32_768 * 20);
    let small = lab.convert(&vec![5; 3 << 20], "-o cluster_size=4096");
    assert_eq!(needed(&small), always + (2 + 2 * 512) * 20 + 2 * 96);
}
