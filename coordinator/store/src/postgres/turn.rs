//! Of several stores on one database, each of which is to have it alone, one has it and the others wait for their turn.
//!
//! PostgreSQL keeps the order: the store that has the database holds a lock for as long as its session lasts. It writes in that session,
//! or under a lock of the row that names its turn. So one that has lost it writes nothing more, whatever its clock says. The session of a
//! process that died ends at once. One that hangs, or that the network has cut off, falls silent, and one that waits ends its session.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use super::connect::{ANSWER, Link, within};
use super::error::PostgresError;
use super::schema;
use crate::CONFIRMED_WITHIN;

/// The lock. PostgreSQL's locks have numbers and no names; this one has no meaning.
const HELD: i64 = 0x6c66_3f08_c2e5_19d4;
/// The one that has the database asks for changes twice a second. After so long without a question it hangs, or is cut off. Longer than
/// [`crate::CONFIRMED_WITHIN`], so that by then it promises nothing more.
const SILENT: Duration = Duration::from_secs(5);
/// How often one that waits looks.
const LOOK: Duration = Duration::from_millis(200);
/// How often one that takes the database from its own lost session looks whether it is in line for it.
const IN_LINE: Duration = Duration::from_millis(5);
/// Where one that waits lost its own connection, the one that had the database lost it too: that one has the agents, and gets so
/// long to take the database again.
const PRECEDENCE: Duration = Duration::from_secs(5);
/// So often the row that names the turn is asked for, each time for as long as a lock may take.
const TRIES: usize = 3;
/// Between two tries to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// What `migrate-store` is called by the server: it may read for longer than a coordinator is ever silent.
pub(super) const MIGRATION: &str = "landfall-coordinator migrate-store";

/// A session of the server. Its process number alone may be another's later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Backend {
    pid: i32,
    begun: String,
}

impl Backend {
    /// The session of this connection.
    pub(super) async fn of(client: &Client) -> Result<Self, PostgresError> {
        let own = "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()";
        let row = client.query_one(own, &[]).await?;
        Ok(Self { pid: row.get(0), begun: row.get(1) })
    }

    /// Ends this session, if it is there.
    async fn end(&self, client: &Client) -> Result<(), PostgresError> {
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start::text = $2";
        Ok(client.execute(end, &[&self.pid, &self.begun]).await.map(drop)?)
    }
}

/// The session that has the database.
struct Holder {
    backend: Backend,
    /// What its coordinator is called.
    name: String,
    /// How long it has asked nothing; zero where the server is at work for it. `None`: the server does not say.
    silent: Option<Duration>,
}

/// Takes the database for the session of this connection.
///
/// # Errors
/// [`PostgresError::InUse`].
pub(super) async fn take(client: &Client) -> Result<(), PostgresError> {
    match take_free(client).await? {
        None => Ok(()),
        Some(holder) => Err(PostgresError::InUse { by: holder.name }),
    }
}

/// The same, unless a session has the database: that one is the answer.
async fn take_free(client: &Client) -> Result<Option<Holder>, PostgresError> {
    loop {
        if client.query_one("SELECT pg_try_advisory_lock($1)", &[&HELD]).await?.get(0) {
            return Ok(None);
        }
        // `None`: it has just ended.
        if let Some(holder) = holder(client).await? {
            return Ok(Some(holder));
        }
    }
}

/// Takes the database from another session of the same store, which it ends: the server may not know that it is lost.
///
/// This session is in line for the lock before that one ends, so that none of those who look from time to time comes between.
async fn inherit(client: &Client, link: &Link, from: &Backend) -> Result<(), PostgresError> {
    let other = link.connect(Arc::default()).await?;
    let own = Backend::of(client).await?;
    let in_line = async {
        client.execute("SELECT pg_advisory_lock($1)", &[&HELD]).await?;
        Ok(())
    };
    let ended = async {
        let is_in_line = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = $1)";
        while !other.query_one(is_in_line, &[&own.pid]).await?.get::<_, bool>(0) {
            sleep(IN_LINE).await;
        }
        from.end(&other).await
    };
    tokio::try_join!(in_line, ended).map(drop)
}

async fn holder(client: &Client) -> Result<Option<Holder>, PostgresError> {
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
    let found = client.query_opt(select, &[&HELD, &ANSWER.as_secs_f64()]).await?;
    Ok(found.map(|row| Holder {
        backend: Backend { pid: row.get(0), begun: row.get::<_, Option<_>>(1).unwrap_or_default() },
        name: row.get(2),
        silent: row.get::<_, Option<f64>>(3).map(|silent| Duration::try_from_secs_f64(silent).unwrap_or_default()),
    }))
}

/// From when a store has taken the database until another one does.
pub(super) struct Turn {
    pub(super) id: Uuid,
    /// What the server calls the sessions that it had: it may not know that they are lost.
    sessions: Vec<Backend>,
}

