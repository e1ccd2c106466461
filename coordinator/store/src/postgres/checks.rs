//! What the promise that nothing acknowledged is lost needs of the server.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio_postgres::{Client, GenericClient};

use super::error::PostgresError;
use super::options::{PostgresOptions, Risk};

/// PostgreSQL's oldest version.
const OLDEST: u32 = 15;
/// Clocks kept by NTP differ by milliseconds; time limits of machines without a session are minutes.
const APART: Duration = Duration::from_secs(60);
/// So often two sessions are compared: a pooler that has several connections gives them out in turn.
const COMPARED: usize = 8;

/// Refuses what is older than [`OLDEST`]. `number`: 150004 is 15.4.
pub(super) fn version(number: i64, name: &str) -> Result<(), PostgresError> {
    match number < i64::from(OLDEST) * 10_000 {
        true => Err(PostgresError::TooOld { found: name.to_owned(), needed: OLDEST }),
        false => Ok(()),
    }
}

/// The version, and the settings that keep what was committed.
pub(super) async fn server(client: &Client, accepts_loss: bool) -> Result<(), PostgresError> {
    let row = client
        .query_one("SELECT current_setting('server_version_num')::bigint, current_setting('server_version')", &[])
        .await?;
    version(row.get(0), row.get(1))?;
    match settings(client).await? {
        Some(refused) if !accepts_loss => Err(refused),
        _ => Ok(()),
    }
}

/// A setting that loses what was committed, if there is one.
async fn settings(client: &Client) -> Result<Option<PostgresError>, PostgresError> {
    let row = client
        .query_one(
            "SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
             current_setting('synchronous_standby_names') <> ''",
            &[],
        )
        .await?;
    for (column, setting) in ["fsync", "full_page_writes", "synchronous_commit"].into_iter().enumerate() {
        let value: String = row.get(column);
        // With a standby that must have it too, a commit on this disk alone is lost by a fail-over.
        if value == "off" || (value == "local" && row.get(3)) {
            return Ok(Some(PostgresError::Unsafe { setting: setting.to_owned(), value }));
        }
    }
    Ok(None)
}

/// Why the role could not make or change the tables, if it could not.
///
/// # Errors
/// The server's.
pub(super) async fn privileges(client: &impl GenericClient) -> Result<Option<PostgresError>, PostgresError> {
    // A member of the role that owns the tables may do what that one may.
    let row = client
        .query_one(
            "SELECT current_user::text, coalesce(has_schema_privilege(current_schema(), 'CREATE'), false),
             coalesce((SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass('landfall')), true)",
            &[],
        )
        .await?;
    let what = match (row.get(1), row.get(2)) {
        (false, _) => "may not make tables",
        (_, false) => "does not own the tables that are there",
        _ => return Ok(None),
    };
    Ok(Some(PostgresError::Privileges { role: row.get(0), what: what.to_owned() }))
}

/// What is to be said of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remarks {
    /// Which of its settings lose what was committed. A server with one is refused unless that is accepted.
    pub lossy_settings: Option<String>,
    /// Why this role could not change the tables, should a newer version have to.
    pub cannot_change_tables: Option<String>,
    /// Servers that copy this one, where no commit waits for any of them.
    pub unawaited_replicas: u64,
    /// By how much the server's clock is ahead of this host's.
    pub clock_ahead: SignedDuration,
    /// Why the server does not show to this role whether a coordinator works, where that was looked at. One that hangs would keep its
    /// machines.
    pub unwatched: Option<String>,
}

impl Remarks {
    /// Refuses what a start refuses.
    ///
    /// # Errors
    /// As [`Self::replicas`] and [`Self::clock`].
    pub(super) fn check(&self, options: &PostgresOptions) -> Result<(), PostgresError> {
        self.replicas(options)?;
        self.clock(options)
    }

    /// Refuses servers that copy this one, unless a commit waits for one of them or these options accept them.
    ///
    /// # Errors
    /// [`PostgresError::Unawaited`].
    pub fn replicas(&self, options: &PostgresOptions) -> Result<(), PostgresError> {
        match self.unawaited_replicas {
            replicas @ 1.. if !options.accepts(Risk::Replicas) => Err(PostgresError::Unawaited { replicas }),
            _ => Ok(()),
        }
    }

    /// Refuses a clock that is a minute off, unless these options accept it.
    ///
    /// # Errors
    /// [`PostgresError::Clock`].
    pub fn clock(&self, options: &PostgresOptions) -> Result<(), PostgresError> {
        match self.clock_ahead.unsigned_abs() {
            apart if apart >= APART && !options.accepts(Risk::Clock) => {
                Err(PostgresError::Clock { seconds: apart.as_secs() })
            }
            _ => Ok(()),
        }
    }
}

/// Makes them.
pub(super) async fn remarks(client: &Client) -> Result<Remarks, PostgresError> {
    let asked = Timestamp::now();
    let row = client
        .query_one(
            // One that is with a database reads its changes, and one that makes a backup is no server to fail over to; a plain user
            // sees the state of none, but its name.
            "SELECT CASE WHEN current_setting('synchronous_standby_names') = ''
                    OR current_setting('synchronous_commit') IN ('off', 'local')
                THEN count(*) FILTER (WHERE datid IS NULL AND r.state IS DISTINCT FROM 'backup' AND r.application_name NOT IN
                    ('pg_basebackup', 'pg_receivewal', 'barman_receive_wal', 'barman_streaming_backup'))
                ELSE 0 END,
             (extract(epoch FROM clock_timestamp()) * 1000)::bigint
             FROM pg_stat_replication r JOIN pg_stat_activity USING (pid)",
            &[],
        )
        .await?;
    // The server looked at its clock somewhere in between.
    let middle = asked.as_millisecond().midpoint(Timestamp::now().as_millisecond());
    let clock_ahead = SignedDuration::from_millis(row.get::<_, i64>(1).saturating_sub(middle));
    let lossy_settings = settings(client).await?.map(|why| why.to_string());
    let cannot_change_tables = privileges(client).await?.map(|why| why.to_string());
    Ok(Remarks {
        lossy_settings,
        cannot_change_tables,
        unawaited_replicas: row.get::<_, i64>(0).unsigned_abs(),
        clock_ahead,
        unwatched: None,
    })
}

/// Refuses a pooler that gives each transaction another session: locks and hints would be another's. Two connections to the
/// server itself always have two sessions. Each is asked twice in a row: a pooler that gives its sessions out in turn gives it another one.
pub(super) async fn sessions(a: &Client, b: &Client) -> Result<(), PostgresError> {
    let session = async |client: &Client| -> Result<i32, PostgresError> {
        let row = client.query_one("SELECT pg_backend_pid()", &[]).await?;
        Ok(row.get(0))
    };
    let first = [session(a).await?, session(b).await?];
    if first[0] == first[1] {
        return Err(PostgresError::Pooled { why: "two connections share one session".to_owned() });
    }
    for _ in 0..COMPARED {
        for (client, expected) in [a, b].into_iter().zip(first) {
            if session(client).await? != expected || session(client).await? != expected {
                return Err(PostgresError::Pooled { why: "one connection has several sessions".to_owned() });
            }
        }
    }
    Ok(())
}
