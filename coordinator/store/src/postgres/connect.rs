//! One connection to the server.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Connect, Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime};
use hickory_resolver::TokioResolver;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::Host;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Config, Error, NoTls, Socket};

use super::checks;
use super::error::{PostgresError, spelled};
use super::options::PostgresOptions;
use super::tls::Rustls;

/// For a connection, and for everything that a new one is asked first.
pub(super) const CONNECT: Duration = Duration::from_secs(5);
/// A server that takes this long for a transaction or a read has hung, or the network to it is cut.
pub(super) const ANSWER: Duration = Duration::from_secs(15);
/// Connections of readers.
const READERS: usize = 8;
/// Addresses of a name that are tried.
const MAX_ADDRESSES: usize = 4;
/// What every session has, ms. A coordinator that hangs within a transaction holds its locks no longer than that; one that waits
/// for them gives up. `statement_timeout` is below [`ANSWER`].
const SETTINGS: &str = "-c idle_in_transaction_session_timeout=2000 -c lock_timeout=5000 -c statement_timeout=12000 \
                        -c client_min_messages=warning";

/// The way to the server.
#[derive(Clone)]
pub(super) struct Link(Arc<PostgresOptions>);

impl Link {
    pub(super) fn new(options: PostgresOptions) -> Self {
        Self(options.into())
    }

    pub(super) fn options(&self) -> &PostgresOptions {
        &self.0
    }

    /// Connects. Each notification that the server sends wakes `hints`.
    pub(super) async fn connect(&self, hints: Arc<Notify>) -> Result<Client, PostgresError> {
        let connecting = async {
            let config = resolved(&self.0.config).await?;
            let failed = |error: Error| PostgresError::Connect { at: self.0.place(), why: spelled(&error) };
            Ok(self.connect_to(&config, hints).await.map_err(failed)?.0)
        };
        timeout(CONNECT, connecting).await.unwrap_or(Err(PostgresError::Silent(CONNECT)))
    }

    /// The first connection, to a server that is fit for a store.
    pub(super) async fn checked(&self, hints: Arc<Notify>) -> Result<Client, PostgresError> {
        let client = self.connect(hints).await?;
        let checked = async {
            checks::server(&client, self.0.accepts_loss).await?;
            checks::sessions(&client, &self.connect(Arc::default()).await?).await
        };
        timeout(ANSWER, checked).await.unwrap_or(Err(PostgresError::Silent(ANSWER)))?;
        Ok(client)
    }

    /// Takes the database for this session, if it is to be for one store alone.
    pub(super) async fn hold(&self, client: &Client) -> Result<(), PostgresError> {
        if self.0.is_exclusive { checks::alone(client).await } else { Ok(()) }
    }

    async fn connect_to(&self, config: &Config, hints: Arc<Notify>) -> Result<(Client, JoinHandle<()>), Error> {
        match &self.0.tls {
            Some(tls) => drive(config, Rustls(tls.clone()), hints).await,
            None => drive(config, NoTls, hints).await,
        }
    }

    /// Connections for readers, made when they are needed.
    pub(super) fn readers(&self) -> Result<Pool, PostgresError> {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_connect(self.0.config.clone(), self.clone(), recycling);
        Pool::builder(manager)
            .max_size(READERS)
            .runtime(Runtime::Tokio1)
            .timeouts(deadpool_postgres::Timeouts { wait: Some(ANSWER), create: Some(CONNECT), recycle: Some(CONNECT) })
            .build()
            .map_err(|error| PostgresError::Url(error.to_string()))
    }
}

impl Connect for Link {
    fn connect(
        &self, config: &Config,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + '_>> {
        let config = config.clone();
        Box::pin(async move {
            // Where a name does not resolve, connecting says so.
            let config = resolved(&config).await.unwrap_or(config);
            self.connect_to(&config, Arc::default()).await
        })
    }
}

impl From<PoolError> for PostgresError {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => Self::Server(error),
            _ => Self::Silent(CONNECT),
        }
    }
}

async fn drive<T>(config: &Config, tls: T, hints: Arc<Notify>) -> Result<(Client, JoinHandle<()>), Error>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let (client, mut connection) = config.connect(tls).await?;
    let driver = tokio::spawn(async move {
        loop {
            match std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                Some(Ok(AsyncMessage::Notification(_))) => hints.notify_one(),
                Some(Ok(_)) => {}
                // The next user of the connection gets the error.
                Some(Err(_)) | None => break,
            }
        }
    });
    Ok((client, driver))
}

/// The same with addresses in place of names, by our own resolver: the C library's loads plug-ins, which a static program has not.
async fn resolved(config: &Config) -> Result<Config, PostgresError> {
    let mut out = Config::new();
    for (index, host) in config.get_hosts().iter().enumerate() {
        let port = config.get_ports().get(index).or(config.get_ports().first()).copied().unwrap_or(5432);
        match host {
            Host::Unix(path) => drop(out.host_path(path).port(port)),
            Host::Tcp(name) => {
                for address in addresses(name).await? {
                    out.host(name).hostaddr(address).port(port);
                }
            }
        }
    }
    config.get_user().map(|user| out.user(user));
    config.get_dbname().map(|name| out.dbname(name));
    config.get_password().map(|password| out.password(password));
    out.options(match config.get_options() {
        Some(own) => format!("{own} {SETTINGS}"),
        None => SETTINGS.to_owned(),
    });
    out.application_name(config.get_application_name().unwrap_or("landfall-coordinator"))
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .target_session_attrs(config.get_target_session_attrs())
        .connect_timeout(CONNECT)
        .tcp_user_timeout(ANSWER)
        .keepalives_idle(Duration::from_secs(10))
        .keepalives_interval(Duration::from_secs(2))
        .keepalives_retries(3);
    Ok(out)
}

async fn addresses(name: &str) -> Result<Vec<IpAddr>, PostgresError> {
    if let Ok(address) = name.parse() {
        return Ok(vec![address]);
    }
    let unknown = |why: String| PostgresError::Resolve { host: name.to_owned(), why };
    let resolver = TokioResolver::builder_tokio().and_then(|builder| builder.build());
    let found = resolver.map_err(|error| unknown(error.to_string()))?.lookup_ip(name).await;
    Ok(found.map_err(|error| unknown(error.to_string()))?.iter().take(MAX_ADDRESSES).collect())
}
