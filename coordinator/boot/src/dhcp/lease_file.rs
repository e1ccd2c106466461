//! Leases over a restart: one small JSON file, replaced whole, before the client gets its answer. Where several coordinators take one
//! another's place, it is in their store.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs, io};

use serde::{Deserialize, Serialize};

use super::leases::{Lease, MAX_RANGE};
use crate::policy::SharedFile;

/// A larger file was not written by this module.
const MAX_BYTES: u64 = MAX_RANGE as u64 * 256;

#[derive(Serialize, Deserialize)]
struct Kept {
    version: u32,
    leases: BTreeMap<Ipv4Addr, Lease>,
}

/// Where the leases are kept.
#[derive(Clone)]
pub enum LeaseFile {
    /// On this host.
    Own(PathBuf),
    /// With the other coordinators.
    Shared(Arc<dyn SharedFile>),
}

impl fmt::Display for LeaseFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(path) => path.display().fmt(f),
            Self::Shared(_) => f.write_str("in the coordinators' store"),
        }
    }
}

impl LeaseFile {
    /// The file in the coordinator's data directory.
    pub fn new(data_dir: &Path) -> Self {
        Self::Own(Self::own(data_dir))
    }

    /// Its path.
    pub fn own(data_dir: &Path) -> PathBuf {
        data_dir.join("dhcp-leases.json")
    }

    /// The kept leases; none if there is no file yet.
    ///
    /// # Errors
    /// When the file is there and cannot be read or understood: forgetting leases that run would hand out addresses twice.
    pub async fn load(&self) -> io::Result<BTreeMap<Ipv4Addr, Lease>> {
        let bytes = match self {
            Self::Own(path) => match fs::metadata(path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                Err(e) => return Err(e),
                Ok(meta) if meta.len() > MAX_BYTES => return Err(io::Error::other("it is far too large")),
                Ok(_) => Some(fs::read(path)?),
            },
            Self::Shared(file) => file.read().await?,
        };
        let Some(bytes) = bytes else { return Ok(BTreeMap::new()) };
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
    pub async fn save(&self, leases: BTreeMap<Ipv4Addr, Lease>) -> io::Result<()> {
        let bytes = serde_json::to_vec(&Kept { version: 1, leases })?;
        match self {
            Self::Own(path) => {
                let path = path.clone();
                // Off the async threads.
                tokio::task::spawn_blocking(move || replace(&path, &bytes)).await.map_err(io::Error::other)?
            }
            Self::Shared(file) => file.write(&bytes).await,
        }
    }
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("json.new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::super::leases::LeaseState;
    use super::*;

    #[derive(Default)]
    struct Memory(std::sync::Mutex<Option<Vec<u8>>>);

    #[async_trait]
    impl SharedFile for Memory {
        async fn read(&self) -> io::Result<Option<Vec<u8>>> {
            Ok(self.0.lock().unwrap().clone())
        }

        async fn write(&self, bytes: &[u8]) -> io::Result<()> {
            *self.0.lock().unwrap() = Some(bytes.to_vec());
            Ok(())
        }
    }

    #[tokio::test]
    async fn leases_survive_a_restart_and_broken_files_fail() {
        let (dir, memory) = (tempfile::tempdir().unwrap(), Arc::new(Memory::default()));
        let lease = Lease {
            mac: "52:54:00:00:00:01".parse().unwrap(),
            state: LeaseState::Bound,
            until: 7,
            unknown: true,
            reserved: false,
        };
        let leases = BTreeMap::from([(Ipv4Addr::new(10, 0, 0, 9), lease)]);
        for file in [LeaseFile::new(dir.path()), LeaseFile::Shared(memory.clone())] {
            assert_eq!(file.load().await.unwrap(), BTreeMap::new());
            file.save(leases.clone()).await.unwrap();
            assert_eq!(file.load().await.unwrap(), leases);
            match &file {
                LeaseFile::Own(path) => fs::write(path, b"{").unwrap(),
                LeaseFile::Shared(shared) => shared.write(b"{").await.unwrap(),
            }
            assert!(file.load().await.is_err());
        }
    }
}
