//! Every kind of image the tools make decodes to what they read from it.

use super::*;

/// Not a multiple of any cluster size.
const SIZE: usize = (9 << 20) + 5 * 512;

fn check(file: &[u8], reference: &[u8], what: &str) {
    for (limits, step) in [(UNORDERED, 512 << 10), (UNORDERED, 997), (Limits { threads: 1, ..UNORDERED }, 70_000)] {
        let decoded = decode(file, limits, step).unwrap_or_else(|e| panic!("{what}: {e:?}"));
        assert_eq!(decoded.len(), reference.len(), "{what}");
        assert!(decoded == reference, "{what} in steps of {step} is not what qemu-img reads");
    }
    let mut source = Memory { total: None, ..memory(file) };
    let plan = Plan::read(&mut source, None, &AtomicBool::new(false)).unwrap();
    assert_eq!(plan.raw_bytes(), reference.len() as u64, "{what}");
    assert!(reference.starts_with(plan.head()) && plan.head().len() >= reference.len().min(1 << 20), "{what}");
}

#[test]
fn images_from_qemu_img_decode_to_their_source() {
    let lab = Lab::new();
    let raw = disk(SIZE);
    for words in [
        "", "-o compat=0.10", "-c", "-c -W -m 16", "-c -o compat=0.10", "-c -o compression_type=zstd",
        "-o cluster_size=4k", "-c -o cluster_size=4k", "-c -o cluster_size=4k,compression_type=zstd",
        "-o cluster_size=2M", "-c -o cluster_size=2M", "-c -o cluster_size=2M,compression_type=zstd",
        "-o preallocation=metadata", "-o preallocation=falloc", "-o preallocation=full", "-o lazy_refcounts=on",
        "-o refcount_bits=1", "-S 0",
    ] {
        check(&lab.convert(&raw, words), &raw, words);
    }
}

#[test]
fn images_of_any_length_decode() {
    let lab = Lab::new();
    for length in [512, 4096, 4608, 65536, (1 << 20) - 512, 1 << 20, (1 << 20) + 512, (2 << 20) + 65536 + 512] {
        let raw = disk(length);
        for words in ["", "-c", "-c -o cluster_size=2M"] {
            check(&lab.convert(&raw, words), &raw, &format!("{length} {words}"));
        }
    }
}

#[test]
fn an_image_of_nothing_but_zeroes_decodes() {
    let lab = Lab::new();
    for (words, length) in [("-o cluster_size=64k", 5 << 20), ("-o preallocation=metadata", 3 << 20)] {
        check(&lab.convert(&vec![0; length], words), &vec![0; length], words);
    }
}

#[test]
fn clusters_written_in_any_order_go_to_their_places() {
    let lab = Lab::new();
    for options in ["cluster_size=64k", "cluster_size=4k", "compat=0.10", "cluster_size=2M"] {
        lab.run("qemu-img", &format!("create -f qcow2 -o {options} image 20M"));
        lab.io(
            "image",
            &[
                "write -P 1 15M 3M", "write -P 2 64k 200k", "write -P 3 0 64k", "write -P 4 7M 1M",
                "write -P 5 3M 1000k", "write -P 6 12345k 3k", "write -P 7 4M 100k", "write -P 8 19M 1M",
            ],
        );
        check(&lab.read("image"), &lab.reference("image"), options);
    }
}

#[test]
fn zero_clusters_and_discarded_ones_read_as_zeroes() {
    let lab = Lab::new();
    let raw = vec![7; 6 << 20];
    lab.convert(&raw, "");
    lab.io("image", &["write -z 0 128k", "write -z 1M 512k", "write -z -u 3M 1M", "discard 5M 256k"]);
    let reference = lab.reference("image");
    assert!(reference != raw, "the tools executed the commands");
    check(&lab.read("image"), &reference, "zeroed");
}

#[test]
fn compressed_clusters_at_an_unpadded_end_decode() {
    let lab = Lab::new();
    for kind in ["zlib", "zstd"] {
        lab.run("qemu-img", &format!("create -f qcow2 -o compression_type={kind} image 4M"));
        lab.io(
            "image",
            &["write -c -P 5 2M 64k", "write -P 1 1M 64k", "write -c -P 6 128k 64k", "write -c -P 7 3M 64k"],
        );
        check(&lab.read("image"), &lab.reference("image"), kind);
    }
}

#[test]
fn compressed_and_plain_clusters_overwritten_by_turns_decode() {
    let lab = Lab::new();
    lab.convert(&disk(SIZE), "-c");
    lab.io("image", &["write -P 1 1200k 300k", "write -P 2 0 64k", "write -P 3 5M 70k", "write -z 6M 64k"]);
    check(&lab.read("image"), &lab.reference("image"), "mixed");
}

#[test]
fn the_active_state_is_taken_and_snapshots_are_not() {
    let lab = Lab::new();
    lab.convert(&disk(SIZE), "-c");
    lab.run("qemu-img", "snapshot -c before image");
    lab.io("image", &["write -P 1 1M 2M", "write -P 2 0 4k"]);
    lab.run("qemu-img", "snapshot -c between image");
    lab.io("image", &["write -P 3 2M 2M"]);
    check(&lab.read("image"), &lab.reference("image"), "snapshots");
    lab.run("qemu-img", "snapshot -a before image");
    assert!(lab.reference("image") == disk(SIZE));
    check(&lab.read("image"), &disk(SIZE), "gone back");
}

#[test]
fn an_image_made_larger_or_smaller_decodes_to_its_size() {
    let lab = Lab::new();
    lab.convert(&disk(SIZE), "");
    for size in ["40M", "100M", "5M"] {
        lab.run("qemu-img", &format!("resize -f qcow2 --shrink image {size}"));
        let (file, reference) = (lab.read("image"), lab.reference("image"));
        assert!(decode(&file, UNORDERED, 1 << 20).unwrap() == reference, "{size}");
    }
}

#[test]
fn a_file_marked_dirty_is_taken() {
    let lab = Lab::new();
    let raw = disk(SIZE);
    let mut file = lab.convert(&raw, "-o lazy_refcounts=on");
    file[79] |= 1;
    check(&file, &raw, "dirty");
}
