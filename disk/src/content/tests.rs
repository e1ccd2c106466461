//! The table and the decision; `disk/tests/all/not_images.rs` has the files.
//!
//! `LANDFALL_BLESS=1 cargo test -p landfall-disk content` writes the table in `docs/images.md` anew.

use std::{collections::BTreeSet, fs, path::Path};

use super::{magic::KNOWN, *};
use crate::gpt::{HEAD, Header, Table};
use crate::{Defect, signature};

const BEGIN: &str = "<!-- Made from disk/src/content/magic.rs by its tests. -->\n";
const END: &str = "<!-- End of what is made. -->\n";

fn table() -> String {
    let mut out = String::from("| what the file is | what to do |\n|---|---|\n");
    let shown = |kind: &Mistake| {
        let mut names: Vec<&str> = KNOWN.iter().filter(|known| known.kind == *kind).map(|known| known.name).collect();
        if *kind == Mistake::Volume {
            names.extend(signature::volume_names());
        }
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(*name));
        format!("| {} | {} |\n", names.join(", "), kind.hint())
    };
    out.extend(Mistake::ALL.iter().map(shown));
    out
}

/// A first MiB with these bytes in it.
fn head_with(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut head = vec![0; HEAD];
    head[at..at + bytes.len()].copy_from_slice(bytes);
    head
}

fn partition(head: &mut [u8], kind: u8, start: u32, count: u32) {
    head[450] = kind;
    head[454..458].copy_from_slice(&start.to_le_bytes());
    head[458..462].copy_from_slice(&count.to_le_bytes());
    head[510..512].copy_from_slice(&[0x55, 0xaa]);
}

/// A GPT without partitions for sectors of this size.
fn with_gpt(head: &mut [u8], sector: usize) {
    let header = Header {
        my_lba: 1,
        alternate_lba: 4095,
        first_usable: 34,
        last_usable: 4000,
        disk_guid: [3; 16],
        entries_lba: 2,
        entry_count: 128,
        entry_size: 128,
    };
    let table = Table { header, entries: vec![0; 128 * 128] };
    head[sector..2 * sector].copy_from_slice(&table.header_sector(sector as u32));
}

