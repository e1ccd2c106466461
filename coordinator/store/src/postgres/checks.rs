//! What the promise that nothing acknowledged is lost needs of the server.

use jiff::{SignedDuration, Timestamp};
use tokio_postgres::{Client, GenericClient};

use super::error::PostgresError;

/// PostgreSQL's oldest version.
const OLDEST: u32 = 15;
/// So often two sessions are compared: a pooler that has several connections gives them out in turn.
const COMPARED: usize = 8;

/// The version, and the settings that keep what was committed.
pub(super) async fn server(client: &Client, accepts_loss: bool) -> Result<(), PostgresError> {
    let row = client
        .query_one("SELECT current_setting('server_version_num')::bigint, current_setting('server_version')", &[])
        .await?;
    // 150004 is 15.4.
    if row.get::<_, i64>(0) < i64::from(OLDEST) * 10_000 {
        return Err(PostgresError::TooOld { found: row.get(1), needed: OLDEST });
    }
    if accepts_loss {
        return Ok(());
    }
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
            return Err(PostgresError::Unsafe { setting: setting.to_owned(), value });
        }
    }
    Ok(())
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

/// What is no reason to refuse a server, and for people to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remarks {
    /// Why this role could not change the tables, should a newer version have to.
    pub cannot_change_tables: Option<String>,
    /// Servers that copy this one, where no commit waits for any of them.
    pub unawaited_replicas: u64,
    /// By how much the server's clock is ahead of this host's.
    pub clock_ahead: SignedDuration,
}

/// Makes them.
pub(super) async fn remarks(client: &Client) -> Result<Remarks, PostgresError> {
    let asked = Timestamp::now();
    let row = client
        .query_one(
            // A plain user does not see the state of one, and so not that it is a backup.
            "SELECT CASE WHEN current_setting('synchronous_standby_names') = ''
                THEN count(*) FILTER (WHERE state IS DISTINCT FROM 'backup') ELSE 0 END,
             (extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM pg_stat_replication",
            &[],
        )
        .await?;
    // The server looked at its clock somewhere in between.
    let middle = asked.as_millisecond().midpoint(Timestamp::now().as_millisecond());
    let clock_ahead = SignedDuration::from_millis(row.get::<_, i64>(1).saturating_sub(middle));
    let cannot_change_tables = privileges(client).await?.map(|why| why.to_string());
    Ok(Remarks { cannot_change_tables, unawaited_replicas: row.get::<_, i64>(0).unsigned_abs(), clock_ahead })
}

/// Refuses a pooler that gives each transaction another session: locks and hints would be another's. Two connections to the
/// server itself always have two sessions, and each the settings that were asked for.
pub(super) async fn sessions(a: &Client, b: &Client) -> Result<(), PostgresError> {
    let question = "SELECT pg_backend_pid(), current_setting('idle_in_transaction_session_timeout')";
    let mut first: Option<[i32; 2]> = None;
    for _ in 0..COMPARED {
        let (one, other) = (a.query_one(question, &[]).await?, b.query_one(question, &[]).await?);
        let pids: [i32; 2] = [one.get(0), other.get(0)];
        let why = if pids[0] == pids[1] {
            "two connections share one session"
        } else if first.is_some_and(|first| first != pids) {
            "one connection has several sessions"
        } else if one.get::<_, String>(1) != "4s" {
            "a session lacks the settings that it was begun with"
        } else {
            first = Some(pids);
            continue;
        };
        return Err(PostgresError::Pooled { why: why.to_owned() });
    }
    Ok(())
}
