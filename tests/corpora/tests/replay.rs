//! Each fuzz target over its committed corpus, once: a finding that was mended stays mended. `scripts/fuzz` builds the same
//! files as programs of libFuzzer's; here they are modules, so that nothing is compiled for them twice.

// `#![no_main]` is for the programs.
#![allow(unused_attributes)]

extern crate self as libfuzzer_sys;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// No input may take longer; scripts/fuzz has the same limit.
const INPUT_LIMIT: Duration = Duration::from_secs(10);

macro_rules! replayed {
    ($($file:tt $target:ident;)+) => {
        $(#[path = $file]
        mod $target;)+

        /// Every target that is replayed, by its source file.
        const FILES: &[&str] = &[$($file),+];

        mod replays {
            $(#[test]
            fn $target() {
                super::replay($file, super::$target::target);
            })+
        }
    };
}

replayed! {
    "../../../agent/fuzz/targets/dhcp_answer.rs" dhcp_answer;
    "../../../agent/fuzz/targets/fstab.rs" fstab;
    "../../../agent/fuzz/targets/grub_cfg.rs" grub_cfg;
    "../../../agent/fuzz/targets/kernel_cmdline.rs" kernel_cmdline;
    "../../../agent/fuzz/targets/loader_entries.rs" loader_entries;
    "../../../agent/fuzz/targets/module_index.rs" module_index;
    "../../../agent/fuzz/targets/os_release.rs" os_release;
    "../../../agent/fuzz/targets/tar.rs" tar;
    "../../../agent/fuzz/targets/uevent.rs" uevent;
    "../../../coordinator/fuzz/targets/agent_frames.rs" agent_frames;
    "../../../coordinator/fuzz/targets/boot_routes.rs" boot_routes;
    "../../../coordinator/fuzz/targets/boot_script.rs" boot_script;
    "../../../coordinator/fuzz/targets/dhcp.rs" dhcp;
    "../../../coordinator/fuzz/targets/dhcp_v6.rs" dhcp_v6;
    "../../../coordinator/fuzz/targets/documents.rs" documents;
    "../../../coordinator/fuzz/targets/operator_routes.rs" operator_routes;
    "../../../coordinator/fuzz/targets/session.rs" session;
    "../../../coordinator/fuzz/targets/template.rs" template;
    "../../../coordinator/fuzz/targets/tftp.rs" tftp;
    "../../../disk/fuzz/targets/bmap.rs" bmap;
    "../../../disk/fuzz/targets/decoders.rs" decoders;
    "../../../disk/fuzz/targets/gpt.rs" gpt;
    "../../../disk/fuzz/targets/http_headers.rs" http_headers;
    "../../../disk/fuzz/targets/manifest.rs" manifest;
    "../../../disk/fuzz/targets/mbr.rs" mbr;
    "../../../disk/fuzz/targets/oci_manifest.rs" oci_manifest;
    "../../../disk/fuzz/targets/qcow2.rs" qcow2;
    "../../../disk/fuzz/targets/receipt.rs" receipt;
    "../../../disk/fuzz/targets/reference.rs" reference;
    "../../../disk/fuzz/targets/seek_table.rs" seek_table;
    "../../../disk/fuzz/targets/selector.rs" selector;
    "../../../disk/fuzz/targets/signature_files.rs" signature_files;
    "../../../disk/fuzz/targets/sniff.rs" sniff;
    "../../../disk/fuzz/targets/sums.rs" sums;
    "../../../disk/fuzz/targets/vmdk.rs" vmdk;
}

/// The corpus of a target's source file.
fn corpus(file: &str) -> PathBuf {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file);
    let home = file.parent().and_then(Path::parent).expect("targets lie in a folder of a folder");
    home.join("corpus").join(file.file_stem().expect("a target has a name"))
}

fn replay(file: &str, target: fn(&[u8])) {
    let folder = corpus(file);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("no corpus {}: {error}", folder.display()));
    let mut inputs: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    assert!(!inputs.is_empty(), "{} is empty", folder.display());
    inputs.sort();
    // libFuzzer begins with an empty input of its own.
    target(&[]);
    for input in inputs {
        // Shown if the target fails.
        println!("{}", input.display());
        let begun = Instant::now();
        target(&std::fs::read(&input).unwrap());
        assert!(begun.elapsed() < INPUT_LIMIT, "it took {:?}", begun.elapsed());
    }
}

#[test]
fn every_target_with_a_corpus_is_replayed() {
    let replayed: BTreeSet<_> = FILES.iter().map(|file| corpus(file)).collect();
    let homes: BTreeSet<_> = replayed.iter().filter_map(|corpus| corpus.parent()).collect();
    let committed = homes.into_iter().flat_map(|home| std::fs::read_dir(home).unwrap());
    let committed: BTreeSet<_> = committed.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(committed, replayed);
}

/// In place of libFuzzer's: the target becomes a function of its module. Below the targets, so that they name it by its path.
#[macro_export]
macro_rules! fuzz_target {
    (|$data:ident: &[u8]| $body:expr) => {
        pub(crate) fn target($data: &[u8]) {
            $body
        }
    };
    (|$text:ident: &str| $body:expr) => {
        pub(crate) fn target(data: &[u8]) {
            // As libFuzzer: what is text from the front.
            let valid = std::str::from_utf8(data).map_or_else(|error| error.valid_up_to(), str::len);
            let $text = std::str::from_utf8(&data[..valid]).unwrap_or_default();
            $body
        }
    };
}
