//! Which coordinators are there, and which of them leads: PostgreSQL's locks, held by sessions.
//!
//! Each coordinator's writing session holds a lock that all may hold at once. One leads: a session of its holds a lock that one may hold.
//! The session of a process that died ends at once. One that hangs, or that the network has cut off, falls silent, and is ended.

use std::time::Duration;

use tokio_postgres::Client;

use super::connect::ANSWER;
use super::error::PostgresError;

/// The lock of the one that leads. PostgreSQL's locks have numbers and no names; these have no meaning. Older versions, of which one
/// alone was at work, hold it too.
pub(super) const LEADS: i64 = 0x6c66_3f08_c2e5_19d4;
/// The lock of every one that is there.
pub(super) const IS_THERE: i64 = 0x6c66_51b7_0e94_a3c2;
/// A coordinator asks for changes twice a second. After so long without a question it hangs, or is cut off. Longer than
/// [`crate::CONFIRMED_WITHIN`], so that by then it promises nothing more.
pub(super) const SILENT: Duration = Duration::from_secs(5);

/// Of a name the server keeps so many characters.
pub(super) const NAME: usize = 63;

/// What `migrate-store` is called by the server: it may read for longer than a coordinator is ever silent.
pub(super) const MIGRATION: &str = "landfall-coordinator migrate-store";

/// A session of the server. Its process number alone may be another's later.
pub(super) struct Backend {
    pid: i32,
    begun: String,
}

impl Backend {
    /// Ends this session, if it is there.
    pub(super) async fn end(&self, client: &Client) -> Result<(), PostgresError> {
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start::text = $2";
        Ok(client.execute(end, &[&self.pid, &self.begun]).await.map(drop)?)
    }
}

/// A session that holds a lock.
pub(super) struct Holder {
    pub(super) backend: Backend,
    /// What its coordinator is called.
    pub(super) name: String,
    /// How long it has asked nothing; zero where the server is at work for it. `None`: the server does not say.
    pub(super) silent: Option<Duration>,
}

/// The sessions of this database that hold that lock.
pub(super) async fn holders(client: &Client, lock: i64) -> Result<Vec<Holder>, PostgresError> {
    // A number of 64 bits is two of 32 in this view. One whose client stopped in the middle of a message, or of an answer, is at work
    // for ever: it gets as long as an answer may take besides.
    let select = "SELECT pid, backend_start::text, application_name,
            CASE WHEN state = 'disabled' THEN NULL WHEN state LIKE 'idle%'
                THEN extract(epoch FROM clock_timestamp() - state_change)::float8
            WHEN wait_event IN ('ClientRead', 'ClientWrite')
                THEN extract(epoch FROM clock_timestamp() - state_change)::float8 - $2
            WHEN state IS NOT NULL THEN 0 END
        FROM pg_locks JOIN pg_stat_activity USING (pid)
        WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND pg_locks.database =
                (SELECT oid FROM pg_database WHERE datname = current_database())
            AND (classid::bigint << 32) + objid::bigint = $1";
    let found = client.query(select, &[&lock, &ANSWER.as_secs_f64()]).await?;
    let holder = |row: &tokio_postgres::Row| Holder {
        backend: Backend { pid: row.get(0), begun: row.get::<_, Option<_>>(1).unwrap_or_default() },
        name: row.get(2),
        silent: row.get::<_, Option<f64>>(3).map(|silent| Duration::try_from_secs_f64(silent).unwrap_or_default()),
    };
    Ok(found.iter().map(holder).collect())
}

/// Why the server does not show to this role whether a coordinator works, if it does not.
///
/// # Errors
/// The server's.
pub(super) async fn unwatched(client: &Client) -> Result<Option<PostgresError>, PostgresError> {
    let unseen = holders(client, IS_THERE).await?.into_iter().find(|holder| holder.silent.is_none());
    let is_off: bool = client.query_one("SELECT current_setting('track_activities') = 'off'", &[]).await?.get(0);
    let unseen = unseen.map(|holder| holder.name).or_else(|| is_off.then(|| "a coordinator".to_owned()));
    Ok(unseen.map(|by| PostgresError::Unwatched { by }))
}

/// Takes a lock of the session of this connection with `ask`.
///
/// # Errors
/// [`PostgresError::InUse`], with the name of one that has it.
async fn take(client: &Client, ask: &str, lock: i64) -> Result<(), PostgresError> {
    loop {
        if client.query_one(ask, &[&lock]).await?.get(0) {
            return Ok(());
        }
        // None: it has just ended.
        if let Some(holder) = holders(client, lock).await?.pop() {
            return Err(PostgresError::InUse { by: holder.name });
        }
    }
}

/// Leads, for as long as the session lasts.
///
/// # Errors
/// [`PostgresError::InUse`]: another one does.
pub(super) async fn lead(client: &Client) -> Result<(), PostgresError> {
    take(client, "SELECT pg_try_advisory_lock($1)", LEADS).await
}

/// Is there, for as long as the session lasts.
///
/// # Errors
/// [`PostgresError::InUse`]: `migrate-store` has the database alone.
pub(super) async fn be_there(client: &Client) -> Result<(), PostgresError> {
    take(client, "SELECT pg_try_advisory_lock_shared($1)", IS_THERE).await
}

/// Refuses a second coordinator of one name: each would take the machines of both for its own. A session of its own that was lost may be
/// there for a while.
///
/// # Errors
/// [`PostgresError::InUse`].
pub(super) async fn refuse_namesake(client: &Client, name: Option<&str>) -> Result<(), PostgresError> {
    let Some(name) = name.map(|name| name.get(..NAME).unwrap_or(name)) else { return Ok(()) };
    for holder in holders(client, IS_THERE).await? {
        match holder.silent {
            _ if holder.name != name => {}
            Some(silent) if silent > SILENT => holder.backend.end(client).await?,
            _ => return Err(PostgresError::InUse { by: holder.name }),
        }
    }
    Ok(())
}

/// Has the database alone, for as long as the session lasts.
///
/// # Errors
/// [`PostgresError::InUse`].
pub(super) async fn be_alone(client: &Client) -> Result<(), PostgresError> {
    lead(client).await?;
    take(client, "SELECT pg_try_advisory_lock($1)", IS_THERE).await
}