fn refused(head: &[u8], no_table: bool) -> Option<Defect> {
    match decide(head, 512, no_table) {
        Ok(_) => None,
        Err(Refusal::Defect(defect, _)) => Some(defect),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn the_documentation_lists_every_format_that_is_recognised() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/images.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the beginning of the table is marked");
    let (written, after) = rest.split_once(END).expect("the end of the table is marked");
    if std::env::var_os("LANDFALL_BLESS").is_some_and(|value| value == "1") {
        return fs::write(&path, format!("{before}{BEGIN}{}{END}{after}", table())).unwrap();
    }
    let hint = "LANDFALL_BLESS=1 cargo test -p landfall-disk content writes docs/images.md anew";
    assert_eq!(written, table(), "{hint}");
}

#[test]
fn each_magic_is_recognised_as_its_own_format() {
    for known in KNOWN {
        let Some((at, magic)) = known.magic() else { continue };
        let found = recognise(&head_with(at, magic));
        assert_eq!(found, Some((known.name, known.kind)), "{} at {at}", known.name);
    }
    let names: BTreeSet<&str> = KNOWN.iter().map(|known| known.name).collect();
    assert!(names.len() + signature::volume_names().len() >= 80, "{}", names.len());
}

#[test]
fn only_a_table_or_a_plain_word_makes_an_image() {
    let mut mbr = head_with(0, &[0xfa, 0x33]);
    partition(&mut mbr, 0x83, 2048, 100);
    assert!(matches!(decide(&mbr, 512, false), Ok(Content::Mbr(parts)) if parts.len() == 1));
    assert_eq!(refused(&mbr, true), Some(Defect::Stated));
    let mut gpt = vec![0; HEAD];
    partition(&mut gpt, 0xee, 1, 4095);
    with_gpt(&mut gpt, 512);
    assert!(matches!(decide(&gpt, 512, false), Ok(Content::Gpt(_))));
    assert_eq!(refused(&gpt, true), Some(Defect::Stated));
    for unknown in [vec![0; HEAD], head_with(7, &[0x80; 4000]), head_with(510, &[0x55, 0xaa])] {
        assert_eq!(refused(&unknown, false), Some(Defect::NoTable));
        assert!(matches!(decide(&unknown, 512, true), Ok(Content::NoTable)));
    }
    let ext = head_with(0x438, &[0x53, 0xef]);
    assert_eq!(refused(&ext, false), Some(Defect::Other(Mistake::Volume)));
    assert!(matches!(decide(&ext, 512, true), Ok(Content::NoTable)));
    for no_table in [false, true] {
        assert_eq!(refused(&head_with(0, b"QED\0"), no_table), Some(Defect::Other(Mistake::VirtualDisk)));
    }
}

#[test]
fn a_boot_sector_without_plausible_entries_is_no_table() {
    let mut odd_flag = head_with(0, &[0xfa, 0x33]);
    partition(&mut odd_flag, 0x83, 2048, 100);
    // An unused entry with text in it: the sector holds a message, not a table.
    odd_flag[462] = b'k';
    let mut empty = odd_flag.clone();
    (empty[462], empty[450]) = (0, 0);
    let mut nowhere = empty.clone();
    partition(&mut nowhere, 0x83, 0, 100);
    let mut unsigned = empty.clone();
    partition(&mut unsigned, 0x83, 2048, 100);
    unsigned[511] = 0;
    for head in [odd_flag, empty, nowhere, unsigned] {
        assert_eq!(refused(&head, false), Some(Defect::NoTable));
    }
}

#[test]
fn a_kernel_whose_header_looks_like_a_partition_is_none() {
    let mut kernel = head_with(0x202, b"HdrS");
    // As in every bzImage: root_flags, syssize and vid_mode lie where the fourth entry has its fields.
    kernel[0x1ee..0x200].copy_from_slice(&[0, 0xff, 0, 27, 1, 0, 0x40, 0x1c, 8, 0, 0, 0, 0xff, 0xff, 0, 0, 0x55, 0xaa]);
    assert!(crate::gpt::plausible_table(&kernel).is_some(), "this is why");
    assert_eq!(refused(&kernel, false), Some(Defect::Other(Mistake::Program)));
}

#[test]
fn a_gpt_needs_a_first_sector_that_announces_it() {
    for signature in [[0, 0], [0x55, 0xaa]] {
        let mut head = head_with(510, &signature);
        with_gpt(&mut head, 512);
        assert_eq!(refused(&head, false), Some(Defect::Table));
    }
}

#[test]
fn text_of_every_kind_is_recognised_and_nothing_else() {
    for (text, name) in [
        ("<!doctype html>\n<title>x", "a web page"),
        ("\u{feff} \r\n<HTML>", "a web page"),
        ("<h1>404</h1>", "a web page"),
        ("<Error><Code>AccessDenied</Code></Error>", "XML"),
        ("{\"error\": \"not found\"}", "JSON"),
        ("\u{feff}[1, 2]", "JSON"),
        ("404 page not found\n", "text"),
        ("Grüße", "text"),
    ] {
        assert_eq!(recognise(text.as_bytes()), Some((name, Mistake::Message)), "{text}");
        assert_eq!(recognise(&head_with(0, text.as_bytes())), Some((name, Mistake::Message)), "{text}");
    }
    let wide: Vec<u8> = [0xfeff].into_iter().chain("<html>".encode_utf16()).flat_map(u16::to_le_bytes).collect();
    assert_eq!(recognise(&wide), Some(("a web page", Mistake::Message)));
    for other in [&b""[..], &[0; 512], b"abc\x01def", &[0xeb, 0x63, 0x90]] {
        assert_eq!(recognise(other), None, "{other:?}");
    }
}
