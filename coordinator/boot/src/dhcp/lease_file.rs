//! Leases over a restart: one small JSON file, replaced whole, before the client gets its answer. Where several coordinators take one
//! another's place, it is in their store.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, fs, io};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::leases::{Lease, MAX_RANGE};
use crate::policy::SharedFile;

/// After a failure.
const AGAIN: Duration = Duration::from_secs(1);

/// A larger file was not written by this module.
const MAX_BYTES: u64 = MAX_RANGE as u64 * 256;

#[derive(Serialize, Deserialize)]
struct Kept {
    version: u32,
    /// Who wrote it where several do: no two write the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keeper: Option<Uuid>,
    leases: BTreeMap<Ipv4Addr, Lease>,
}

/// Where the leases are kept.
#[derive(Clone)]
pub enum LeaseFile {
    /// On this host.
    Own(PathBuf),
    /// With the other coordinators, by this keeper.
    Shared(Arc<dyn SharedFile>, Uuid),
}

impl fmt::Display for LeaseFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(path) => path.display().fmt(f),
            Self::Shared(..) => f.write_str("in the coordinators' store"),
        }
    }
}

impl LeaseFile {
    /// The file in the coordinator's data directory.
    pub fn new(data_dir: &Path) -> Self {
        Self::Own(Self::own(data_dir))
    }

    /// With the other coordinators, for one time that this one serves.
    pub fn shared(file: Arc<dyn SharedFile>) -> Self {
        Self::Shared(file, Uuid::new_v4())
    }

    /// Its path.
    pub fn own(data_dir: &Path) -> PathBuf {
        data_dir.join("dhcp-leases.json")
    }

    /// The kept leases; none if there is no file yet. One that is shared is this keeper's from then on.
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
            Self::Shared(file, keeper) => {
                let own = |found: Option<Vec<u8>>| encoded(read(found.as_deref())?, Some(*keeper));
                Some(file.take_over(&own).await?)
            }
        };
        read(bytes.as_deref())
    }

    /// Replaces the file: a power cut leaves the old one or the new one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn save(&self, leases: BTreeMap<Ipv4Addr, Lease>) -> io::Result<()> {
        let keeper = match self {
            Self::Own(_) => None,
            Self::Shared(_, keeper) => Some(*keeper),
        };
        self.put(encoded(leases, keeper)?).await
    }

    /// Replaces the file by what another one has.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn put(&self, bytes: Vec<u8>) -> io::Result<()> {
        match self {
            Self::Own(path) => {
                let path = path.clone();
                // Off the async threads.
                tokio::task::spawn_blocking(move || replace(&path, &bytes)).await.map_err(io::Error::other)?
            }
            Self::Shared(file, _) => file.write(&bytes).await,
        }
    }
}

fn read(bytes: Option<&[u8]>) -> io::Result<BTreeMap<Ipv4Addr, Lease>> {
    let Some(bytes) = bytes else { return Ok(BTreeMap::new()) };
    let kept: Kept = serde_json::from_slice(bytes)?;
    if kept.version != 1 {
        return Err(io::Error::other(format!("it is of version {}, this program knows 1", kept.version)));
    }
    Ok(kept.leases)
}

fn encoded(leases: BTreeMap<Ipv4Addr, Lease>, keeper: Option<Uuid>) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&Kept { version: 1, keeper, leases })?)
}

/// Saves leases one after another, the newest of those that wait.
pub struct Saver {
    newest: watch::Sender<(u64, BTreeMap<Ipv4Addr, Lease>)>,
    saved: watch::Receiver<u64>,
}

impl Saver {
    /// Into this file, until dropped; what waits then is still saved.
    pub fn start(file: LeaseFile) -> Self {
        let (newest, mut waiting) = watch::channel((0, BTreeMap::new()));
        let (done, saved) = watch::channel(0);
        tokio::spawn(async move {
            while waiting.changed().await.is_ok() {
                loop {
                    let (number, leases) = waiting.borrow_and_update().clone();
                    let stored = file.save(leases).await;
                    // Tried, at least: a client that waits for it is answered.
                    done.send_replace(number);
                    let Err(error) = stored else { break };
                    tracing::error!(service = "dhcp", %file, %error, "cannot store the leases; it is tried again");
                    if waiting.has_changed().is_err() {
                        break;
                    }
                    sleep(AGAIN).await;
                }
            }
        });
        Self { newest, saved }
    }

    /// Waits until what was to be saved is, no longer than `limit`.
    pub async fn finish(&self, limit: Duration) {
        let number = self.newest.borrow().0;
        let mut saved = self.saved.clone();
        if timeout(limit, saved.wait_for(|saved| *saved >= number)).await.is_err() {
            tracing::warn!(service = "dhcp", "storing the leases takes long; the server ends meanwhile");
        }
    }

