//! The PostgreSQL back end: several coordinators over one database.
//!
//! Each holds every document in memory, as committed; its writer task commits in groups and follows what the others commit. A
//! revision is given out under the lock of one row, by a coordinator that has taken in every earlier one: so revisions are unique,
//! without gaps, and seen in one order by everybody.

mod access;
mod alone;
mod appends;
mod batch;
mod checks;
mod connect;
mod error;
#[cfg(test)]
mod fault_tests;
mod hints;
mod hold;
mod job;
mod lead;
#[cfg(test)]
mod lead_tests;
mod load;
#[cfg(test)]
mod opening_tests;
mod options;
mod presence;
mod reader;
mod rows;
mod schema;
#[cfg(test)]
pub(crate) mod server;
mod session;
mod statements;
mod tenure;
#[cfg(test)]
mod tests;
mod tls;
#[cfg(test)]
mod tls_tests;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use landfall_api::{Document, HistoryEntry, Kind, message::EventRecord};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

pub(crate) use alone::Alone;
pub use checks::Remarks;
pub use error::PostgresError;
pub use lead::{Lead, There};
pub use options::{PostgresOptions, Risk};

use crate::hold::Turn;
use crate::journal::By;
use crate::memory::Table;
use crate::rules::Asked;
use crate::seal::Sealer;
use crate::traits::left_out;
use crate::{
    ChangeSet, Counts, DocumentStore, Ended, EventLog, HISTORY_PER_DOCUMENT, Hold, INCARNATION, LoggedEvent, LoggedRun,
    Page, SecretStore, StoreError, Unreadable, Watch, WatchError,
};
use connect::Link;
use job::Job;
use load::{as_stored, number};
use reader::Reader;
use session::Session;
use writer::Writer;

/// The whole store in one PostgreSQL database.
pub struct PostgresStore {
    table: Arc<Table>,
    reader: Reader,
    writer: Writer,
    sealer: Sealer,
}

impl PostgresStore {
    /// Opens the database, makes its tables where there are none, and loads every document.
    ///
    /// # Errors
    /// [`PostgresError`]: the server is not reachable, too old or not safe; the database is of a newer version, or in use by a
    /// coordinator of an older one; the key of its secrets is missing or another one.
    pub async fn open(options: PostgresOptions) -> Result<Self, PostgresError> {
        options.check_encryption()?;
        let link = Link::new(options);
        let hints = Arc::default();
        let mut client = link.checked(Arc::clone(&hints)).await?;
        checks::remarks(&client).await?.check(link.options())?;
        // Before the tables of one of an older version change.
        let older = link.connect(Arc::default()).await?;
        schema::refuse_at_work(&older).await?;
        let (id, sealer) = schema::open(&mut client, &link.options().key_dir).await?;
        drop(older);
        presence::refuse_namesake(&client, link.options().name()).await?;
        let reader = Reader::new(link.clone());
        let incarnation = schema::incarnation(&client).await?;
        let mut session = Session::begin(client, hints).await?;
        let (loaded, revision) = load::documents(&mut session.client).await?;
        let table = Arc::new(Table::new(loaded.documents, revision));
        let writer = Writer::start((link, id, incarnation), reader.clone(), table.clone(), loaded.unreadable, session);
        Ok(Self { table, reader, writer, sealer })
    }

    /// Looks at the server and at every document, beside a coordinator that runs or without one, and changes nothing. Answers the
    /// documents that this version cannot read (none of a database without tables), and what is to be said of the server: also what
    /// [`Self::open`] refuses of that.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn examine(options: PostgresOptions) -> Result<(Vec<Unreadable>, Remarks), PostgresError> {
        options.check_encryption()?;
        let link = Link::new(options);
        let mut client = link.checked(Arc::default()).await?;
        let unwatched = presence::unwatched(&client).await?.map(|why| why.to_string());
        let remarks = Remarks { unwatched, ..checks::remarks(&client).await? };
        let unreadable = match schema::found(&client).await? {
            0 => Vec::new(),
            _ => load::documents(&mut client).await?.0.unreadable,
        };
        Ok((unreadable, remarks))
    }

    async fn change_all(&self, asked: Vec<Asked>) -> Result<Vec<Document>, StoreError> {
        let (by, turn) = (By::now(), Turn::now());
        self.writer.submit(|reply| Job::Change { asked, by, turn, reply }).await
    }
}

#[async_trait]
impl DocumentStore for PostgresStore {
    async fn get(&self, kind: Kind, name: &str) -> Result<Option<Document>, StoreError> {
        Ok(self.table.get(kind, name))
    }

    async fn page(&self, kind: Kind, after: &str, limit: usize) -> Result<Page, StoreError> {
        Ok(self.table.page(kind, after, limit))
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        Ok(self.table.counts())
    }

    async fn write(&self, set: ChangeSet) -> Result<Vec<Document>, StoreError> {
        let (asked, checks) = Asked::all(set);
        Ok(self.change_all(asked).await?.split_off(checks))
    }

