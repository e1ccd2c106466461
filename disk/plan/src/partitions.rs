//! The partition table of one disk.

use std::ops::Range;

use landfall_api::{
    DiskId, DiskLayoutSpec, PartitionSpec, RECEIPT_NAME, RECEIPT_PARTITION, RECEIPT_PLACE, StorageSpec, TableSpec,
};
use uuid::Uuid;

use crate::error::PlanError;
use crate::ids::Ids;
use crate::input::{Architecture, PlanDisk};
use crate::kinds;
use crate::kinds::PartitionType;
use crate::place::{ALIGN, Unplaced, gaps, place};

/// Entries of a GPT, and the bytes that they take: UEFI 2.10, section 5.3.2.
const GPT_ENTRIES: u32 = 128;
const GPT_ENTRIES_BYTES: u64 = 128 * 128;
/// Sectors that a table of the old kind can count.
const MBR_SECTORS: u64 = u32::MAX as u64;

/// What becomes of one disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskPlan {
    /// Which disk.
    pub disk: DiskId,
    /// Its logical sectors, bytes: 512 or 4096.
    pub sector: u32,
    /// The kind of table.
    pub table: TableSpec,
    /// The table's own identity; of one of the old kind the first four bytes.
    pub guid: Uuid,
    /// By number. None overlaps another.
    pub partitions: Vec<PlannedPartition>,
}

impl DiskPlan {
    /// Whether the system starts from this disk: its table comes after those of the others.
    pub fn starts(&self) -> bool {
        self.partitions.iter().any(|partition| partition.active || partition.kind.starts())
    }
}

/// One entry of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedPartition {
    /// From 1.
    pub number: u32,
    /// Its name: in a GPT the label.
    pub name: String,
    /// Its type.
    pub kind: PartitionType,
    /// Its own GUID; in a table of the old kind without meaning.
    pub guid: Uuid,
    /// First sector.
    pub first: u64,
    /// Last sector, inclusive.
    pub last: u64,
    /// Whether a BIOS is to take it for the one to start, in a table of the old kind.
    pub active: bool,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where a partition comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The layout's.
    New,
    /// It was there, and stays.
    Kept,
    /// The receipt's own entry.
    Receipt,
}

impl PlannedPartition {
    /// The bytes of the disk it covers; sectors have `sector` bytes.
    pub fn bytes(&self, sector: u32) -> Range<u64> {
        self.first * u64::from(sector)..(self.last + 1) * u64::from(sector)
    }
}

/// What all partitions of a layout share.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) layout: &'a StorageSpec,
    pub(crate) ids: Ids,
    pub(crate) architecture: Architecture,
}

/// The table of the disk `index` of the layout, the `twin`-th of those that have its partitions; `None`: there is only one.
pub(crate) fn partition(
    context: Context<'_>, index: usize, twin: Option<usize>, layout: &DiskLayoutSpec, disk: &PlanDisk,
) -> Result<DiskPlan, PlanError> {
    let id = &disk.disk.id;
    let sector = disk.disk.logical_sector_bytes;
    if !matches!(sector, 512 | 4096) {
        return Err(PlanError::SectorSize { disk: id.name.clone(), sector });
    }
    let usable = usable(id.size_bytes, sector, layout.table);
    let mut partitions = kept(layout, disk, sector, &usable)?;
    let taken: Vec<Range<u64>> = partitions.iter().map(|part| part.bytes(sector)).collect();
    let gaps = gaps(&(ALIGN..usable.end.max(ALIGN)), &taken);
    let new: Vec<&PartitionSpec> = layout.partitions.iter().filter(|part| !part.preserve).collect();
    let sizes: Vec<_> = new.iter().map(|part| part.size()).collect();
    let no_room = |Unplaced { index, needs, free }: Unplaced| {
        let name = new.get(index).map_or("", |part| part.name());
        PlanError::NoRoom { whole: format!("disk {}", id.name), name: format!("partition {name}"), needs, free }
    };
    let places = place(&sizes, &gaps).map_err(no_room)?;
    let used: Vec<u32> = partitions.iter().map(|part| part.number).collect();
    let numbers = (1..=GPT_ENTRIES).filter(|number| !used.contains(number));
    let starts = new.iter().position(|part| crate::kinds::starts(part.role()));
    for (n, ((part, range), number)) in new.iter().zip(places).zip(numbers).enumerate() {
        partitions.push(PlannedPartition {
            number,
            name: twin.map_or_else(|| part.name().to_owned(), |twin| format!("{}-{}", part.name(), twin + 1)),
            kind: kind(context, part),
            guid: context.ids.of(&format!("disk/{index}/partition/{}", part.name())),
            first: range.start / u64::from(sector),
            last: range.end / u64::from(sector) - 1,
            active: layout.table == TableSpec::Mbr && starts == Some(n),
            origin: Origin::New,
        });
    }
    if layout.table == TableSpec::Gpt {
        let number = (1..=GPT_ENTRIES).rev().find(|number| partitions.iter().all(|part| part.number != *number));
        partitions.push(receipt(context.ids, index, sector, number.unwrap_or(GPT_ENTRIES)));
    }
    partitions.sort_by_key(|part| part.number);
    let guid = context.ids.of(&format!("disk/{index}"));
    Ok(DiskPlan { disk: id.clone(), sector, table: layout.table, guid, partitions })
}

