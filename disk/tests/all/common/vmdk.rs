//! streamOptimized VMDKs as VMware writes them: tables behind the grains, then footer and end. `qemu-img` writes the other
//! kind, and reads this one.

use std::io::Write as _;

use flate2::{Compression, write::ZlibEncoder};

const SECTOR: usize = 512;
/// Grains of a table.
const ENTRIES: usize = 512;

/// A file, and where its parts begin, bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Made {
    pub(crate) bytes: Vec<u8>,
    /// Markers of the grains.
    pub(crate) grains: Vec<usize>,
    /// Tables; their markers are a sector before them.
    pub(crate) tables: Vec<usize>,
    /// Likewise.
    pub(crate) directory: usize,
    /// Likewise.
    pub(crate) footer: usize,
    /// The marker of the end.
    pub(crate) end: usize,
}

/// A disk of so many sectors with these grains of `grain` sectors: where each begins on the disk, and its bytes.
pub(crate) fn file(capacity: u64, grain: u64, grains: &[(u64, Vec<u8>)]) -> Made {
    let mut made = Made { bytes: header(capacity, grain, u64::MAX), ..Made::default() };
    let text = format!(
        "# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\ncreateType=\"streamOptimized\"\n\n\
         # Extent description\nRDONLY {capacity} SPARSE \"disk.vmdk\"\n\n#DDB\nddb.adapterType = \"lsilogic\"\n"
    );
    made.bytes.extend(text.as_bytes());
    made.bytes.resize(128 * SECTOR, 0);
    let per_table = grain * ENTRIES as u64;
    let mut tables = vec![[0_u32; ENTRIES]; capacity.div_ceil(per_table) as usize];
    for (at, raw) in grains {
        let place = made.bytes.len();
        made.grains.push(place);
        if let Some(table) = tables.get_mut((at / per_table) as usize) {
            table[(at / grain) as usize % ENTRIES] = (place / SECTOR) as u32;
        }
        let mut stored = ZlibEncoder::new(Vec::new(), Compression::fast());
        stored.write_all(raw).unwrap();
        let stored = stored.finish().unwrap();
        made.bytes.extend(at.to_le_bytes());
        made.bytes.extend((stored.len() as u32).to_le_bytes());
        made.bytes.extend(stored);
        made.pad();
    }
    let mut directory = Vec::new();
    for table in tables {
        if table.iter().all(|entry| *entry == 0) {
            directory.extend([0; 4]);
            continue;
        }
        made.marker(1, 4);
        made.tables.push(made.bytes.len());
        directory.extend(((made.bytes.len() / SECTOR) as u32).to_le_bytes());
        made.bytes.extend(table.iter().flat_map(|entry| entry.to_le_bytes()));
    }
    made.marker(2, directory.len().div_ceil(SECTOR) as u64);
    made.directory = made.bytes.len();
    made.bytes.extend(directory);
    made.pad();
    made.marker(3, 1);
    made.footer = made.bytes.len();
    made.bytes.extend(header(capacity, grain, (made.directory / SECTOR) as u64));
    made.end = made.bytes.len();
    made.marker(0, 0);
    made
}

/// The disk with these bytes: its grains that are not zero.
pub(crate) fn of(raw: &[u8], grain: u64) -> Made {
    let grains: Vec<_> = raw
        .chunks(grain as usize * SECTOR)
        .enumerate()
        .filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0))
        .map(|(number, bytes)| (number as u64 * grain, bytes.to_vec()))
        .collect();
    file((raw.len() / SECTOR) as u64, grain, &grains)
}

fn header(capacity: u64, grain: u64, directory: u64) -> Vec<u8> {
    let mut bytes = b"KDMV".to_vec();
    bytes.extend(3_u32.to_le_bytes());
    bytes.extend(0x0003_0001_u32.to_le_bytes());
    // Capacity, grain, descriptor's place and size.
    bytes.extend([capacity, grain, 1, 20].into_iter().flat_map(u64::to_le_bytes));
    bytes.extend((ENTRIES as u32).to_le_bytes());
    // The second directory, the directory, sectors before the grains.
    bytes.extend([0, directory, 128].into_iter().flat_map(u64::to_le_bytes));
    bytes.extend(b"\0\n \r\n\x01\0");
    bytes.resize(SECTOR, 0);
    bytes
}

impl Made {
    fn marker(&mut self, kind: u32, sectors: u64) {
        self.bytes.extend(sectors.to_le_bytes());
        self.bytes.extend(0_u32.to_le_bytes());
        self.bytes.extend(kind.to_le_bytes());
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(SECTOR), 0);
    }
}
