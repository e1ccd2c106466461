//! A connection to a database that no coordinator has.

use std::sync::Arc;

use tokio_postgres::{Client, Transaction};

use super::connect::Link;
use super::error::PostgresError;
use super::options::PostgresOptions;
use super::{schema, turn};

/// Keeps coordinators away while it lives.
pub(crate) struct Alone(Client);

impl Alone {
    /// Opens the database, and makes its tables where there are none.
    ///
    /// # Errors
    /// As [`super::PostgresStore::open`].
    pub(crate) async fn open(options: PostgresOptions) -> Result<Self, PostgresError> {
        options.check_encryption()?;
        let link = Link::new(options);
        let mut client = link.checked(Arc::default()).await?;
        turn::take(&client, &[]).await?;
        schema::open(&mut client, &link.options().key_dir).await?;
        Ok(Self(client))
    }

    /// A transaction that may take as long as it takes.
    pub(crate) async fn transaction(&mut self) -> Result<Transaction<'_>, PostgresError> {
        let transaction = self.0.transaction().await?;
        let patient = "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0";
        transaction.batch_execute(patient).await?;
        Ok(transaction)
    }
}
