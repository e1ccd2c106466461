//! Single statements, each on a connection of its own: reads from the disk, and the few writes that no other one has to agree with.

use std::sync::{Arc, Mutex, PoisonError};

use deadpool_postgres::ClientWrapper;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_postgres::{Row, types::ToSql};

use super::connect::{ANSWER, Link};
use super::error::PostgresError;
use crate::StoreError;

/// Connections of readers.
const READERS: usize = 8;

type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

#[derive(Clone)]
pub(super) struct Reader(Arc<Pool>);

struct Pool {
    link: Link,
    places: Semaphore,
    /// Connections that are not at work.
    idle: Mutex<Vec<ClientWrapper>>,
}

impl Reader {
    /// Connects when there is something to read.
    pub(super) fn new(link: Link) -> Self {
        Self(Arc::new(Pool { link, places: Semaphore::new(READERS), idle: Mutex::default() }))
    }

    /// Closes every connection that is not at work: a server that was lost may leave them open, and never answer on them.
    pub(super) fn empty(&self) {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(super) async fn client(&self) -> Result<ClientWrapper, PostgresError> {
        let take = || self.0.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        while let Some(client) = take() {
            if !client.is_closed() {
                return Ok(client);
            }
        }
        let (client, driver) = self.0.link.driven(Arc::default()).await?;
        Ok(ClientWrapper::new(client, driver))
    }

    /// A connection that is not at work any more.
    pub(super) fn give_back(&self, client: ClientWrapper) {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
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
        self.written(&[(statement, params)]).await.map(|(count, _)| count)
    }

    /// The rows that a statement has changed, as it answers them.
    pub(super) async fn taken(&self, statement: &str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        self.written(&[(statement, params)]).await.map(|(_, rows)| rows)
    }

    /// What the last of some statements has changed, in one transaction.
    pub(super) async fn written(&self, statements: &[(&str, Params<'_>)]) -> Result<(u64, Vec<Row>), StoreError> {
        self.limited(async |client| {
            let transaction = client.transaction().await?;
            let (mut count, mut rows) = (0, Vec::new());
            for (statement, params) in statements {
                let statement = transaction.prepare_cached(statement).await?;
                if statement.columns().is_empty() {
                    count = transaction.execute(&statement, params).await?;
                } else {
                    rows = transaction.query(&statement, params).await?;
                }
            }
            transaction.commit().await?;
            Ok((count, rows))
        })
        .await
    }

    async fn limited<T>(
        &self, work: impl AsyncFnOnce(&mut ClientWrapper) -> Result<T, PostgresError>,
    ) -> Result<T, StoreError> {
        let Ok(place) = timeout(ANSWER, self.0.places.acquire()).await else {
            return Err(PostgresError::Busy { at: self.0.link.options().place(), connections: READERS }.into());
        };
        let mut client = self.client().await?;
        // One that does not answer is closed: its next user would wait as long in vain.
        let done = timeout(ANSWER, work(&mut client)).await.map_err(|_| PostgresError::Silent(ANSWER))?;
        self.give_back(client);
        drop(place);
        Ok(done?)
    }
}
