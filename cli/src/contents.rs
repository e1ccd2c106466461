//! What is on disks, as a table for people.

use landfall_api::{DiskFacts, VolumeFacts};

use crate::human;
use crate::table::{Columns, or_dash};

/// The table of these disks' contents.
pub(crate) fn columns<'a>(disks: impl IntoIterator<Item = &'a DiskFacts>) -> Columns {
    let mut columns = Columns::new(&["ON DISK", "PARTITION", "SIZE", "NAME", "HOLDS"]);
    disks.into_iter().flat_map(rows).for_each(|row| columns.row(row));
    columns
}

fn rows(disk: &DiskFacts) -> Vec<Vec<String>> {
    let name = disk.id.name.clone();
    let row = |partition: String, size: String, label: &str, holds: String| {
        vec![name.clone(), partition, size, or_dash(label.to_owned()), holds]
    };
    let whole = |holds: String| row("whole disk".into(), human::bytes(disk.id.size_bytes), "", holds);
    let Some(contents) = &disk.contents else { return vec![whole("not known".into())] };
    let mut out = Vec::new();
    if contents.is_blank() {
        out.push(whole("nothing".into()));
    } else if contents.unknown_data {
        out.push(whole("unknown data".into()));
    } else if contents.partitions.is_empty() && contents.volumes.is_empty() {
        out.push(whole(format!("an empty {} table", contents.table.to_uppercase())));
    }
    if !contents.volumes.is_empty() {
        out.push(whole(volumes(&contents.volumes)));
    }
    for one in &contents.partitions {
        let holds = if one.volumes.is_empty() { "nothing known".into() } else { volumes(&one.volumes) };
        out.push(row(one.number.to_string(), human::bytes(one.size_bytes), &one.name, holds));
    }
    if contents.more_partitions > 0 {
        out.push(row(format!("{} more", contents.more_partitions), or_dash(String::new()), "", or_dash(String::new())));
    }
    out
}

fn volumes(volumes: &[VolumeFacts]) -> String {
    let volume = |one: &VolumeFacts| match one.label.as_str() {
        "" => one.kind.clone(),
        label => format!("{} \"{label}\"", one.kind),
    };
    volumes.iter().map(volume).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use landfall_api::{DiskContents, DiskId, PartitionFacts};

    use super::*;

    #[test]
    fn each_disk_says_what_it_holds() {
        let id = DiskId { name: "vda".into(), size_bytes: 1 << 30, ..DiskId::default() };
        let disk = DiskFacts { id, ..DiskFacts::default() };
        let holds = |contents: Option<DiskContents>| {
            let rows = rows(&DiskFacts { contents, ..disk.clone() });
            rows.into_iter().map(|row| row[1..].join("|")).collect::<Vec<_>>()
        };
        let blank = DiskContents {
            seen_at: jiff::Timestamp::UNIX_EPOCH,
            table: String::new(),
            volumes: vec![],
            partitions: vec![],
            more_partitions: 0,
            unknown_data: false,
        };
        assert_eq!(holds(None), ["whole disk|1.0 GiB|-|not known"]);
        assert_eq!(holds(Some(blank.clone())), ["whole disk|1.0 GiB|-|nothing"]);
        assert_eq!(
            holds(Some(DiskContents { unknown_data: true, ..blank.clone() })),
            ["whole disk|1.0 GiB|-|unknown data"]
        );
        let swap = VolumeFacts { kind: "swap space".into(), label: String::new() };
        let xfs = VolumeFacts { kind: "XFS file system".into(), label: "data".into() };
        let part =
            |number, name: &str, volumes| PartitionFacts { number, name: name.into(), size_bytes: 1 << 20, volumes };
        let partitions = vec![part(1, "root", vec![xfs, swap.clone()]), part(14, "", vec![])];
        let full = DiskContents { table: "gpt".into(), volumes: vec![swap], partitions, more_partitions: 3, ..blank };
        assert_eq!(
            holds(Some(full)),
            [
                "whole disk|1.0 GiB|-|swap space", "1|1.0 MiB|root|XFS file system \"data\", swap space",
                "14|1.0 MiB|-|nothing known", "3 more|-|-|-"
            ]
        );
    }
}
