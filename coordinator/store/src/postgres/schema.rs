//! The tables, and how an older database becomes one of this version.

use std::path::Path;

use tokio_postgres::{Client, GenericClient};
use uuid::Uuid;

use super::checks;
use super::error::PostgresError;
use super::presence;
use crate::INCARNATION;
use crate::seal::Sealer;

/// Each takes the schema from its index to the next. Never edit one that was released: append. Coordinators of two versions may
/// be at work on one database for a time, so one only adds what an older version does without.
///
/// `landfall` has one row, whose lock is held by the transaction that gives out revisions: so they are without gaps, and visible in their
/// order. With it goes the lock of `turns`, which counts, for each thing that one coordinator does at a time, how often that was begun: a
/// write of an earlier turn is refused. `changes` has the newest of them for the other coordinators. `runs` has what the log holds of a workflow, and the epoch
/// of its machine's newest session: the row's lock puts the events of one workflow in order, none of an older session comes after a newer
/// one has begun, and counting them is no scan. `turn` says whether `migrate-store` has taken the content
/// elsewhere; what older versions had in it besides is gone, so that none of them has the database alone any more. Times are in ms since 1970, as in SQLite.
const MIGRATIONS: &[&str] = &["
    CREATE TABLE landfall (
        one boolean PRIMARY KEY DEFAULT true CHECK (one), id uuid NOT NULL DEFAULT gen_random_uuid(),
        schema integer NOT NULL, revision bigint NOT NULL DEFAULT 0, proof bytea) WITH (fillfactor = 10);
    INSERT INTO landfall (schema) VALUES (0);
    CREATE TABLE documents (
        kind text NOT NULL, name text COLLATE \"C\" NOT NULL, json text NOT NULL, schema integer NOT NULL,
        PRIMARY KEY (kind, name)) WITH (fillfactor = 50);
    CREATE TABLE changes (
        revision bigint PRIMARY KEY, op smallint NOT NULL, kind text NOT NULL, name text NOT NULL, json text NOT NULL,
        schema integer NOT NULL, at timestamptz NOT NULL DEFAULT now());
    CREATE TABLE history (
        revision bigint PRIMARY KEY, kind text NOT NULL, name text NOT NULL, time bigint NOT NULL, json text NOT NULL);
    CREATE INDEX history_of ON history (kind, name, revision);
    CREATE INDEX history_by_time ON history (time);
    CREATE TABLE runs (workflow uuid PRIMARY KEY, events bigint NOT NULL, newest bigint NOT NULL) WITH (fillfactor = 50);
    CREATE TABLE events (
        position bigint GENERATED ALWAYS AS IDENTITY, workflow uuid NOT NULL, action_index bigint NOT NULL,
        attempt bigint NOT NULL, seq bigint NOT NULL, json text NOT NULL,
        PRIMARY KEY (workflow, action_index, attempt, seq));
    CREATE INDEX events_of ON events (workflow, position);
    CREATE TABLE secrets (name text PRIMARY KEY, value bytea NOT NULL, expires bigint NOT NULL);
    CREATE TABLE grants (kind text, name text COLLATE \"C\", json text NOT NULL, PRIMARY KEY (kind, name));
    CREATE TABLE audit_count (one boolean PRIMARY KEY DEFAULT true CHECK (one), newest bigint NOT NULL)
        WITH (fillfactor = 10);
    INSERT INTO audit_count (newest) VALUES (0);
    CREATE TABLE audit (
        position bigint PRIMARY KEY, ring smallint NOT NULL, is_intent boolean NOT NULL, json text NOT NULL);
    CREATE INDEX audit_of ON audit (ring, position);
", "
    CREATE TABLE turn (one boolean PRIMARY KEY DEFAULT true CHECK (one), id uuid NOT NULL DEFAULT gen_random_uuid(),
        moved boolean NOT NULL DEFAULT false);
    INSERT INTO turn DEFAULT VALUES;
", "
    ALTER TABLE turn DROP COLUMN id;
", "
    ALTER TABLE runs ADD COLUMN epoch bigint NOT NULL DEFAULT 0;
", "
    CREATE TABLE turns (one boolean PRIMARY KEY DEFAULT true CHECK (one), numbers bigint[] NOT NULL) WITH (fillfactor = 10);
    INSERT INTO turns (numbers) VALUES ('{0,0,0}');
"];

/// Up to this schema a coordinator had the database alone.
const ALONE: i32 = 2;

/// The schema that this version writes; it reads every older one.
pub(super) const SCHEMA: i32 = MIGRATIONS.len() as i32;
/// Of the transactions that open a database, one at a time. PostgreSQL's locks have numbers and no names; this one has no meaning.
const OPENING: i64 = 0x6c66_0a91_77d3_52be;

/// Brings the tables to this version's, and the key of the secrets to its proof. Several coordinators may begin at once.
pub(super) async fn open(client: &mut Client, key_dir: &Path) -> Result<(Uuid, Sealer), PostgresError> {
    let transaction = client.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&OPENING]).await?;
    let found = found(&transaction).await?;
    if found < SCHEMA
        && let Some(refused) = checks::privileges(&transaction).await?
    {
        return Err(refused);
    }
    if (1..SCHEMA).contains(&found) {
        // Before the tables: a coordinator that is at work on them has taken this lock before theirs.
        transaction.execute("SELECT FROM landfall FOR UPDATE", &[]).await?;
    }
    for (version, migration) in (1..).zip(MIGRATIONS).skip(usize::try_from(found).unwrap_or_default()) {
        transaction.batch_execute(migration).await?;
        transaction.execute("UPDATE landfall SET schema = $1", &[&version]).await?;
    }
    if transaction.query_one("SELECT moved FROM turn", &[]).await?.get(0) {
        return Err(PostgresError::Moved);
    }
    let row = transaction.query_one("SELECT id, proof FROM landfall", &[]).await?;
    let (sealer, proof) = Sealer::open(key_dir, row.get(1))?;
    if let Some(proof) = proof {
        transaction.execute("UPDATE landfall SET proof = $1", &[&proof]).await?;
    }
    transaction.commit().await?;
    Ok((row.get(0), sealer))
}

