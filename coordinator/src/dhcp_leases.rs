//! The full DHCP server's leases in the store that this coordinator shares with others: the one that leads serves, and keeps them there.

use std::io;
use std::path::PathBuf;

use async_trait::async_trait;
use jiff::Timestamp;
use landfall_boot::policy::{SharedFile, TakeOver};
use landfall_store::{Store, StoreError};
use tokio::sync::Mutex;

/// The file's name among the secrets.
pub(crate) const LEASES: &str = "dhcp/leases";
/// Another coordinator may store between a read and the write that follows it. One that does not lead any more stores at most once.
const TRIES: usize = 4;

/// Replaces only what it has stored itself: a coordinator that hangs while another one begins to lead has older leases when it wakes up.
pub(crate) struct SharedLeases<L> {
    store: Store,
    /// The file that this coordinator had before it shared a store.
    before: PathBuf,
    /// Whether this coordinator still leads as it did when it began to serve.
    still_leads: L,
    /// What the store has, unless another coordinator has stored: more than one where the answers to writes were lost. Few: without the
    /// store no address is given.
    known: Mutex<Vec<Option<Vec<u8>>>>,
}

impl<L: Fn() -> bool> SharedLeases<L> {
    pub(crate) fn new(store: Store, before: PathBuf, still_leads: L) -> Self {
        Self { store, before, still_leads, known: Mutex::default() }
    }

    async fn found(&self) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.secrets().get(LEASES, Timestamp::MIN).await
    }

    /// Stores `new` in place of what is known; whether that is what was there.
    async fn replace(&self, known: &mut Vec<Option<Vec<u8>>>, new: &[u8]) -> io::Result<bool> {
        for old in known.iter().rev() {
            let swap = self.store.secrets().swap(LEASES, old.as_deref(), new, Timestamp::MAX, Timestamp::MIN);
            match swap.await {
                Ok(true) => {
                    *known = vec![Some(new.to_vec())];
                    return Ok(true);
                }
                Ok(false) => {}
                Err(error) => {
                    // It may be stored all the same.
                    let new = Some(new.to_vec());
                    if !known.contains(&new) {
                        known.push(new);
                    }
                    return Err(io::Error::other(error));
                }
            }
        }
        Ok(false)
    }
}

#[async_trait]
impl<L: Fn() -> bool + Send + Sync> SharedFile for SharedLeases<L> {
    async fn take_over(&self, own: TakeOver<'_>) -> io::Result<Vec<u8>> {
        let mut known = self.known.lock().await;
        for _ in 0..TRIES {
            let found = self.found().await.map_err(io::Error::other)?;
            *known = vec![found.clone()];
            let new = own(match found {
                None if self.before.exists() => Some(tokio::fs::read(&self.before).await?),
                found => found,
            })?;
            if self.replace(&mut known, &new).await? {
                return Ok(new);
            }
        }
        Err(io::Error::other("another coordinator stores them at the same time"))
    }

