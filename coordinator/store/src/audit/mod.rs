//! The audit log: who did what, from where, and the result. Kept in the store, bounded, append-only.
//!
//! What is written: every request that changes something, everything refused for want of authority, every enrolment,
//! and what the engine does about identities by itself (alarms, approvals by rule, discovery). An entry is made of
//! names, codes and sentences of our own, never of what a caller sent, so that no secret can come into it.
//!
//! Refusals cost their cause nothing, so they are thinned and kept apart from deeds ([`Ring`]): a flood of them pushes
//! out older refusals only. So are the certificates that machines ask for: one machine may ask for many.

mod memory;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use landfall_api::{AuditEntry, AuditOutcome, ErrorCode};
use tokio::sync::watch;

pub use memory::MemoryAudit;

use crate::error::StoreError;
use landfall_edge::gate::{Limiters, Rate, origin};

/// Entries that are kept apart from others: so many of the newest, and one too many pushes out the oldest of its own ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ring {
    /// What persons and the coordinator did, or failed to do. About 30 MiB with the others.
    Deeds = 0,
    /// What was refused.
    Refusals = 1,
    /// What machines, and computers that are to become some, did by themselves: enrolments and renewals.
    Machines = 2,
}

impl Ring {
    /// Every ring.
    pub const ALL: [Self; 3] = [Self::Deeds, Self::Refusals, Self::Machines];

    /// Where an entry belongs.
    pub fn of(entry: &AuditEntry) -> Self {
        match entry.outcome {
            AuditOutcome::Refused => Self::Refusals,
            AuditOutcome::Done | AuditOutcome::Failed => {
                let by_machine = entry.who == ANONYMOUS || entry.who.starts_with(MACHINE);
                if by_machine { Self::Machines } else { Self::Deeds }
            }
        }
    }

    /// How many entries of it are kept.
    pub const fn kept(self) -> u64 {
        match self {
            Self::Deeds => 100_000,
            Self::Refusals | Self::Machines => 20_000,
        }
    }
}

/// Who it was, where no certificate says it.
pub const ANONYMOUS: &str = "anonymous";
/// Stands before the machine's name, where a machine's certificate said who it was; a person's role stands before his.
pub const MACHINE: &str = "machine/";
/// Entries in one answer of a back end at most.
pub const MAX_PAGE: usize = 10_000;
/// Characters of a field kept: names and paths are shorter, and longer ones from unauthenticated callers are cut.
const MAX_FIELD: usize = 512;

/// Refusals of one source that are written in a minute, and at once; the others are counted.
const PER_SOURCE: u32 = 30;
const REFUSALS: Rate = Rate::of(Duration::from_secs(60 / PER_SOURCE as u64), Duration::from_secs(60));
/// Sources counted separately; all others share one count, so that forged sources cannot fill the memory.
const SOURCES: usize = 256;

/// Where entries are kept. The back end gives each its position and drops what is over [`Ring::kept`].
#[async_trait]
pub trait AuditLog: Send + Sync {
    /// Appends an entry, durable when this returns; answers its position. In the same commit it takes the place of an intent.
    async fn append(&self, entry: AuditEntry, instead_of: Option<u64>) -> Result<u64, StoreError>;
    /// Keeps what will stand in the log if nothing takes its place, durable when this returns; answers its position.
    async fn intend(&self, entry: AuditEntry) -> Result<u64, StoreError>;
    /// Drops an intent.
    async fn withdraw(&self, intent: u64) -> Result<(), StoreError>;
    /// What was intended before `time`, and is still, was interrupted, and is an entry from now on.
    async fn reveal(&self, time: Timestamp) -> Result<(), StoreError>;
    /// Entries with a position above `after`, in order, at most `limit`.
    async fn list(&self, after: u64, limit: usize) -> Result<Vec<AuditEntry>, StoreError>;
}

