//! Accepting TLS connections.
//!
//! Handshakes run beside each other, bounded in number and time, so that neither a slow nor a broken client keeps others
//! waiting, and none ends the port. A failed one is logged with whose it was and why.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{ConnectInfo, Request, connect_info::Connected},
    middleware::map_request,
    serve::{IncomingStream, Listener},
};
use nix::sys::socket::{setsockopt, sockopt};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::Peer;
use crate::pki;

/// Handshakes under way at once; more wait in the kernel's backlog.
const MAX_HANDSHAKES: usize = 1024;
/// One handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// After a failed one, what is still read, and for how long, so that the client gets the alert.
const LINGER_BYTES: u64 = 64 * 1024;
const LINGER_LIMIT: Duration = Duration::from_secs(1);
/// Finished handshakes that the server has not yet taken.
const READY: usize = 64;
/// After an error of accept itself (out of file descriptors), so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Who is on the other end, and from where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// Who.
    pub peer: Peer,
    /// From where.
    pub remote: SocketAddr,
}

type Ready = (TlsStream<TcpStream>, ConnectionInfo);

/// The bound TLS port. Dropping it stops accepting.
#[derive(Debug)]
pub struct TlsListener {
    ready: mpsc::Receiver<Ready>,
    local: SocketAddr,
    // Dropped with the listener, which aborts the task in it.
    _accepting: JoinSet<()>,
}

impl TlsListener {
    /// Binds the port and begins to accept, on the present tokio runtime.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn bind(address: SocketAddr, config: Arc<ServerConfig>) -> io::Result<Self> {
        let tcp = TcpListener::bind(address).await?;
        let local = tcp.local_addr()?;
        let (out, ready) = mpsc::channel(READY);
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(tcp, TlsAcceptor::from(config), out));
        Ok(Self { ready, local, _accepting: accepting })
    }
    /// The bound address, the port filled in.
    pub const fn address(&self) -> SocketAddr {
        self.local
    }
}

async fn accept(tcp: TcpListener, acceptor: TlsAcceptor, out: mpsc::Sender<Ready>) {
    let slots = Arc::new(Semaphore::new(MAX_HANDSHAKES));
    let mut handshakes = JoinSet::new();
    loop {
        // The semaphore is never closed.
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        // Reap what has finished, so that the set stays as small as the slots are few.
        while handshakes.try_join_next().is_some() {}
        let (stream, remote) = match tcp.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(service = "tls", %error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (acceptor, out) = (acceptor.clone(), out.clone());
        handshakes.spawn(async move {
            match timeout(HANDSHAKE_LIMIT, handshake(&acceptor, stream)).await {
                // A closed channel means that the server stops: the connection goes with it.
                Ok(Ok((stream, peer))) => drop(out.send((stream, ConnectionInfo { peer, remote })).await),
                // Agents and health checks look whether anybody listens, and hang up.
                Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    tracing::debug!(service = "tls", %remote, %error, "hung up before the handshake");
                }
                Ok(Err(error)) => tracing::warn!(service = "tls", %remote, %error, "TLS handshake failed"),
                Err(_) => tracing::warn!(service = "tls", %remote, error = "timed out", "TLS handshake failed"),
            }
            drop(slot);
        });
    }
}

async fn handshake(acceptor: &TlsAcceptor, stream: TcpStream) -> io::Result<(TlsStream<TcpStream>, Peer)> {
    stream.set_nodelay(true)?;
    // A machine whose power went never says goodbye: the kernel notices within about a minute.
    setsockopt(&stream, sockopt::KeepAlive, &true)?;
    setsockopt(&stream, sockopt::TcpKeepIdle, &30)?;
    setsockopt(&stream, sockopt::TcpKeepInterval, &10)?;
    setsockopt(&stream, sockopt::TcpKeepCount, &3)?;
    let stream = match acceptor.accept(stream).into_fallible().await {
        Ok(stream) => stream,
        Err((error, stream)) => {
            linger(stream).await;
            return Err(error);
        }
    };
    let peer = match stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()) {
        None => Peer::Anonymous,
        Some(leaf) => pki::peer_of(leaf).map_err(|error| io::Error::new(io::ErrorKind::PermissionDenied, error))?,
    };
    Ok((stream, peer))
}

/// Reads away what the client has already sent, for a bounded time. Closing with unread data would reset the connection
/// and destroy the alert that tells the client why it is refused.
async fn linger(mut stream: TcpStream) {
    let drained = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(LINGER_BYTES), &mut tokio::io::sink()).await
    };
    // Whether the client was still there to read the alert changes nothing here.
    drop(timeout(LINGER_LIMIT, drained).await);
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = ConnectionInfo;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(ready) => ready,
            // The accepting task ends only with this listener; were it to panic, the port would be silent, not wrong.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(ConnectionInfo { peer: Peer::Anonymous, remote: self.local })
    }
}

impl Connected<IncomingStream<'_, TlsListener>> for ConnectionInfo {
    fn connect_info(stream: IncomingStream<'_, TlsListener>) -> Self {
        stream.remote_addr().clone()
    }
}

/// Makes `router` servable on a [`TlsListener`], with [`Peer`] and `SocketAddr` in every request's extensions, whatever
/// a route is written with (axum's `Extension`, or `request.extensions()` in a gRPC service).
pub fn service(router: Router) -> axum::extract::connect_info::IntoMakeServiceWithConnectInfo<Router, ConnectionInfo> {
    router.layer(map_request(name_peer)).into_make_service_with_connect_info()
}

async fn name_peer(ConnectInfo(info): ConnectInfo<ConnectionInfo>, mut request: Request) -> Request {
    request.extensions_mut().insert(info.peer);
    request.extensions_mut().insert(info.remote);
    request
}
