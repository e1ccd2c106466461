//! What one of several coordinators does at a time: under a lock of the database, after this one has taken in what the others stored.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval};
use tokio_postgres::Client;

use super::connect::within;
use super::error::PostgresError;
use super::reader::Reader;
use super::tenure::{Tenure, since_boot};
use crate::hold::{Alone, Hold};

/// PostgreSQL's locks have numbers and no names; these have no meaning.
const fn lock(what: Alone) -> i64 {
    match what {
        Alone::Identity => 0x6c66_1d3b_c75a_0e11,
        Alone::Beginning => 0x6c66_8ae4_306f_b9d7,
        Alone::Secret => 0x6c66_b52d_91c8_4e63,
    }
}

/// How often the server hears that this coordinator does not hang.
const ALIVE: Duration = Duration::from_secs(1);

/// Takes the lock, in a transaction: where this coordinator hangs, the server ends that after 4 s, and the lock with it.
///
/// # Errors
/// [`PostgresError`]: others have it for longer than a lock may be waited for.
pub(super) async fn take(reader: &Reader, what: Alone) -> Result<Hold, PostgresError> {
    let client = reader.client().await?;
    let taken = async {
        client.batch_execute("BEGIN").await?;
        client.execute("SELECT pg_advisory_xact_lock($1)", &[&lock(what)]).await?;
        Ok(())
    };
    within(taken).await?;
    let (release, mut released) = oneshot::channel();
    // What took the lock may have waited for it; the first question follows at once.
    let (reader, tenure) = (reader.clone(), Arc::new(Tenure::new(since_boot())));
    let confirmed = tenure.clone();
    tokio::spawn(async move {
        let mut alive = interval(ALIVE);
        alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // Dropped, too, is released.
                _ = &mut released => break,
                _ = alive.tick() => {
                    let asked = since_boot();
                    if within(said(&client, "SELECT")).await.is_err() {
                        confirmed.end();
                        return;
                    }
                    confirmed.confirmed(asked);
                }
            }
        }
        if within(said(&client, "COMMIT")).await.is_ok() {
            reader.give_back(client);
        }
    });
    Ok(Hold {
        seen: None,
        turn: None,
        release: Some(release),
        unconfirmed: Some(Arc::new(move || tenure.unconfirmed())),
    })
}

async fn said(client: &Client, statement: &str) -> Result<(), PostgresError> {
    Ok(client.batch_execute(statement).await?)
}
