//! Memory: its NUMA nodes, and the modules that SMBIOS describes.

use std::fs;
use std::path::Path;

use landfall_api::{MAX_MODULES, MemoryFacts, MemoryModule, MemoryNode, smbios_text};

use super::{children, read};

/// By `/sys/devices/system/node` and the firmware's table, `/sys/firmware/dmi/tables/DMI`.
pub(super) fn facts(nodes: &Path, table: &Path) -> MemoryFacts {
    MemoryFacts { nodes: numa(nodes), modules: modules(&fs::read(table).unwrap_or_default()) }
}

fn numa(root: &Path) -> Vec<MemoryNode> {
    let node = |path: &Path| {
        let number = path.file_name()?.to_str()?.strip_prefix("node")?.parse().ok()?;
        // `Node 0 MemTotal:  2048 kB`.
        let text = read(&path.join("meminfo"));
        let total = text.lines().find_map(|line| line.split_once("MemTotal:")?.1.split_whitespace().next());
        let kib = total.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0);
        Some(MemoryNode { number, size_bytes: kib.saturating_mul(1024), cpus: read(&path.join("cpulist")) })
    };
    let mut nodes: Vec<MemoryNode> = children(root).iter().filter_map(|path| node(path)).collect();
    nodes.sort_by_key(|node| node.number);
    nodes
}

/// The structures of type 17, "memory device", of an SMBIOS table (DMTF DSP0134, 3.7, section 7.18). Empty slots, and what follows a
/// structure that is not whole, are left out. Where the firmware counts the slots of each bank from the beginning, a slot's name is
/// that of its bank and its own: its name alone would be that of others.
fn modules(mut table: &[u8]) -> Vec<MemoryModule> {
    let mut found: Vec<(MemoryModule, String)> = Vec::new();
    while let Some((structure, texts, rest)) = structure(table) {
        match structure[0] {
            17 => found.extend(module(structure, texts)),
            // The end of the table.
            127 => break,
            _ => {}
        }
        if found.len() == MAX_MODULES {
            break;
        }
        table = rest;
    }
    let names: Vec<String> = found.iter().map(|(module, _)| module.slot.clone()).collect();
    let is_one = |name: &str| names.iter().filter(|other| *other == name).count() == 1;
    let named = found.into_iter().map(|(mut module, bank)| {
        if !bank.is_empty() && !is_one(&module.slot) {
            module.slot = format!("{bank} {}", module.slot).trim().to_owned();
        }
        module
    });
    named.collect()
}

/// The first structure: its formatted part, its texts, and what follows.
fn structure(table: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let length = usize::from(*table.get(1)?);
    if length < 4 {
        return None;
    }
    let (structure, after) = table.split_at_checked(length)?;
    // Two zeroes end the texts, also where there are none.
    let end = after.windows(2).position(|pair| pair == [0, 0])?;
    Some((structure, &after[..end], &after[end + 2..]))
}

/// A module, and the name of its bank.
fn module(structure: &[u8], texts: &[u8]) -> Option<(MemoryModule, String)> {
    // Fields that came with later versions are not in a shorter structure.
    let byte = |at: usize| structure.get(at).copied();
    let word = |at: usize| Some(u16::from_le_bytes([byte(at)?, byte(at + 1)?]));
    let double = |at: usize| Some(u32::from(word(at)?) | u32::from(word(at + 2)?) << 16);
    let text = |at: usize| {
        let number = usize::from(byte(at).unwrap_or(0));
        let found = number.checked_sub(1).and_then(|n| texts.split(|b| *b == 0).nth(n)).unwrap_or_default();
        smbios_text(&String::from_utf8_lossy(found))
    };
    let size_bytes = match word(0x0c)? {
        // An empty slot; a size that the firmware does not know.
        0 | 0xffff => return None,
        // 32 GiB and more stand in another field, MiB.
        0x7fff => u64::from(double(0x1c)? & 0x7fff_ffff) << 20,
        kib if kib & 0x8000 != 0 => u64::from(kib & 0x7fff) << 10,
        mib => u64::from(mib) << 20,
    };
    let speed = |at: usize, more: usize| match word(at)? {
        0 => None,
        // From 65,535 on, in another field.
        0xffff => double(more).map(|speed| speed & 0x7fff_ffff),
        speed => Some(u32::from(speed)),
    };
    let module = MemoryModule {
        slot: text(0x10),
        size_bytes,
        kind: kind(byte(0x12)?).to_owned(),
        speed_mts: speed(0x20, 0x58).or_else(|| speed(0x15, 0x54)),
        manufacturer: text(0x17),
        serial: text(0x18),
        part: text(0x1a),
    };
    Some((module, text(0x11)))
}