    async fn delete_if(&self, kind: Kind, name: &str, version: Option<u64>) -> Result<Document, StoreError> {
        let asked = Asked::Delete { kind, name: name.to_owned(), version };
        self.change_all(vec![asked]).await?.pop().ok_or(StoreError::Closed)
    }

    async fn history(&self, kind: Kind, name: &str, limit: usize) -> Result<Vec<HistoryEntry>, StoreError> {
        let select = "SELECT json FROM history WHERE kind = $1 AND name = $2 ORDER BY revision DESC LIMIT $3";
        let limit = limit.min(HISTORY_PER_DOCUMENT) as i64;
        let rows = self.reader.rows(select, &[&kind.as_str(), &name, &limit]).await?;
        let corrupt = |source| StoreError::Corrupt { what: format!("the history of {kind} {name}"), source };
        rows.iter().rev().map(|row| serde_json::from_str(row.get(0)).map_err(corrupt)).collect()
    }

    async fn trim_history(&self, before: Timestamp, most: u64) -> Result<u64, StoreError> {
        let delete = "DELETE FROM history WHERE time < $1 OR revision <=
            (SELECT revision FROM history WHERE time >= $1 ORDER BY revision DESC LIMIT 1 OFFSET $2)";
        self.reader.count(delete, &[&before.as_millisecond(), &as_stored(most)]).await
    }

    fn watch(&self, kind: Option<Kind>, from_revision: u64) -> Result<Watch, WatchError> {
        self.table.watch(kind, from_revision)
    }

    async fn newest(&self) -> Result<u64, StoreError> {
        let rows = self.reader.rows("SELECT revision FROM landfall", &[]).await?;
        Ok(rows.first().map_or(0, |row| number(row.get(0))))
    }

    async fn hold(&self, what: crate::Alone) -> Result<Hold, StoreError> {
        let mut hold = hold::take(&self.reader, what).await?;
        let (number, seen) = self.writer.submit(|reply| Job::Turn { what, reply }).await?;
        (hold.seen, hold.turn) = (Some(seen), Some(Turn { what, number }));
        Ok(hold)
    }

    async fn ended(&self) -> Ended {
        self.writer.ended().await
    }

    fn unconfirmed(&self) -> Duration {
        self.writer.unconfirmed()
    }

    fn unreadable(&self) -> Arc<Vec<Unreadable>> {
        self.writer.unreadable()
    }
}

#[async_trait]
impl EventLog for PostgresStore {
    async fn append(&self, epoch: u64, events: Vec<EventRecord>) -> Result<Vec<u64>, StoreError> {
        self.writer.submit(|reply| Job::Append { epoch, events, reply }).await
    }

    async fn list(&self, workflow_uid: Uuid, after: u64, limit: usize) -> Result<Vec<LoggedEvent>, StoreError> {
        let select =
            "SELECT position, json FROM events WHERE workflow = $1 AND position > $2 ORDER BY position LIMIT $3";
        let limit = as_stored(limit as u64);
        let rows = self.reader.rows(select, &[&workflow_uid, &as_stored(after), &limit]).await?;
        let event = |row: &tokio_postgres::Row| {
            let position = number(row.get(0));
            let corrupt = |source| StoreError::Corrupt { what: format!("event {position}"), source };
            Ok(LoggedEvent { position, record: serde_json::from_str(row.get(1)).map_err(corrupt)? })
        };
        rows.iter().map(event).collect()
    }

    async fn forget(&self, workflow_uid: Uuid) -> Result<u64, StoreError> {
        // The first waits for a store that appends to it; the second then sees what was appended.
        let (run, events) = ("DELETE FROM runs WHERE workflow = $1", "DELETE FROM events WHERE workflow = $1");
        let both: [(&str, &[&(dyn ToSql + Sync)]); 2] = [(run, &[&workflow_uid]), (events, &[&workflow_uid])];
        self.reader.written(&both).await.map(|(count, _)| count)
    }

    async fn runs(&self) -> Result<Vec<LoggedRun>, StoreError> {
        let rows =
            self.reader.rows("SELECT workflow, events, newest FROM runs WHERE events > 0 ORDER BY newest", &[]).await?;
        let run = |row: &tokio_postgres::Row| LoggedRun {
            workflow_uid: row.get(0),
            events: number(row.get(1)),
            newest: number(row.get(2)),
        };
        Ok(rows.iter().map(run).collect())
    }
}

#[async_trait]
impl SecretStore for PostgresStore {
    async fn put(&self, name: &str, value: &[u8], expires: Timestamp) -> Result<(), StoreError> {
        let put = "INSERT INTO secrets (name, value, expires) VALUES ($1, $2, $3)
            ON CONFLICT (name) DO UPDATE SET value = excluded.value, expires = excluded.expires";
        let (sealed, expires) = (self.sealer.seal(name, value)?, expires.as_millisecond());
        let Some(Turn { what, number: turn }) = Turn::now() else {
            return self.reader.count(put, &[&name, &sealed, &expires]).await.map(drop);
        };
        // A turn begins with this row's lock, so none begins between the look and the write.
        let put = "WITH mine AS MATERIALIZED (SELECT FROM turns WHERE numbers[$4::integer] = $5 FOR SHARE)
            INSERT INTO secrets (name, value, expires) SELECT $1, $2, $3::bigint FROM mine
            ON CONFLICT (name) DO UPDATE SET value = excluded.value, expires = excluded.expires";
        match self.reader.count(put, &[&name, &sealed, &expires, &batch::place_of(what), &as_stored(turn)]).await? {
            0 => Err(StoreError::NotAlone),
            _ => Ok(()),
        }
    }

