//! One connection to the server.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use landfall_edge::names;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::Host;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, SimpleQueryMessage, Socket};

use super::checks;
use super::error::{PostgresError, spelled};
use super::options::{PostgresOptions, Risk, UNNAMED};
use super::tls::Rustls;

/// For a connection to the only address there is.
const CONNECT: Duration = Duration::from_secs(5);
/// For a name, and for a connection to one of several addresses.
const EACH: Duration = Duration::from_secs(2);
/// A server that takes this long for a transaction or a read has hung, or the network to it is cut.
pub(super) const ANSWER: Duration = Duration::from_secs(15);
/// What every session has, ms. A coordinator that hangs within a transaction holds its locks no longer than that; one that waits
/// for them gives up. That is no less than [`crate::CONFIRMED_WITHIN`]. `statement_timeout` is below [`ANSWER`]. A host that is gone without a word is found out in 16 s (10 s idle,
/// three probes 2 s apart), and one that takes nothing any more in 15 s: until then the server keeps what it has locked.
/// They are set by a query: PgBouncer refuses most of them, or drops them, where a connection is asked for with them. The first one is
/// none of PostgreSQL's: where it is set already, another connection has the session, or has left it without a reset.
const SETTINGS: &str = "SELECT current_setting('landfall.taken', true); SET landfall.taken = yes;
    SET idle_in_transaction_session_timeout = 4000; SET lock_timeout = 5000; SET statement_timeout = 12000;
    SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3;
    SET tcp_user_timeout = 15000; SET client_min_messages = warning";

/// With a limit: a server that is silent is as good as none.
pub(super) async fn within<T>(work: impl Future<Output = Result<T, PostgresError>>) -> Result<T, PostgresError> {
    timeout(ANSWER, work).await.unwrap_or(Err(PostgresError::Silent(ANSWER)))
}

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
        Ok(self.driven(hints).await?.0)
    }

    /// The same, with the task that drives the connection.
    ///
    /// Each address in turn has a limit of its own for everything up to a server that takes writes: one that is silent, or a name
    /// without an address, keeps none from the next.
    pub(super) async fn driven(&self, hints: Arc<Notify>) -> Result<(Client, JoinHandle<()>), PostgresError> {
        let config = &self.0.config;
        let mut failures = Vec::new();
        for (index, host) in config.get_hosts().iter().enumerate() {
            let port = config.get_ports().get(index).or(config.get_ports().first()).copied().unwrap_or(5432);
            let ways = match host {
                Host::Unix(_) => vec![None],
                Host::Tcp(name) => match addresses(name).await {
                    Ok(found) => found.into_iter().map(Some).collect(),
                    Err(error) => {
                        failures.push(error);
                        continue;
                    }
                },
            };
            let limit = if config.get_hosts().len() == 1 && ways.len() == 1 { CONNECT } else { EACH };
            for address in ways {
                let way = way(config, host, address, port);
                let why = match timeout(limit, self.connect_to(&way, hints.clone())).await {
                    Ok(Ok(connected)) => return Ok(connected),
                    Ok(Err(PostgresError::Server(error))) => spelled(&error),
                    Ok(Err(other)) => return Err(other),
                    Err(_) => format!("no answer within {} s", limit.as_secs()),
                };
                let name = match host {
                    Host::Tcp(name) => format!("{name}:{port}"),
                    Host::Unix(path) => path.display().to_string(),
                };
                failures.push(PostgresError::Connect { at: name, why });
            }
        }
        match (failures.pop(), failures.len()) {
            (Some(only), 0) => Err(only),
            (last, _) => {
                let why = failures.iter().chain(&last).map(ToString::to_string).collect::<Vec<_>>().join("; ");
                Err(PostgresError::Connect { at: self.0.place(), why })
            }
        }
    }

    /// The first connection, to a server that is fit for a store.
    pub(super) async fn checked(&self, hints: Arc<Notify>) -> Result<Client, PostgresError> {
        let (client, other) = (self.connect(hints).await?, self.connect(Arc::default()).await?);
        let checked = async {
            checks::server(&client, self.0.accepts(Risk::Settings)).await?;
            checks::sessions(&client, &other).await
        };
        within(checked).await?;
        Ok(client)
    }

    async fn connect_to(&self, config: &Config, hints: Arc<Notify>) -> Result<(Client, JoinHandle<()>), PostgresError> {
        match &self.0.tls {
            Some(tls) => drive(config, Rustls(tls.clone()), hints).await,
            None => drive(config, NoTls, hints).await,
        }
    }
}

async fn drive<T>(config: &Config, tls: T, hints: Arc<Notify>) -> Result<(Client, JoinHandle<()>), PostgresError>
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
    let is_taken = |answer: &SimpleQueryMessage| match answer {
        SimpleQueryMessage::Row(row) => row.get(0).is_some_and(|value| !value.is_empty()),
        _ => false,
    };
    if client.simple_query(SETTINGS).await?.iter().any(is_taken) {
        // The pooler gives the session to other programs too.
        client.batch_execute("RESET ALL").await?;
        return Err(PostgresError::Pooled { why: "another connection has the session".to_owned() });
    }
    Ok((client, driver))
}

/// One way to a server: `config` with a single host, and its address in place of its name.
fn way(config: &Config, host: &Host, address: Option<IpAddr>, port: u16) -> Config {
    let mut out = Config::new();
    match host {
        Host::Unix(path) => out.host_path(path),
        Host::Tcp(name) => out.host(name),
    };
    address.map(|address| out.hostaddr(address));
    out.port(port);
    config.get_user().map(|user| out.user(user));
    config.get_dbname().map(|name| out.dbname(name));
    config.get_password().map(|password| out.password(password));
    config.get_options().map(|options| out.options(options));
    out.application_name(config.get_application_name().unwrap_or(UNNAMED))
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .target_session_attrs(config.get_target_session_attrs())
        .connect_timeout(CONNECT)
        .tcp_user_timeout(ANSWER)
        .keepalives_idle(Duration::from_secs(10))
        .keepalives_interval(Duration::from_secs(2))
        .keepalives_retries(3);
    out
}

async fn addresses(name: &str) -> Result<Vec<IpAddr>, PostgresError> {
    let found = names::addresses(name, EACH).await;
    found.map_err(|why| PostgresError::Resolve { host: name.to_owned(), why })
}