impl Turn {
    /// That of a session that has taken the database.
    pub(super) async fn begin(client: &Client) -> Result<Self, PostgresError> {
        // What the former one writes beside its session waits for nothing any more, and may take longer than this one may wait.
        let others = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE relation = 'turn'::regclass AND pid <> pg_backend_pid()";
        let update = "UPDATE turn SET id = gen_random_uuid() RETURNING id";
        let mut tries = 0;
        let id = loop {
            client.execute(others, &[]).await?;
            match client.query_one(update, &[]).await {
                Ok(row) => break row.get(0),
                Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) && tries < TRIES => tries += 1,
                Err(error) => return Err(error.into()),
            }
        };
        Ok(Self { id, sessions: vec![Backend::of(client).await?] })
    }

    /// Takes the database again, for another session.
    ///
    /// # Errors
    /// [`PostgresError::InUse`], [`PostgresError::Overtaken`]: this turn is over.
    pub(super) async fn resume(&mut self, client: &Client, link: &Link) -> Result<(), PostgresError> {
        // Before it has the lock: where no answer says so, the server may think that this session has it.
        self.sessions.push(Backend::of(client).await?);
        match take_free(client).await? {
            None => {}
            Some(holder) if self.sessions.contains(&holder.backend) => inherit(client, link, &holder.backend).await?,
            Some(holder) => return Err(PostgresError::InUse { by: holder.name }),
        }
        self.sessions.drain(..self.sessions.len() - 1);
        let now: Uuid = client.query_one("SELECT id FROM turn", &[]).await?.get(0);
        if now == self.id { Ok(()) } else { Err(PostgresError::Overtaken) }
    }
}

/// Waits until the database is free, and takes it. `has_it` hears the name of each coordinator that has it meanwhile.
///
/// # Errors
/// [`PostgresError`]: the server cannot be reached at first, is not fit for a store, or the key of the secrets is another one.
pub(super) async fn wait(link: &Link, mut has_it: impl FnMut(&str)) -> Result<(Client, Arc<Notify>), PostgresError> {
    let mut lost: Option<String> = None;
    loop {
        let hints = Arc::<Notify>::default();
        let error = match link.checked(hints.clone()).await {
            Ok(client) => {
                let yields = lost.is_some() || within(has_just_started(&client)).await.unwrap_or(true);
                let from = if yields { Instant::now() + PRECEDENCE } else { Instant::now() };
                match in_turn(&client, link, from, &mut has_it).await {
                    Ok(()) => return Ok((client, hints)),
                    Err(error) => error,
                }
            }
            // Before it ever waited, a person is there to read it.
            Err(error) if lost.is_none() => return Err(error),
            Err(error) => error,
        };
        if !error.may_pass() {
            return Err(error);
        }
        let reason = error.to_string();
        if lost.as_ref() != Some(&reason) {
            tracing::warn!(error = reason, "this standby cannot see the database; it tries again");
            lost = Some(reason);
        }
        sleep(PAUSE).await;
    }
}

/// Whether the server started so shortly ago that a coordinator it had before may not have come back yet; never one that has no tables.
async fn has_just_started(client: &Client) -> Result<bool, PostgresError> {
    let young = "SELECT clock_timestamp() - pg_postmaster_start_time() < make_interval(secs => $1)
        AND to_regclass('landfall') IS NOT NULL";
    Ok(client.query_one(young, &[&PRECEDENCE.as_secs_f64()]).await?.get(0))
}

async fn in_turn(
    client: &Client, link: &Link, from: Instant, has_it: &mut impl FnMut(&str),
) -> Result<(), PostgresError> {
    // Now, not in an hour when it is needed.
    within(schema::check_key(client, &link.options().key_dir)).await?;
    let mut name = None;
    loop {
        if Instant::now() >= from {
            match within(take(client)).await {
                Err(PostgresError::InUse { by }) => {
                    if name.as_ref() != Some(&by) {
                        has_it(&by);
                        name = Some(by);
                    }
                }
                taken_or_failed => return taken_or_failed,
            }
        }
        if let Some(Holder { backend, name, silent }) = within(holder(client)).await?
            && name != MIGRATION
            && silent.ok_or_else(|| PostgresError::Unwatched { by: name.clone() })? > SILENT
        {
            tracing::warn!(
                coordinator = name,
                ?silent,
                "the active coordinator is silent: its session with the database is ended"
            );
            within(backend.end(client)).await?;
        }
        sleep(LOOK).await;
    }
}

/// How sure a store is that it has the database.
pub(super) struct Tenure {
    confirmed: Mutex<Duration>,
    /// Its session is lost, and there is no other yet.
    lost: AtomicBool,
    taken: AtomicBool,
}

impl Tenure {
    /// Of a session to which the server answered what was asked at `asked`, of [`since_boot`].
    pub(super) fn new(asked: Duration) -> Self {
        Self { confirmed: Mutex::new(asked), lost: AtomicBool::new(false), taken: AtomicBool::new(false) }
    }

    /// The server answered in this store's session what was asked at `asked`, of [`since_boot`].
    pub(super) fn confirmed(&self, asked: Duration) {
        *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner) = asked;
        self.lost.store(false, Ordering::Release);
    }

    /// The session is lost.
    pub(super) fn lost(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// Another one has the database.
    pub(super) fn taken(&self) {
        self.taken.store(true, Ordering::Release);
    }

    pub(super) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Acquire)
    }

    /// See [`crate::DocumentStore::unconfirmed`].
    pub(super) fn unconfirmed(&self) -> Duration {
        if self.is_taken() {
            return Duration::MAX;
        }
        let at = *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
        let age = since_boot().saturating_sub(at);
        // Another may have the database at once, but this one need not be given up so soon.
        if self.lost.load(Ordering::Acquire) { age.max(CONFIRMED_WITHIN) } else { age }
    }
}

/// By the clock that runs on while the host sleeps.
pub(super) fn since_boot() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}