    async fn get(&self, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError> {
        let select = "SELECT value FROM secrets WHERE name = $1 AND expires > $2";
        let rows = self.reader.rows(select, &[&name, &now.as_millisecond()]).await?;
        self.sealer.unseal_found(name, rows.first().map(|row| row.get(0)))
    }

    async fn swap(
        &self, name: &str, old: Option<&[u8]>, value: &[u8], expires: Timestamp, now: Timestamp,
    ) -> Result<bool, StoreError> {
        let (sealed, expires, now) = (self.sealer.seal(name, value)?, expires.as_millisecond(), now.as_millisecond());
        let Some(old) = old else {
            let put = "INSERT INTO secrets (name, value, expires) VALUES ($1, $2, $3)
                ON CONFLICT (name) DO UPDATE SET value = excluded.value, expires = excluded.expires
                WHERE secrets.expires <= $4";
            return Ok(self.reader.count(put, &[&name, &sealed, &expires, &now]).await? > 0);
        };
        let select = "SELECT value FROM secrets WHERE name = $1 AND expires > $2";
        let rows = self.reader.rows(select, &[&name, &now]).await?;
        let there: Option<Vec<u8>> = rows.first().map(|row| row.get(0));
        if self.sealer.unseal_found(name, there.clone())?.as_deref() != Some(old) {
            return Ok(false);
        }
        // Each time that a value is sealed the bytes are others: who has stored the same meanwhile was first.
        let update = "UPDATE secrets SET value = $2, expires = $3 WHERE name = $1 AND value = $4";
        Ok(self.reader.count(update, &[&name, &sealed, &expires, &there]).await? > 0)
    }

    async fn consume(&self, name: &str, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError> {
        let now = now.as_millisecond();
        let rows = match Turn::now() {
            None => {
                let take = "DELETE FROM secrets WHERE name = $1 RETURNING value, expires > $2";
                self.reader.taken(take, &[&name, &now]).await?
            }
            Some(Turn { what, number: turn }) => {
                let take = "WITH mine AS MATERIALIZED (SELECT FROM turns WHERE numbers[$3::integer] = $4 FOR SHARE),
                    gone AS (DELETE FROM secrets USING mine WHERE name = $1 RETURNING value, expires > $2 AS is_valid)
                    SELECT g.value, g.is_valid FROM mine LEFT JOIN gone g ON true";
                let rows = self.reader.taken(take, &[&name, &now, &batch::place_of(what), &as_stored(turn)]).await?;
                if rows.is_empty() {
                    return Err(StoreError::NotAlone);
                }
                rows
            }
        };
        let valid = rows.first().filter(|row| row.get::<_, Option<bool>>(1) == Some(true));
        self.sealer.unseal_found(name, valid.map(|row| row.get(0)))
    }

    async fn purge(&self, now: Timestamp) -> Result<u64, StoreError> {
        self.reader.count("DELETE FROM secrets WHERE expires <= $1", &[&now.as_millisecond()]).await
    }

    async fn begin_incarnation(&self, incarnation: &[u8]) -> Result<(), StoreError> {
        // Revisions and turns are locked as a commit locks them. A coordinator that meets the gap loads everything. Who may write the tables
        // may not change their sequence: events then go on from where they were.
        let begin = "WITH mine AS MATERIALIZED (
                SELECT FROM landfall l, turns t WHERE $4::integer IS NULL OR t.numbers[$4] = $5 FOR UPDATE),
            begun AS (INSERT INTO secrets (name, value, expires) SELECT $1, $2, $3::bigint FROM mine
                ON CONFLICT (name) DO UPDATE SET value = excluded.value, expires = excluded.expires RETURNING name),
            revised AS (UPDATE landfall SET revision = revision + $6 FROM begun),
            audited AS (UPDATE audit_count SET newest = newest + $6 FROM begun)
            SELECT CASE WHEN has_sequence_privilege(s, 'UPDATE') THEN setval(s, nextval(s) + $6) END
            FROM begun, CAST(pg_get_serial_sequence('events', 'position') AS regclass) AS s";
        let (sealed, expires) = (self.sealer.seal(INCARNATION, incarnation)?, Timestamp::MAX.as_millisecond());
        let turn = Turn::now();
        let (what, number) = (turn.map(|turn| batch::place_of(turn.what)), turn.map(|turn| as_stored(turn.number)));
        let params: [&(dyn ToSql + Sync); 6] =
            [&INCARNATION, &sealed, &expires, &what, &number, &as_stored(left_out())];
        let begun = self.reader.taken(begin, &params).await?;
        if begun.is_empty() { Err(StoreError::NotAlone) } else { Ok(()) }
    }
}
