//! Single statements, each on a connection of its own: reads from the disk, and the few writes that no other one has to agree with.

use deadpool_postgres::{Object, Pool};
use tokio::time::timeout;
use tokio_postgres::{Row, types::ToSql};

use super::connect::{ANSWER, Link};
use super::error::PostgresError;
use crate::StoreError;

type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

#[derive(Clone)]
pub(super) struct Reader(Pool);

impl Reader {
    pub(super) fn new(link: &Link) -> Result<Self, PostgresError> {
        Ok(Self(link.readers()?))
    }

    /// Closes every connection that is not at work: a server that was lost may leave them open, and never answer on them.
    pub(super) fn empty(&self) {
        self.0.retain(|_, _| false);
    }

    /// What a statement answers.
    pub(super) async fn rows(&self, statement: &str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        self.limited(async |client| {
            let statement = client.prepare_cached(statement).await?;
            Ok(client.query(&statement, params).await?)
        })
        .await
    }

    /// How many rows a statement has changed.
    pub(super) async fn count(&self, statement: &str, params: Params<'_>) -> Result<u64, StoreError> {
        self.limited(async |client| {
            let statement = client.prepare_cached(statement).await?;
            Ok(client.execute(&statement, params).await?)
        })
        .await
    }

    /// How many rows the second of two statements has changed, in one transaction.
    pub(super) async fn second_count(
        &self, first: (&str, Params<'_>), second: (&str, Params<'_>),
    ) -> Result<u64, StoreError> {
        self.limited(async |client| {
            let transaction = client.transaction().await?;
            transaction.execute(first.0, first.1).await?;
            let count = transaction.execute(second.0, second.1).await?;
            transaction.commit().await?;
            Ok(count)
        })
        .await
    }

    async fn limited<T>(
        &self, work: impl AsyncFnOnce(&mut Object) -> Result<T, PostgresError>,
    ) -> Result<T, StoreError> {
        // The pool has limits of its own.
        let mut client = self.0.get().await.map_err(PostgresError::from)?;
        match timeout(ANSWER, work(&mut client)).await {
            Ok(done) => Ok(done?),
            Err(_) => {
                // Its next user would wait as long in vain.
                drop(Object::take(client));
                Err(PostgresError::Silent(ANSWER).into())
            }
        }
    }
}