/// Between the tables, bytes. With a GPT this is what its header calls usable.
fn usable(size: u64, sector: u32, table: TableSpec) -> Range<u64> {
    let bytes = u64::from(sector);
    let sectors = size / bytes;
    match table {
        TableSpec::Gpt => {
            let entries = GPT_ENTRIES_BYTES.div_ceil(bytes);
            (2 + entries) * bytes..sectors.saturating_sub(entries + 1) * bytes
        }
        TableSpec::Mbr => bytes..sectors.min(MBR_SECTORS) * bytes,
    }
}

/// The partitions that stay, if they can.
fn kept(
    layout: &DiskLayoutSpec, disk: &PlanDisk, sector: u32, usable: &Range<u64>,
) -> Result<Vec<PlannedPartition>, PlanError> {
    let named = || disk.disk.id.name.clone();
    let mut partitions: Vec<PlannedPartition> = Vec::new();
    for part in layout.partitions.iter().filter(|part| part.preserve) {
        let name = part.name();
        let mut matching = disk.kept.iter().filter(|kept| kept.name == name);
        let (Some(found), None) = (matching.next(), matching.next()) else {
            return Err(PlanError::NotKept { disk: named(), name: name.into() });
        };
        let bytes =
            found.first.saturating_mul(sector.into())..found.last.saturating_add(1).saturating_mul(sector.into());
        let overlaps = |other: &PlannedPartition| {
            let other = other.bytes(sector);
            other.start < bytes.end && other.end > bytes.start
        };
        let reason = if bytes.start < ALIGN {
            Some("it begins in the first MiB, where the table and the receipt stand")
        } else if bytes.is_empty() || bytes.end > usable.end {
            Some("it reaches into the backup table at the disk's end")
        } else if partitions.iter().any(overlaps) {
            Some("it overlaps another preserved partition")
        } else if found.number == 0
            || found.number > GPT_ENTRIES
            || partitions.iter().any(|other| other.number == found.number)
        {
            Some("its number is not one that the new table has free")
        } else {
            None
        };
        if let Some(reason) = reason {
            return Err(PlanError::KeptInTheWay { disk: named(), name: name.into(), reason });
        }
        partitions.push(PlannedPartition {
            number: found.number,
            name: name.to_owned(),
            kind: PartitionType { gpt: found.kind, mbr: 0, name: "preserved" },
            guid: found.guid,
            first: found.first,
            last: found.last,
            active: false,
            origin: Origin::Kept,
        });
    }
    Ok(partitions)
}

/// By its role, unless it is a member of something or encrypted without a role.
fn kind(context: Context<'_>, part: &PartitionSpec) -> PartitionType {
    let by_role = kinds::of_role(part.role(), context.architecture);
    let holds = |from: &[String]| from.iter().any(|name| name == part.name());
    // Firmware must still find the members of a mirrored EFI system partition.
    if part.role() == landfall_api::PartitionRole::Esp {
        by_role
    } else if part.role() == landfall_api::PartitionRole::Data && part.encrypt.is_some() {
        kinds::LUKS
    } else if context.layout.raids.iter().any(|raid| holds(&raid.from)) {
        kinds::RAID
    } else if context.layout.volume_groups.iter().any(|group| holds(&group.from)) {
        kinds::LVM
    } else {
        by_role
    }
}

fn receipt(ids: Ids, index: usize, sector: u32, number: u32) -> PlannedPartition {
    PlannedPartition {
        number,
        name: RECEIPT_NAME.into(),
        kind: PartitionType { gpt: RECEIPT_PARTITION, mbr: 0, name: "receipt" },
        guid: ids.of(&format!("disk/{index}/receipt")),
        first: RECEIPT_PLACE.start / u64::from(sector),
        last: RECEIPT_PLACE.end / u64::from(sector) - 1,
        active: false,
        origin: Origin::Receipt,
    }
}
