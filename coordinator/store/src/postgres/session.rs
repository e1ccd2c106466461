//! The session that writes, and follows what others write.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio_postgres::Client;
use uuid::Uuid;

use super::connect::{Link, within};
use super::error::PostgresError;
use super::statements::Statements;
use super::{checks, presence, schema};

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
            checks::server(&client, link.options().accepts_loss).await?;
            schema::check(&client, id).await?;
            if schema::incarnation(&client).await?.as_deref() != incarnation {
                return Err(PostgresError::Held);
            }
            Self::begin(client, hints).await
        };
        within(checked).await
    }

    /// Of a connection whose server and schema were checked.
    pub(super) async fn begin(client: Client, hints: Arc<Notify>) -> Result<Self, PostgresError> {
        presence::be_there(&client).await?;
        client.batch_execute("LISTEN landfall").await?;
        // Documents are compressed with every write, and PostgreSQL's own method takes five times as long. A server built without
        // the other one goes on with its own; it reads both.
        client.execute(LZ4, &[]).await?;
        let statements = Statements::prepare(&client).await?;
        Ok(Self { client, statements, hints })
    }
}
