//! Single statements, each on a connection of its own: reads from the disk, and the few writes that no other one has to agree with.

use deadpool_postgres::Pool;
use tokio::time::timeout;
use tokio_postgres::{Row, types::ToSql};

use super::connect::{ANSWER, Link};
use super::error::PostgresError;
use crate::StoreError;

type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

pub(super) struct Reader(Pool);

impl Reader {
    pub(super) fn new(link: &Link) -> Result<Self, PostgresError> {
        Ok(Self(link.readers()?))
    }

    /// What a statement answers.
    pub(super) async fn rows(&self, statement: &str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        let rows = async {
            let client = self.0.get().await?;
            let statement = client.prepare_cached(statement).await?;
            Ok(client.query(&statement, params).await?)
        };
        limited(rows).await
    }

    /// How many rows a statement has changed.
    pub(super) async fn count(&self, statement: &str, params: Params<'_>) -> Result<u64, StoreError> {
        let changed = async {
            let client = self.0.get().await?;
            let statement = client.prepare_cached(statement).await?;
            Ok(client.execute(&statement, params).await?)
        };
        limited(changed).await
    }

    /// How many rows the second of two statements has changed, in one transaction.
    pub(super) async fn second_count(
        &self, first: (&str, Params<'_>), second: (&str, Params<'_>),
    ) -> Result<u64, StoreError> {
        let changed = async {
            let mut client = self.0.get().await?;
            let transaction = client.transaction().await?;
            transaction.execute(first.0, first.1).await?;
            let count = transaction.execute(second.0, second.1).await?;
            transaction.commit().await?;
            Ok(count)
        };
        limited(changed).await
    }
}

async fn limited<T>(work: impl Future<Output = Result<T, PostgresError>>) -> Result<T, StoreError> {
    Ok(timeout(ANSWER, work).await.unwrap_or(Err(PostgresError::Silent(ANSWER)))?)
}
