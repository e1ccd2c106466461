//! The decision: a GPT, a plausible table of the old kind, or, only where that is stated, neither.

use super::{Mistake, recognise};
use crate::gpt::{LegacyPartition, has_signature, legacy_partitions, plausible_table};
use crate::{Defect, Table, TableError};

/// What an image is.
#[derive(Debug)]
pub(crate) enum Content {
    /// A disk with a GPT, announced by its first sector.
    Gpt(Table),
    /// A disk with a table of the old kind: these partitions.
    Mbr(Vec<LegacyPartition>),
    /// A disk without a table, as stated.
    NoTable,
}

/// Why something is not written as an image.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It has not even one sector, and is nothing known.
    Short,
    /// Its table counts sectors of so many bytes, and the disk's have another size.
    SectorSize(u32),
    /// What is wrong, and in words.
    Defect(Defect, String),
}

/// Decides by the image's first MiB (less only if it has no more), for a disk with sectors of `sector` bytes. `no_table`:
/// the request states that the image has no partition table.
pub(crate) fn decide(head: &[u8], sector: u32, no_table: bool) -> Result<Content, Refusal> {
    let refuse = |defect, reason: &str| Err(Refusal::Defect(defect, reason.to_owned()));
    if head.len() < sector as usize {
        return match recognise(head) {
            Some((_, Mistake::Volume)) | None => Err(Refusal::Short),
            Some((name, mistake)) => refuse(Defect::Other(mistake), &format!("it is {name}, not a disk image")),
        };
    }
    let announced = has_signature(head) && legacy_partitions(head).iter().any(|part| part.kind == 0xee);
    // A kernel has the boot signature too, and its header lies where the entries are: what else it is known to be counts.
    let other = recognise(head).filter(|(_, mistake)| !matches!(mistake, Mistake::Volume | Mistake::Message));
    let legacy = plausible_table(head).filter(|_| !announced && other.is_none());
    let content = match (Table::read(head, 1, sector), legacy) {
        (Ok(table), _) if announced => Content::Gpt(table),
        (Ok(_), None) if !has_signature(head) => {
            return refuse(Defect::Table, "it has a GPT, but its first sector lacks the boot signature 55 AA");
        }
        (Ok(_), None) => return refuse(Defect::Table, "it has a GPT, but its first sector does not announce one"),
        // What boots and mounts goes by the first sector; a GPT behind it is of an earlier use of that file or disk.
        (Ok(_) | Err(TableError::Damaged(_)), Some(_)) => return left_over(),
        (Err(TableError::Absent), legacy) => {
            let mut others = [512, 4096].into_iter().filter(|size| *size != sector);
            let other = others.find(|size| !matches!(Table::read(head, 1, *size), Err(TableError::Absent)));
            match (other, legacy) {
                (Some(_), Some(_)) => return left_over(),
                (Some(size), None) => return Err(Refusal::SectorSize(size)),
                (None, _) if announced => {
                    return refuse(Defect::Table, "its first sector announces a GPT, but the image has no valid GPT");
                }
                // The old table counts sectors and does not say how large they are; images are made with 512.
                (None, Some(_)) if sector != 512 => return Err(Refusal::SectorSize(512)),
                (None, Some(parts)) => Content::Mbr(parts),
                (None, None) => return without_table(head, no_table),
            }
        }
        (Err(error), _) => return refuse(Defect::Table, &error.to_string()),
    };
    let found = match &content {
        Content::Gpt(_) => "a GPT",
        _ => "a partition table (MBR)",
    };
    if no_table {
        return refuse(Defect::Stated, &format!("its table is stated as none, but it has {found}"));
    }
    Ok(content)
}

fn left_over() -> Result<Content, Refusal> {
    let reason = "its first sector is an MBR with partitions that announces no GPT, but a GPT stands behind it: one of \
        the two tables is left over, and what they lead to can differ";
    Err(Refusal::Defect(Defect::LeftOver, reason.into()))
}

fn without_table(head: &[u8], stated: bool) -> Result<Content, Refusal> {
    let refuse = |defect, reason: String| Err(Refusal::Defect(defect, reason));
    match recognise(head) {
        Some((_, Mistake::Volume)) | None if stated => Ok(Content::NoTable),
        Some((name, Mistake::Volume)) => {
            refuse(Defect::Other(Mistake::Volume), format!("it is {name} without a partition table"))
        }
        Some((name, kind)) => refuse(Defect::Other(kind), format!("it is {name}, not a disk image")),
        None if head.iter().all(|byte| *byte == 0) => {
            refuse(Defect::NoTable, "its first MiB is all zeroes, so it has no partition table".into())
        }
        None => {
            let reason = "it has no partition table: neither a GPT, nor an MBR with partitions and the signature 55 AA";
            refuse(Defect::NoTable, reason.into())
        }
    }
}