/// The words of the specification's table 78.
const fn kind(code: u8) -> &'static str {
    match code {
        0x0f => "SDRAM",
        0x12 => "DDR",
        0x13 => "DDR2",
        0x14 => "DDR2 FB-DIMM",
        0x18 => "DDR3",
        0x19 => "FBD2",
        0x1a => "DDR4",
        0x1b => "LPDDR",
        0x1c => "LPDDR2",
        0x1d => "LPDDR3",
        0x1e => "LPDDR4",
        0x1f => "persistent",
        0x20 => "HBM",
        0x21 => "HBM2",
        0x22 => "DDR5",
        0x23 => "LPDDR5",
        0x24 => "HBM3",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::tree;
    use super::*;

    /// A structure of this type with a formatted part of `length` bytes, these bytes in it, and texts.
    fn entry(kind: u8, length: u8, bytes: &[(usize, &[u8])], texts: &[&str]) -> Vec<u8> {
        let mut made = vec![0; usize::from(length)];
        (made[0], made[1]) = (kind, length);
        for (at, value) in bytes {
            made[*at..at + value.len()].copy_from_slice(value);
        }
        texts.iter().for_each(|text| made.extend([text.as_bytes(), b"\0"].concat()));
        made.extend(if texts.is_empty() { &b"\0\0"[..] } else { b"\0" });
        made
    }

    const TEXTS: [&str; 4] = ["DIMM_A1", "Samsung", "0123ABCD", "M393A4K40"];
    const NUMBERS: [(usize, &[u8]); 4] = [(0x10, &[1]), (0x17, &[2]), (0x18, &[3]), (0x1a, &[4])];

    #[test]
    fn modules_are_read_from_the_firmwares_table() {
        let with = |more: &[(usize, &[u8])]| entry(17, 0x5c, &[&NUMBERS, more].concat(), &TEXTS);
        let table = [
            entry(1, 27, &[], &["not memory"]),
            // 16 GiB of DDR4 at 2,933.
            with(&[(0x0c, &[0x00, 0x40]), (0x12, &[0x1a]), (0x15, &[0x80, 0x0c]), (0x20, &[0x75, 0x0b])]),
            // 64 GiB, in the longer field; its own speed where none is configured.
            with(&[(0x0c, &[0xff, 0x7f]), (0x1c, &[0, 0, 1, 0]), (0x12, &[0x22]), (0x15, &[0xc0, 0x12])]),
            // 512 KiB by an old firmware without speeds.
            entry(17, 0x1b, &[&NUMBERS[..], &[(0x0c, &[0x00, 0x82])]].concat(), &TEXTS),
            with(&[(0x0c, &[0, 0])]),
            with(&[(0x0c, &[0xff, 0xff])]),
            entry(127, 4, &[], &[]),
            with(&[(0x0c, &[1, 0])]),
        ]
        .concat();
        let seen = modules(&table);
        let numbers: Vec<_> = seen.iter().map(|m| (m.size_bytes >> 10, m.kind.as_str(), m.speed_mts)).collect();
        assert_eq!(numbers, [(16 << 20, "DDR4", Some(2933)), (64 << 20, "DDR5", Some(4800)), (512, "", None)]);
        let first = &seen[0];
        assert_eq!([&first.slot, &first.manufacturer, &first.serial, &first.part].map(String::as_str), TEXTS);
        // However it is cut, nothing is read beyond it.
        for end in 0..table.len() {
            assert!(modules(&table[..end]).len() <= 3);
        }
        for at in 0..table.len() {
            for value in [0, 1, 3, 0x7f, 0xff] {
                let mut wrong = table.clone();
                wrong[at] = value;
                modules(&wrong);
            }
        }
    }

    #[test]
    fn slots_with_one_name_differ_by_their_banks() {
        let with = |slot: &str, bank: &str| {
            let texts: Vec<&str> = [slot, bank].into_iter().filter(|text| !text.is_empty()).collect();
            let numbers: [(usize, &[u8]); 3] =
                [(0x10, &[1]), (0x11, &[u8::from(!bank.is_empty()) * 2]), (0x0c, &[0, 4])];
            entry(17, 0x5c, &numbers, &texts)
        };
        let table = [with("DIMM 0", "BANK 0"), with("DIMM 0", "BANK 1"), with("DIMM 9", "BANK 1"), with("DIMM 0", "")];
        let slots: Vec<String> = modules(&table.concat()).into_iter().map(|module| module.slot).collect();
        assert_eq!(slots, ["BANK 0 DIMM 0", "BANK 1 DIMM 0", "DIMM 9", "DIMM 0"]);
    }

    #[test]
    fn nodes_have_memory_and_processors() {
        let sys = tree(&[
            ("node10/meminfo", "Node 10 MemTotal:       2048 kB\nNode 10 MemFree: 1 kB\n"),
            ("node10/cpulist", "8-15\n"),
            ("node2/meminfo", "Node 2 MemTotal:  1024 kB\n"),
            ("has_cpu", "0\n"),
        ]);
        let node = |number, size_bytes, cpus: &str| MemoryNode { number, size_bytes, cpus: cpus.into() };
        assert_eq!(numa(sys.path()), [node(2, 1 << 20, ""), node(10, 2 << 20, "8-15")]);
    }
}
