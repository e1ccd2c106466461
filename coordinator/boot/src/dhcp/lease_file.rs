//! Leases over a restart: one small JSON file, replaced whole, before the client gets its answer.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::leases::{Lease, MAX_RANGE};

/// A larger file was not written by this module.
const MAX_BYTES: u64 = MAX_RANGE as u64 * 256;

#[derive(Serialize, Deserialize)]
struct Kept {
    version: u32,
    leases: BTreeMap<Ipv4Addr, Lease>,
}

/// Where the leases are kept.
#[derive(Debug, Clone)]
pub struct LeaseFile {
    path: PathBuf,
}

impl LeaseFile {
    /// The file in the coordinator's data directory.
    pub fn new(data_dir: &Path) -> Self {
        Self { path: data_dir.join("dhcp-leases.json") }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The kept leases; none if there is no file yet.
    ///
    /// # Errors
    /// When the file is there and cannot be read or understood: forgetting leases that run would hand out addresses twice.
    pub fn load(&self) -> io::Result<BTreeMap<Ipv4Addr, Lease>> {
        let bytes = match fs::metadata(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(e) => return Err(e),
            Ok(meta) if meta.len() > MAX_BYTES => return Err(io::Error::other("it is far too large")),
            Ok(_) => fs::read(&self.path)?,
        };
        let kept: Kept = serde_json::from_slice(&bytes)?;
        if kept.version != 1 {
            return Err(io::Error::other(format!("it is of version {}, this program knows 1", kept.version)));
        }
        Ok(kept.leases)
    }

    /// Replaces the file: a power cut leaves the old one or the new one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self, leases: BTreeMap<Ipv4Addr, Lease>) -> io::Result<()> {
        let bytes = serde_json::to_vec(&Kept { version: 1, leases })?;
        let new = self.path.with_extension("json.new");
        let mut file = File::create(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        match self.path.parent() {
            Some(directory) => File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::leases::LeaseState;
    use super::*;

    #[test]
    fn leases_survive_a_restart_and_broken_files_fail() {
        let dir = tempfile::tempdir().unwrap();
        let file = LeaseFile::new(dir.path());
        assert_eq!(file.load().unwrap(), BTreeMap::new());
        let lease = Lease {
            mac: "52:54:00:00:00:01".parse().unwrap(),
            state: LeaseState::Bound,
            until: 7,
            unknown: true,
            reserved: false,
        };
        let leases = BTreeMap::from([(Ipv4Addr::new(10, 0, 0, 9), lease)]);
        file.save(leases.clone()).unwrap();
        assert_eq!(file.load().unwrap(), leases);
        fs::write(file.path(), b"{").unwrap();
        assert!(file.load().is_err());
    }
}
