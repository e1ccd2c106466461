//! Where the database is, and how it is reached.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_rustls::rustls::ClientConfig;

use super::error::PostgresError;
use super::tls;

/// What a store without a name is called.
pub(super) const UNNAMED: &str = "landfall-coordinator";

/// What a coordinator does not start with, unless it is accepted by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Risk {
    /// The server's settings lose acknowledged writes, at a crash or at a fail-over.
    Settings,
    /// Servers copy the database, and no commit waits for any of them: a fail-over to one loses acknowledged writes.
    Replicas,
    /// The server's clock and this host's are a minute apart or more.
    Clock,
}

/// How a PostgreSQL store is opened.
#[derive(Clone)]
pub struct PostgresOptions {
    pub(super) config: Config,
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) key_dir: PathBuf,
    pub(super) accepts: Vec<Risk>,
}

impl PostgresOptions {
    /// The database at `url` (`postgresql://user@host/database`, or `?host=/directory` of a Unix socket). The key of its secrets
    /// is in `key_dir`: it is the same file on every host.
    ///
    /// # Errors
    /// [`PostgresError::Url`], [`PostgresError::PasswordInUrl`].
    pub fn new(url: &str, key_dir: &Path) -> Result<Self, PostgresError> {
        let said = |error: tokio_postgres::Error| PostgresError::Url(super::error::spelled(&error));
        let mut config: Config = url.parse().map_err(said)?;
        if config.get_password().is_some() {
            return Err(PostgresError::PasswordInUrl);
        }
        let (hosts, is_named) =
            (config.get_hosts().len(), config.get_dbname().is_some() && config.get_user().is_some());
        if hosts == 0 || !is_named {
            return Err(PostgresError::Url("it lacks the user, the host or the database".to_owned()));
        }
        let sockets = config.get_hosts().iter().filter(|host| matches!(host, Host::Unix(_))).count();
        if sockets != 0 && sockets != hosts {
            return Err(PostgresError::Url("it has both sockets and hosts of a network".to_owned()));
        }
        // Of several hosts, the one that takes writes: after a fail-over it is another one.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        Ok(Self { config, tls: None, key_dir: key_dir.to_owned(), accepts: Vec::new() })
    }

    /// With the password in the first line of this file.
    ///
    /// # Errors
    /// [`PostgresError::File`]: not readable, readable by others, or empty.
    pub fn with_password_file(mut self, path: &Path) -> Result<Self, PostgresError> {
        use std::os::unix::fs::MetadataExt as _;
        let unusable = |why: String| PostgresError::File { path: path.to_owned(), why };
        let read = std::fs::metadata(path).and_then(|file| Ok((file.mode(), std::fs::read_to_string(path)?)));
        let (mode, text) = read.map_err(|error| unusable(error.to_string()))?;
        if mode & 0o077 != 0 {
            return Err(unusable("other users may read it; set its mode to 0600".to_owned()));
        }
        let password = text.lines().next().unwrap_or_default();
        if password.is_empty() {
            return Err(unusable("its first line, the password, is empty".to_owned()));
        }
        self.config.password(password);
        Ok(self)
    }

    /// Over TLS only, to a server whose certificate is of the CA in this file; with a certificate of one's own (its chain and its
    /// key) where the server asks for one. All in PEM.
    ///
    /// # Errors
    /// [`PostgresError::File`].
    pub fn with_tls(mut self, ca: &Path, identity: Option<(&Path, &Path)>) -> Result<Self, PostgresError> {
        self.tls = Some(tls::config(ca, identity)?);
        self.config.ssl_mode(SslMode::Require);
        Ok(self)
    }

    /// Opens also where there are these.
    #[must_use]
    pub fn accepting(self, risks: &[Risk]) -> Self {
        Self { accepts: risks.to_vec(), ..self }
    }

    /// Opens a store that was in use already, whatever only a start refuses: its coordinator begins anew, or a person has put it back or
    /// moves it away.
    #[must_use]
    pub fn in_use(mut self) -> Self {
        self.accepts.extend([Risk::Replicas, Risk::Clock]);
        self
    }

    /// Whether this is accepted.
    pub(super) fn accepts(&self, risk: Risk) -> bool {
        self.accepts.contains(&risk)
    }

    /// What the server and other coordinators call this one: ASCII, of which PostgreSQL keeps 63 characters.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.config.application_name(name);
        self
    }

    /// What the store is called by others, if it has a name.
    pub(super) fn name(&self) -> Option<&str> {
        self.config.get_application_name()
    }

    /// The hosts, or the directory of the socket.
    pub(super) fn place(&self) -> String {
        let named = |host: &Host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        };
        self.config.get_hosts().iter().map(named).collect::<Vec<_>>().join(", ")
    }

    /// Refuses to send over a network what others could read, unless the URL says so.
    pub(super) fn check_encryption(&self) -> Result<(), PostgresError> {
        if self.tls.is_some() || self.config.get_ssl_mode() == SslMode::Disable {
            return Ok(());
        }
        for host in self.config.get_hosts() {
            if let Host::Tcp(host) = host
                && host != "localhost"
                && !host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            {
                return Err(PostgresError::Plain { host: host.clone() });
            }
        }
        Ok(())
    }
}