    /// Saves them; waits for that, no longer than `limit`.
    pub async fn save(&self, leases: BTreeMap<Ipv4Addr, Lease>, limit: Duration) {
        let mut number = 0;
        self.newest.send_modify(|newest| {
            number = newest.0 + 1;
            *newest = (number, leases);
        });
        let mut saved = self.saved.clone();
        if timeout(limit, saved.wait_for(|saved| *saved >= number)).await.is_err() {
            tracing::warn!(service = "dhcp", "storing the leases takes long; the client is answered meanwhile");
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
    use crate::policy::TakeOver;

    #[derive(Default)]
    struct Memory(std::sync::Mutex<Option<Vec<u8>>>);

    #[async_trait]
    impl SharedFile for Memory {
        async fn take_over(&self, own: TakeOver<'_>) -> io::Result<Vec<u8>> {
            let mut bytes = self.0.lock().unwrap();
            let new = own(bytes.clone())?;
            *bytes = Some(new.clone());
            Ok(new)
        }

        async fn write(&self, bytes: &[u8]) -> io::Result<()> {
            *self.0.lock().unwrap() = Some(bytes.to_vec());
            Ok(())
        }
    }

    /// Takes a while for each write, and notes how many went on at once.
    #[derive(Default)]
    struct Slow(Memory, std::sync::atomic::AtomicUsize);

    #[async_trait]
    impl SharedFile for Slow {
        async fn take_over(&self, own: TakeOver<'_>) -> io::Result<Vec<u8>> {
            self.0.take_over(own).await
        }

        async fn write(&self, bytes: &[u8]) -> io::Result<()> {
            use std::sync::atomic::Ordering::SeqCst;
            assert_eq!(self.1.fetch_add(1, SeqCst), 0, "one after another");
            tokio::time::sleep(Duration::from_secs(10)).await;
            self.1.fetch_sub(1, SeqCst);
            self.0.write(bytes).await
        }
    }

    fn lease(last: u8) -> BTreeMap<Ipv4Addr, Lease> {
        let (mac, state) = ("52:54:00:00:00:01".parse().unwrap(), LeaseState::Bound);
        BTreeMap::from([(
            Ipv4Addr::new(10, 0, 0, last),
            Lease { mac, state, until: 7, unknown: false, reserved: false },
        )])
    }

    #[tokio::test(start_paused = true)]
    async fn slow_saves_follow_one_another_and_the_newest_counts() {
        let slow = Arc::new(Slow::default());
        let file = LeaseFile::shared(slow.clone());
        let saver = Saver::start(file.clone());
        let begun = tokio::time::Instant::now();
        for last in 1..=5 {
            saver.save(lease(last), Duration::from_millis(500)).await;
        }
        assert!(begun.elapsed() < Duration::from_secs(3), "no client waits for a slow disk");
        drop(saver);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(file.load().await.unwrap(), lease(5));
    }

    /// Refuses the first writes.
    #[derive(Default)]
    struct Away(Memory, std::sync::atomic::AtomicUsize);

    #[async_trait]
    impl SharedFile for Away {
        async fn take_over(&self, own: TakeOver<'_>) -> io::Result<Vec<u8>> {
            self.0.take_over(own).await
        }

        async fn write(&self, bytes: &[u8]) -> io::Result<()> {
            match self.1.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
                0..3 => Err(io::Error::other("it is away")),
                _ => self.0.write(bytes).await,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn leases_that_could_not_be_stored_are_stored_later() {
        let file = LeaseFile::shared(Arc::new(Away::default()));
        let saver = Saver::start(file.clone());
        let begun = tokio::time::Instant::now();
        saver.save(lease(1), Duration::from_secs(60)).await;
        assert!(begun.elapsed() < Duration::from_secs(1), "no client waits for it");
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(file.load().await.unwrap(), lease(1));
    }

    #[tokio::test]
    async fn no_two_keepers_write_the_same() {
        let (memory, mut seen) = (Arc::new(Memory::default()), Vec::new());
        for file in [LeaseFile::shared(memory.clone()), LeaseFile::shared(memory.clone())] {
            assert_eq!(file.load().await.unwrap(), BTreeMap::new());
            seen.push(memory.0.lock().unwrap().clone());
            file.save(BTreeMap::new()).await.unwrap();
            assert_eq!(seen.last(), Some(&*memory.0.lock().unwrap()));
        }
        assert_ne!(seen[0], seen[1]);
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
        for file in [LeaseFile::new(dir.path()), LeaseFile::shared(memory.clone())] {
            assert_eq!(file.load().await.unwrap(), BTreeMap::new());
            file.save(leases.clone()).await.unwrap();
            assert_eq!(file.load().await.unwrap(), leases);
            match &file {
                LeaseFile::Own(path) => fs::write(path, b"{").unwrap(),
                LeaseFile::Shared(shared, _) => shared.write(b"{").await.unwrap(),
            }
            assert!(file.load().await.is_err());
        }
    }
}
