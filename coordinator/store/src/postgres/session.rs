//! The session that writes, and follows what others write.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio_postgres::Client;
use uuid::Uuid;

use super::connect::{Link, within};
use super::error::PostgresError;
use super::options::Risk;
use super::statements::Statements;
use super::{checks, presence, schema};

/// Has the session compress what is large with lz4, where the server was built with it; it reads what was compressed otherwise all the
/// same. With PostgreSQL's own method (pglz) a row of a document took three times as long.
const LZ4: &str = "SELECT set_config(name, 'lz4', false) FROM pg_settings
    WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)";

pub(super) struct Session {
    pub(super) client: Client,
    pub(super) statements: Statements,
    /// Woken when another coordinator says that it wrote.
    pub(super) hints: Arc<Notify>,
}

impl Session {
    /// Of a connection to a database that is open already, as `id`, and was marked as put back as `incarnation` says.
    pub(super) async fn again(link: &Link, id: Uuid, incarnation: Option<&[u8]>) -> Result<Self, PostgresError> {
        let hints = Arc::<Notify>::default();
        let client = link.connect(hints.clone()).await?;
        let checked = async {
            checks::server(&client, link.options().accepts(Risk::Settings)).await?;
            schema::check(&client, id).await?;
            let session = Self::begin(client, hints).await?;
            session.refuse_another_incarnation(incarnation).await?;
            Ok(session)
        };
        within(checked).await
    }

    /// Refuses a database that was marked as put back otherwise than as `known` says.
    ///
    /// # Errors
    /// [`PostgresError::Held`].
    pub(super) async fn refuse_another_incarnation(&self, known: Option<&[u8]>) -> Result<(), PostgresError> {
        let found = schema::incarnation(&self.client).await?;
        if found.as_deref() == known { Ok(()) } else { Err(PostgresError::Held) }
    }

    /// Of a connection whose server and schema were checked.
    pub(super) async fn begin(client: Client, hints: Arc<Notify>) -> Result<Self, PostgresError> {
        presence::be_there(&client).await?;
        client.batch_execute("LISTEN landfall").await?;
        client.execute(LZ4, &[]).await?;
        let statements = Statements::prepare(&client).await?;
        Ok(Self { client, statements, hints })
    }
}