/// Refuses a database that a coordinator of an older version is at work on alone, for as long as the session lasts.
pub(super) async fn refuse_at_work(client: &Client) -> Result<(), PostgresError> {
    match found(client).await? {
        1..=ALONE => presence::lead(client).await,
        _ => Ok(()),
    }
}

/// The schema of a database; 0 of one without tables.
pub(super) async fn found(client: &impl GenericClient) -> Result<i32, PostgresError> {
    // A look into the table of tables itself: `to_regclass` may go by what this session found before another one made the tables.
    let is_empty = "SELECT NOT EXISTS (SELECT FROM pg_class WHERE relname = 'landfall' AND pg_table_is_visible(oid))";
    if client.query_one(is_empty, &[]).await?.get(0) {
        return Ok(0);
    }
    let found = client.query_one("SELECT schema FROM landfall", &[]).await?.get(0);
    refuse_newer(found)?;
    Ok(found)
}

/// What changes whenever a database that went back was marked as such (see [`crate::INCARNATION`]), as it is stored.
pub(super) async fn incarnation(client: &Client) -> Result<Option<Vec<u8>>, PostgresError> {
    let rows = client.query("SELECT value FROM secrets WHERE name = $1", &[&INCARNATION]).await?;
    Ok(rows.first().map(|row| row.get(0)))
}

/// That a database is still the one that was opened as `id`, in a schema that this version knows.
pub(super) async fn check(client: &Client, id: Uuid) -> Result<(), PostgresError> {
    let row = client.query_one("SELECT id, schema, (SELECT moved FROM turn) FROM landfall", &[]).await?;
    if row.get::<_, Uuid>(0) != id {
        return Err(PostgresError::Another);
    }
    if row.get(2) {
        return Err(PostgresError::Moved);
    }
    refuse_newer(row.get(1))
}

fn refuse_newer(found: i32) -> Result<(), PostgresError> {
    if found > SCHEMA { Err(PostgresError::Newer { found, known: SCHEMA }) } else { Ok(()) }
}
