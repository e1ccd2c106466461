//! A connection to a database that no coordinator has.

use std::sync::Arc;

use tokio_postgres::{Client, Transaction};

use super::checks;
use super::connect::Link;
use super::error::PostgresError;
use super::options::PostgresOptions;
use super::presence::{self, MIGRATION};
use super::schema;

/// Keeps coordinators away while it lives.
pub(crate) struct Alone(Client);

impl Alone {
    /// Opens the database, and makes its tables where there are none, if it may be `empty`.
    ///
    /// # Errors
    /// As [`super::PostgresStore::open`]; [`PostgresError::Empty`].
    pub(crate) async fn open(options: PostgresOptions, empty: bool) -> Result<Self, PostgresError> {
        options.check_encryption()?;
        let link = Link::new(options.named(MIGRATION));
        let mut client = link.checked(Arc::default()).await?;
        checks::remarks(&client).await?.check(link.options())?;
        presence::be_alone(&client).await?;
        if !empty && schema::found(&client).await? == 0 {
            return Err(PostgresError::Empty { at: link.options().place() });
        }
        schema::open(&mut client, &link.options().key_dir).await?;
        Ok(Self(client))
    }

    /// Drops a secret, and lets others have the database again.
    ///
    /// # Errors
    /// [`PostgresError`] of the connection.
    pub(crate) async fn leave_without(self, secret: &str) -> Result<(), PostgresError> {
        self.0.execute("DELETE FROM secrets WHERE name = $1", &[&secret]).await?;
        Ok(self.0.batch_execute("SELECT pg_advisory_unlock_all()").await?)
    }

    /// A transaction that may take as long as it takes.
    pub(crate) async fn transaction(&mut self) -> Result<Transaction<'_>, PostgresError> {
        let transaction = self.0.transaction().await?;
        let patient = "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0;
             SET LOCAL bytea_output = hex";
        transaction.batch_execute(patient).await?;
        Ok(transaction)
    }
}
