//! What one of several coordinators does at a time: under a lock of the database, after this one has taken in what the others stored.

use tokio::sync::oneshot;

use super::connect::within;
use super::error::PostgresError;
use super::reader::Reader;
use crate::traits::{Alone, Hold};

/// PostgreSQL's locks have numbers and no names; these have no meaning.
const fn lock(what: Alone) -> i64 {
    match what {
        Alone::Identity => 0x6c66_1d3b_c75a_0e11,
        Alone::Beginning => 0x6c66_8ae4_306f_b9d7,
    }
}

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
    let (release, released) = oneshot::channel();
    let reader = reader.clone();
    tokio::spawn(async move {
        // Dropped, too, is released.
        drop(released.await);
        if within(async { Ok(client.batch_execute("COMMIT").await?) }).await.is_ok() {
            reader.give_back(client);
        }
    });
    Ok(Hold { seen: None, release: Some(release) })
}
