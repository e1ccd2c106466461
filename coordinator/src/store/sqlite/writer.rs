//! The writer thread: drains its queue into one transaction, commits, then answers.

use std::{fs::File, path::PathBuf, sync::Arc, thread::JoinHandle};

use nix::fcntl::Flock;
use rusqlite::{Connection, Transaction};
use tokio::sync::{mpsc, oneshot};

use super::open::OpenError;
use crate::store::{Change, StoreError, memory::Table};

/// Operations that may wait; whoever comes then waits outside.
const QUEUE: usize = 1024;
/// Operations in one transaction at most, so that an answer is never far away.
const BATCH: usize = 256;

/// A transaction under way, as an operation sees it.
pub(super) struct Batch<'c> {
    pub(super) transaction: Transaction<'c>,
    /// The store's revision so far, this batch's changes included.
    pub(super) revision: u64,
    /// What to publish once it is committed.
    pub(super) changes: Vec<Change>,
}

/// Learns whether the commit held, and answers the caller.
type Answer = Box<dyn FnOnce(Result<(), Arc<rusqlite::Error>>) + Send>;
type Job = Box<dyn FnOnce(&mut Batch<'_>) -> Answer + Send>;

pub(super) struct Writer {
    /// `None` only while being dropped.
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        lock: Flock<File>,
        table: Arc<Table>,
        revision: u64,
    ) -> Result<Self, OpenError> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || {
                run(connection, queue, &table, revision);
                // Only now may another process have the files.
                drop(lock);
            })
            .map_err(|source| OpenError::Io { path: PathBuf::from("the store's writer thread"), source })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Runs `operation` in the next transaction; returns after its commit. An error undoes this operation alone.
    pub(super) async fn submit<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut Batch<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |batch| {
            let result = in_savepoint(batch, operation);
            Box::new(move |commit| {
                // The caller may have gone; what it asked for stands all the same.
                let _gone = reply.send(result.and_then(|value| commit.map(|()| value).map_err(StoreError::Commit)));
            })
        });
        let jobs = self.jobs.as_ref().ok_or(StoreError::Closed)?;
        jobs.send(job).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A writer that panicked has said so already; nothing is left to do here.
            let _panicked = thread.join();
        }
    }
}

fn run(mut connection: Connection, mut queue: mpsc::Receiver<Job>, table: &Table, mut revision: u64) {
    while let Some(first) = queue.blocking_recv() {
        let mut jobs = vec![first];
        while jobs.len() < BATCH
            && let Ok(job) = queue.try_recv()
        {
            jobs.push(job);
        }
        let (answers, outcome) = commit(&mut connection, jobs, revision);
        let outcome = outcome.map(|changes| {
            for change in changes {
                revision = change.revision;
                table.apply(change);
            }
        });
        if let Err(error) = &outcome {
            tracing::error!(%error, "the database refused a commit; nothing of it was acknowledged");
        }
        for answer in answers {
            answer(outcome.clone());
        }
    }
    if let Err(error) = connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)") {
        tracing::warn!(%error, "the write-ahead log was not folded back; the next start does it");
    }
}

fn commit(
    connection: &mut Connection,
    jobs: Vec<Job>,
    revision: u64,
) -> (Vec<Answer>, Result<Vec<Change>, Arc<rusqlite::Error>>) {
    let transaction = match connection.transaction() {
        Ok(transaction) => transaction,
        // Dropping the jobs closes their replies: every caller gets `Closed`.
        Err(error) => return (Vec::new(), Err(Arc::new(error))),
    };
    let mut batch = Batch { transaction, revision, changes: Vec::new() };
    let answers = jobs.into_iter().map(|job| job(&mut batch)).collect();
    let Batch { transaction, revision: after, changes } = batch;
    let finish = || {
        if after != revision {
            transaction.execute("UPDATE meta SET value = ?1 WHERE key = 'revision'", [after])?;
        }
        transaction.commit()
    };
    (answers, finish().map(|()| changes).map_err(Arc::new))
}

fn in_savepoint<T>(
    batch: &mut Batch<'_>,
    operation: impl FnOnce(&mut Batch<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let (revision, changes) = (batch.revision, batch.changes.len());
    batch.transaction.execute_batch("SAVEPOINT operation")?;
    let result = operation(batch);
    if result.is_err() {
        batch.revision = revision;
        batch.changes.truncate(changes);
        batch.transaction.execute_batch("ROLLBACK TO operation")?;
    }
    batch.transaction.execute_batch("RELEASE operation")?;
    result
}
