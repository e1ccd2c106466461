//! The rows: few, and every two parts that QEMU can put together are in one of them.

use std::cmp::Reverse;

use landfall_lab::{Board, Card, DiskBus};

use super::Way;

/// One machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) way: Way,
    pub(super) card: Card,
    pub(super) disk: DiskBus,
    /// Bytes of a logical sector.
    pub(super) sector: u32,
    pub(super) memory_mib: u32,
    pub(super) board: Board,
}

impl Row {
    /// Whether the drivers of its parts are in the boot image for servers alone.
    pub(super) fn needs_server(&self) -> bool {
        self.card == Card::Usb || self.disk == DiskBus::MegaSas
    }

    /// Whether the system of the tests (`scripts/os/mini`) starts on it after the install: it has no driver of a USB card, and is made for
    /// sectors of 512 bytes.
    pub(super) fn is_installed(&self) -> bool {
        // The system's own GRUB on UEFI, after the firmware tried the network, has too little memory for its kernel below, and OVMF has no
        // driver for either SAS controller. A USB stick cannot be taken out like a CD, and would start again: `medium` installs from one.
        let starts = match self.way {
            Way::BiosPxe | Way::Cd => true,
            Way::UefiPxe | Way::UefiHttp => {
                self.memory_mib >= 512 && !matches!(self.disk, DiskBus::MptSas | DiskBus::MegaSas)
            }
            Way::Usb => false,
        };
        starts && self.sector == 512 && self.card != Card::Usb
    }
}

/// One part of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Way(Way),
    Card(Card),
    Disk(DiskBus),
    Sector(u32),
    Memory(u32),
    Board(Board),
}

/// What there is of each kind of part, the one with most choices first: it has the most pairs.
fn choices() -> [Vec<Part>; 6] {
    let disks = [DiskBus::Virtio, DiskBus::Scsi, DiskBus::Nvme, DiskBus::Ahci, DiskBus::MptSas, DiskBus::MegaSas];
    [
        disks.map(Part::Disk).to_vec(),
        Card::ALL.map(Part::Card).to_vec(),
        Way::ALL.map(Part::Way).to_vec(),
        [512, 192, 256, 2048].map(Part::Memory).to_vec(),
        [512, 4096].map(Part::Sector).to_vec(),
        Board::X86.map(Part::Board).to_vec(),
    ]
}

/// Why two parts do not go together, in whatever order; nothing if they do.
fn impossible(a: Part, b: Part) -> Option<&'static str> {
    use Part::{Card as C, Disk as D, Memory as M, Sector as S, Way as W};
    let reason = |a, b| match (a, b) {
        (D(DiskBus::Ahci), S(4096)) => Some("QEMU's SATA disks have 512-byte sectors"),
        (W(Way::BiosPxe), C(Card::Vmxnet3)) => Some("through iPXE's driver undionly.kpxe gets no frame from a vmxnet3"),
        (W(Way::UefiPxe | Way::UefiHttp), C(Card::Usb)) => Some("OVMF has no driver for a USB card"),
        (W(Way::BiosPxe), C(Card::Usb)) => Some("iPXE finds no port in QEMU's USB card"),
        (W(Way::Usb), M(192 | 256)) => Some("GRUB on UEFI has no memory left for the initramfs"),
        (C(Card::Usb) | D(DiskBus::MegaSas), M(192)) => Some("the boot image for servers needs 256 MiB"),
        _ => None,
    };
    reason(a, b).or_else(|| reason(b, a))
}

/// Rows with every possible pair, the same each time: each begins with a pair that is missing, and takes what brings the most.
pub(super) fn rows() -> Vec<Row> {
    let choices = choices();
    let mut missing = pairs(&choices);
    let mut rows: Vec<Vec<Part>> = Vec::new();
    while let Some((a, b)) = missing.first().copied() {
        let mut parts = vec![a, b];
        for kind in choices.iter().filter(|kind| !kind.contains(&a) && !kind.contains(&b)) {
            let fits = |part: &&Part| parts.iter().all(|other| impossible(**part, *other).is_none());
            let brings = |part: Part| parts.iter().filter(|other| is_in(&missing, part, **other)).count();
            let used = |part: &Part| rows.iter().filter(|row| row.contains(part)).count();
            // Of several that bring the same, the one that is used least: the ways have as many rows each.
            let best = kind.iter().filter(fits).rev().max_by_key(|part| (brings(**part), Reverse(used(part))));
            parts.extend(best);
        }
        missing.retain(|(a, b)| !(parts.contains(a) && parts.contains(b)));
        rows.push(parts);
    }
    rows.iter().map(|parts| row(parts)).collect()
}

fn is_in(pairs: &[(Part, Part)], a: Part, b: Part) -> bool {
    pairs.contains(&(a, b)) || pairs.contains(&(b, a))
}

/// Every two parts of different kinds that go together.
fn pairs(choices: &[Vec<Part>]) -> Vec<(Part, Part)> {
    let mut pairs = Vec::new();
    for (nth, kind) in choices.iter().enumerate() {
        for (a, b) in kind.iter().flat_map(|a| choices[nth + 1..].iter().flatten().map(move |b| (*a, *b))) {
            if impossible(a, b).is_none() {
                pairs.push((a, b));
            }
        }
    }
    pairs
}

/// A row of these parts, whatever their order. What they lack is the plainest, and a test says that they lack nothing.
fn row(parts: &[Part]) -> Row {
    let mut row = Row {
        way: Way::BiosPxe,
        card: Card::Virtio,
        disk: DiskBus::Virtio,
        sector: 512,
        memory_mib: 512,
        board: Board::Q35,
    };
    for part in parts {
        match *part {
            Part::Way(way) => row.way = way,
            Part::Card(card) => row.card = card,
            Part::Disk(disk) => row.disk = disk,
            Part::Sector(sector) => row.sector = sector,
            Part::Memory(mib) => row.memory_mib = mib,
            Part::Board(board) => row.board = board,
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(row: &Row) -> [Part; 6] {
        let Row { way, card, disk, sector, memory_mib, board } = *row;
        [
            Part::Way(way),
            Part::Card(card),
            Part::Disk(disk),
            Part::Sector(sector),
            Part::Memory(memory_mib),
            Part::Board(board),
        ]
    }

    #[test]
    fn every_possible_pair_is_in_a_row_and_no_other() {
        let rows = rows();
        let mut missing = pairs(&choices());
        for row in &rows {
            let parts = parts(row);
            for (nth, a) in parts.iter().enumerate() {
                for b in &parts[nth + 1..] {
                    assert_eq!(impossible(*a, *b), None, "{row:?}");
                }
            }
            missing.retain(|(a, b)| !(parts.contains(a) && parts.contains(b)));
        }
        assert_eq!(missing, []);
        // Six disks and six cards make 36 pairs; few rows more hold all others.
        assert!(rows.len() <= 45, "{} rows", rows.len());
    }

    #[test]
    fn ten_rows_are_installed_some_of_each_way() {
        let installed: Vec<Row> = rows().into_iter().filter(Row::is_installed).collect();
        assert!(installed.len() >= 10, "{installed:#?}");
        let ways = Way::ALL.into_iter().filter(|way| *way != Way::Usb);
        ways.for_each(|way| assert!(installed.iter().any(|row| row.way == way), "{way:?}"));
        // More than the plainest parts.
        for disk in [DiskBus::Nvme, DiskBus::Ahci, DiskBus::Scsi, DiskBus::MegaSas] {
            assert!(installed.iter().any(|row| row.disk == disk), "{disk:?}");
        }
    }
}