    async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut known = self.known.lock().await;
        for _ in 0..TRIES {
            if self.replace(&mut known, bytes).await? {
                return Ok(());
            }
            if !(self.still_leads)() {
                break;
            }
            // The other one does not lead any more: its write came late.
            *known = vec![self.found().await.map_err(io::Error::other)?];
        }
        Err(io::Error::other("another coordinator has begun to serve"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use landfall_store::{MemoryStore, SecretStore};

    use super::*;

    /// Loses the answer to each write when it is asked to.
    #[derive(Default)]
    struct Lossy {
        memory: MemoryStore,
        loses: AtomicBool,
    }

    #[async_trait]
    impl SecretStore for Lossy {
        async fn put(&self, name: &str, value: &[u8], expires: Timestamp) -> Result<(), StoreError> {
            self.memory.put(name, value, expires).await
        }
        async fn get(&self, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError> {
            SecretStore::get(&self.memory, name, now).await
        }
        async fn swap(
            &self, name: &str, old: Option<&[u8]>, value: &[u8], expires: Timestamp, now: Timestamp,
        ) -> Result<bool, StoreError> {
            let swapped = self.memory.swap(name, old, value, expires, now).await?;
            if self.loses.load(SeqCst) { Err(StoreError::Closed) } else { Ok(swapped) }
        }
        async fn consume(&self, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError> {
            self.memory.consume(name, now).await
        }
        async fn purge(&self, now: Timestamp) -> Result<u64, StoreError> {
            self.memory.purge(now).await
        }
    }

    /// Two coordinators over one store; which of them leads is `b_leads`.
    struct Two {
        lossy: Arc<Lossy>,
        b_leads: Arc<AtomicBool>,
        a: Box<dyn SharedFile>,
        b: Box<dyn SharedFile>,
        dir: tempfile::TempDir,
    }

    fn two() -> Two {
        let (lossy, memory, dir) =
            (Arc::new(Lossy::default()), Arc::<MemoryStore>::default(), tempfile::tempdir().unwrap());
        let store = Store::new(memory.clone(), memory, lossy.clone());
        let b_leads = Arc::<AtomicBool>::default();
        let shared = |name: &str, is_b: bool| {
            let b_leads = b_leads.clone();
            let leads = move || b_leads.load(SeqCst) == is_b;
            Box::new(SharedLeases::new(store.clone(), dir.path().join(name), leads)) as Box<dyn SharedFile>
        };
        Two { a: shared("a", false), b: shared("b", true), lossy, b_leads, dir }
    }

    async fn taken_over(file: &dyn SharedFile, mark: &str) -> String {
        let own = |found: Option<Vec<u8>>| Ok([found.unwrap_or_default(), mark.as_bytes().to_vec()].concat());
        String::from_utf8(file.take_over(&own).await.unwrap()).unwrap()
    }

    #[tokio::test]
    async fn older_leases_never_replace_those_of_another_coordinator() {
        let Two { b_leads, a, b, dir, .. } = two();
        std::fs::write(dir.path().join("a"), "before").unwrap();
        assert_eq!(taken_over(&*a, "/a").await, "before/a");
        a.write(b"1").await.unwrap();
        a.write(b"2").await.unwrap();
        b_leads.store(true, SeqCst);
        assert_eq!(taken_over(&*b, "/b").await, "2/b");
        // Also what it had stored before.
        for bytes in [b"1", b"2", b"3"] {
            let refused = a.write(bytes).await.unwrap_err();
            assert!(refused.to_string().contains("has begun to serve"), "{refused}");
        }
        b.write(b"4").await.unwrap();
        b_leads.store(false, SeqCst);
        assert_eq!(taken_over(&*a, "/a").await, "4/a");
        a.write(b"5").await.unwrap();
        assert!(b.write(b"6").await.is_err());
    }

    #[tokio::test]
    async fn the_one_that_leads_stores_them_all_the_same() {
        let Two { a, b, .. } = two();
        taken_over(&*a, "/a").await;
        a.write(b"1").await.unwrap();
        // It was slow to begin, and does not lead any more.
        taken_over(&*b, "/b").await;
        a.write(b"2").await.unwrap();
        assert!(b.write(b"3").await.is_err());
        assert_eq!(taken_over(&*a, "/a").await, "2/a");
    }

    #[tokio::test]
    async fn a_write_whose_answer_is_lost_is_its_own() {
        let Two { lossy, b_leads, a, b, .. } = two();
        taken_over(&*a, "/a").await;
        b_leads.store(true, SeqCst);
        lossy.loses.store(true, SeqCst);
        for bytes in [b"1", b"2", b"2"] {
            a.write(bytes).await.unwrap_err();
        }
        lossy.loses.store(false, SeqCst);
        a.write(b"3").await.unwrap();
        assert_eq!(taken_over(&*b, "/b").await, "3/b");
    }
}
