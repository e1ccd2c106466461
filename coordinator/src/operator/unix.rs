//! The Unix socket: the operators' API for root and the coordinator's own user on the same host.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::Next;
use axum::response::Response;
use axum::serve::IncomingStream;
use axum::{Router, middleware};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

use crate::pki::is_name;
use crate::tls::Peer;

/// How long open requests may go on after shutdown was asked for. Watches never end by themselves.
const DRAIN: Duration = Duration::from_secs(2);

/// Why the socket could not be made.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A process answers there.
    #[error("another coordinator serves {0}; stop it first, or give this one its own data_dir")]
    InUse(PathBuf),
    /// The system refused.
    #[error("cannot listen on {path}")]
    Io { path: PathBuf, source: io::Error },
}

/// A bound socket.
pub struct LocalListener {
    path: PathBuf,
    listener: UnixListener,
}

impl LocalListener {
    /// Binds `path`, mode 0600, in place of what a coordinator that died left there.
    ///
    /// # Errors
    /// [`BindError::InUse`] if another coordinator answers there, else [`BindError::Io`].
    pub async fn bind(path: &Path) -> Result<Self, BindError> {
        if UnixStream::connect(path).await.is_ok() {
            return Err(BindError::InUse(path.to_owned()));
        }
        // Made under another name and then moved: at no instant can anybody else connect.
        let unready = path.with_extension("sock.new");
        let made = || -> io::Result<UnixListener> {
            match fs::remove_file(&unready) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = UnixListener::bind(&unready)?;
            fs::set_permissions(&unready, fs::Permissions::from_mode(0o600))?;
            fs::rename(&unready, path)?;
            Ok(listener)
        };
        let listener = made().map_err(|source| BindError::Io { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), listener })
    }

    /// Serves `router` until `shutdown`, then lets open requests end for a moment; every request carries
    /// [`Peer::Local`] with the caller's user.
    ///
    /// # Errors
    /// Those of accepting.
    pub async fn serve(self, router: Router, shutdown: CancellationToken) -> io::Result<()> {
        let app = router.layer(middleware::from_fn(introduce)).into_make_service_with_connect_info::<Caller>();
        let serving = axum::serve(self.listener, app).with_graceful_shutdown(shutdown.clone().cancelled_owned());
        let outcome = tokio::select! {
            outcome = async { serving.await } => outcome,
            () = async { shutdown.cancelled().await; tokio::time::sleep(DRAIN).await } => Ok(()),
        };
        // Left behind it would only be replaced at the next start.
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "the socket was gone already");
        }
        outcome
    }
}

#[derive(Clone)]
struct Caller(Peer);

impl Connected<IncomingStream<'_, UnixListener>> for Caller {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        Self(match stream.io().peer_cred() {
            Ok(credentials) => Peer::Local { uid: credentials.uid(), user: user_name(credentials.uid()) },
            Err(_) => Peer::Anonymous,
        })
    }
}

async fn introduce(ConnectInfo(Caller(peer)): ConnectInfo<Caller>, mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert(peer);
    next.run(request).await
}

/// The user's name by /etc/passwd, read here because the static binary cannot ask NSS; else `uid-1000`. The latter also where the name
/// cannot stand in a certificate, by which other coordinators know who asks.
fn user_name(uid: u32) -> String {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    named(&passwd, uid).filter(|name| is_name(name)).unwrap_or_else(|| format!("uid-{uid}"))
}

fn named(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_named_by_passwd_or_by_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbroken\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(named(passwd, 1000).as_deref(), Some("ann"));
        assert_eq!(named(passwd, 7), None);
    }

    #[tokio::test]
    async fn only_a_stale_socket_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let live = LocalListener::bind(&path).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(LocalListener::bind(&path).await, Err(BindError::InUse(_))));
        drop(live);
    }
}