/// An entry to be made.
#[derive(Debug, Clone)]
pub struct Note {
    /// As in [`AuditEntry::who`].
    pub who: String,
    /// As in [`AuditEntry::from`].
    pub from: String,
    /// As in [`AuditEntry::action`].
    pub action: String,
    /// As in [`AuditEntry::subject`].
    pub subject: String,
    /// As in [`AuditEntry::outcome`].
    pub outcome: AuditOutcome,
    /// As in [`AuditEntry::code`].
    pub code: Option<ErrorCode>,
    /// As in [`AuditEntry::detail`].
    pub detail: String,
}

impl Note {
    /// What the coordinator did by itself.
    pub fn own(action: &str, subject: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            who: "coordinator".to_owned(),
            from: String::new(),
            action: action.to_owned(),
            subject: subject.into(),
            outcome: AuditOutcome::Done,
            code: None,
            detail: detail.into(),
        }
    }
}

/// Refusals of addresses, and of what is none (alarms, which are counted by machine): neither takes the other's places.
struct Sources {
    addresses: Limiters<String>,
    others: Limiters<String>,
}

impl Default for Sources {
    fn default() -> Self {
        Self { addresses: Limiters::new(REFUSALS, SOURCES), others: Limiters::new(REFUSALS, SOURCES) }
    }
}

impl Sources {
    fn step(&self, from: &str) -> Option<u64> {
        match from.parse() {
            // A host with one IPv6 address has a whole network of them.
            Ok(address) => self.addresses.step(origin(address).to_string()),
            Err(_) => self.others.step(from.to_owned()),
        }
    }
}

/// The log with its thinning. Cloning shares it.
#[derive(Clone)]
pub struct Audit {
    log: Arc<dyn AuditLog>,
    sources: Arc<Sources>,
    /// The newest position, for followers.
    newest: watch::Sender<u64>,
}

impl Audit {
    /// Over a back end.
    pub fn new(log: Arc<dyn AuditLog>) -> Self {
        Self { log, sources: Arc::default(), newest: watch::Sender::new(0) }
    }

    /// Makes an entry. A refusal that is one of too many is counted instead, and the count given with the next one that is
    /// written. A log that cannot be written is said in the process's own log: what was done stays done.
    pub async fn note(&self, now: Timestamp, note: Note) {
        self.end(Intent(None), now, note).await;
    }

    /// To be called before something is done: if the process ends before [`Audit::end`], the log says so from the next start on.
    /// Where that cannot be kept, it is done all the same: a full disk must not keep a person from making room.
    pub async fn begin(&self, now: Timestamp, note: Note) -> Intent {
        let detail = "the coordinator ended before the request did: it may have been carried out".to_owned();
        let entry = entry_of(now, Note { outcome: AuditOutcome::Failed, detail, ..note });
        match self.log.intend(entry.clone()).await {
            Ok(position) => Intent(Some(position)),
            Err(error) => {
                tracing::error!(%error, ?entry, "cannot write the audit log");
                Intent(None)
            }
        }
    }

    /// Makes the entry of what has begun, as [`Audit::note`] does.
    pub async fn end(&self, Intent(begun): Intent, now: Timestamp, mut note: Note) {
        if note.outcome == AuditOutcome::Refused {
            match self.sources.step(&note.from) {
                None => {
                    if let Some(begun) = begun
                        && let Err(error) = self.log.withdraw(begun).await
                    {
                        tracing::error!(%error, "cannot write the audit log");
                    }
                    return;
                }
                Some(0) => {}
                Some(thinned) => {
                    let more = format!("{thinned} more refusals of {} came before this one", note.from);
                    note.detail = if note.detail.is_empty() { more } else { format!("{}; {more}", note.detail) };
                }
            }
        }
        let entry = entry_of(now, note);
        match self.log.append(entry.clone(), begun).await {
            Ok(position) => self.newest.send_modify(|newest| *newest = position.max(*newest)),
            Err(error) => tracing::error!(%error, ?entry, "cannot write the audit log"),
        }
    }

    /// What was begun before `time` and has not ended was interrupted: see [`Audit::begin`].
    ///
    /// # Errors
    /// [`StoreError`] of the back end.
    pub async fn reveal(&self, time: Timestamp) -> Result<(), StoreError> {
        self.log.reveal(time).await
    }

    /// Entries with a position above `after`, in order, at most `limit` or [`MAX_PAGE`].
    ///
    /// # Errors
    /// [`StoreError`] of the back end.
    pub async fn list(&self, after: u64, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        self.log.list(after, limit.min(MAX_PAGE)).await
    }

    /// Changes when an entry was written.
    pub fn written(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }
}

/// What was begun, and has no entry yet.
#[must_use]
#[derive(Debug)]
pub struct Intent(Option<u64>);

fn entry_of(now: Timestamp, note: Note) -> AuditEntry {
    AuditEntry {
        position: 0,
        time: now,
        who: cut(note.who),
        from: cut(note.from),
        action: cut(note.action),
        subject: cut(note.subject),
        outcome: note.outcome,
        code: note.code.map(|code| code.as_str().to_owned()).unwrap_or_default(),
        detail: cut(note.detail),
    }
}

/// Bounds a field, and takes away what could forge a line or a terminal's colours.
fn cut(text: String) -> String {
    if text.len() <= MAX_FIELD && !text.contains(char::is_control) {
        return text;
    }
    text.chars().map(|c| if c.is_control() { '?' } else { c }).take(MAX_FIELD).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(from: &str) -> Note {
        Note {
            who: "anonymous".into(),
            from: from.into(),
            action: "GET /x\n\u{1b}[2J".into(),
            subject: "s".repeat(5000),
            outcome: AuditOutcome::Refused,
            code: Some(ErrorCode::Forbidden),
            detail: String::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_are_thinned_and_counted_but_deeds_are_not() {
        let audit = Audit::new(Arc::new(MemoryAudit::default()));
        let now = Timestamp::from_second(1000).unwrap();
        for _ in 0..1000 {
            audit.note(now, refusal("10.0.0.1")).await;
        }
        audit.note(now, refusal("10.0.0.2")).await;
        let written = audit.list(0, MAX_PAGE).await.unwrap();
        assert_eq!(written.len(), PER_SOURCE as usize + 1);
        assert!(written.iter().all(|e| e.subject.len() == MAX_FIELD && !e.action.contains(char::is_control)));
        tokio::time::advance(Duration::from_secs(61)).await;
        audit.note(now, refusal("10.0.0.1")).await;
        let last = audit.list(0, MAX_PAGE).await.unwrap().pop().unwrap();
        assert!(last.detail.contains(&format!("{} more refusals", 1000 - PER_SOURCE)), "{}", last.detail);
        for _ in 0..200 {
            audit.note(now, Note::own("Approve", "machine/a", "")).await;
        }
        assert_eq!(audit.list(last.position, MAX_PAGE).await.unwrap().len(), 200);
        assert_eq!(*audit.written().borrow(), last.position + 200);
    }

    #[tokio::test(start_paused = true)]
    async fn one_network_has_one_share_and_alarms_their_own() {
        let audit = Audit::new(Arc::new(MemoryAudit::default()));
        let now = Timestamp::from_second(1000).unwrap();
        for n in 0..1000 {
            audit.note(now, refusal(&format!("2001:db8::{n:x}"))).await;
        }
        assert_eq!(audit.list(0, MAX_PAGE).await.unwrap().len(), PER_SOURCE as usize);
        for n in 0..10_000 {
            audit.note(now, refusal(&format!("10.0.{}.{}", n / 256, n % 256))).await;
        }
        let last = audit.list(0, MAX_PAGE).await.unwrap().pop().unwrap().position;
        audit.note(now, refusal("10.9.9.9")).await;
        assert_eq!(audit.list(last, MAX_PAGE).await.unwrap().len(), 0, "beyond the table they share one count");
        audit.note(now, refusal("machine/m1")).await;
        assert_eq!(audit.list(last, MAX_PAGE).await.unwrap().len(), 1);
    }
}
