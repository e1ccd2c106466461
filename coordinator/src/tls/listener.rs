//! The TLS port: which connections it admits, and for how long.
//!
//! | bound | of whom | number |
//! |---|---|---|
//! | connections without a certificate, and handshakes | all | [`ANONYMOUS`] |
//! | | one address (this host itself: no limit of its own) | [`ANONYMOUS_EACH`] |
//! | connections with a certificate | all | [`MEMBERS`], fewer where the limit of open files is low |
//! | | one operator | [`MEMBERS_EACH`] |
//! | | one machine | [`MACHINE_EACH`] |
//! | a handshake | everybody | [`HANDSHAKE_LIMIT`] |
//! | from the handshake to the end of the first request's headers | everybody | [`super::serve`] |
//!
//! When all places are taken, a connection that has been quiet for [`QUIET`] gives way, first one of the address that has the
//! most (see [`landfall_edge::gate`]). So a host with thousands of silent connections delays others only for seconds,
//! and takes a bounded amount of memory; a host that keeps all of them busy from a few addresses loses its oldest ones
//! to others.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use nix::sys::socket::{setsockopt, sockopt};
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{ConnectionInfo, Peer, serve};
use crate::pki;
use landfall_edge::gate::{Admission, Gate, Limiter, Limits, Place, Watched, each_of, open_files, origin};

/// Handshakes under way, and connections of those who showed no certificate: enrolments, phone-homes, tokens.
pub const ANONYMOUS: usize = 1024;
/// Of them, those of one address. A whole site may come through one.
pub const ANONYMOUS_EACH: usize = 768;
/// Connections of machines and operators.
pub const MEMBERS: usize = 12 * 1024;
/// Of them, those of one operator.
pub const MEMBERS_EACH: usize = 64;
/// And those of one machine: it has one, and what it left behind when its network failed is noticed within a minute. Each of its
/// requests may hold a message of 1 MiB that never ends, so what one machine holds is this, times its streams
/// ([`super::serve`]).
pub const MACHINE_EACH: usize = 8;
/// A connection that is quiet for so long without a request gives way when all places are taken.
pub const QUIET: Duration = Duration::from_secs(2);
/// One with a request under way, likewise: a session is heard every few seconds, a watch four times a minute.
const STALLED: Duration = Duration::from_secs(60);
/// One handshake.
pub const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// After a failed one, what is still read, and for how long, so that the client gets the alert.
const LINGER_BYTES: u64 = 64 * 1024;
const LINGER_LIMIT: Duration = Duration::from_secs(1);
/// Connections that the kernel holds for us; it takes no more than `net.core.somaxconn`.
const BACKLOG: u32 = 4096;
/// After an error of accept itself (out of file descriptors), so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Open files that everything else may need: the plain HTTP port, transfers, the store, the image files.
const OTHER_FILES: usize = 3072;
/// Lines a second about clients that are turned away or fail: anybody can cause them.
static LINES: Limiter = Limiter::a_second(10);

/// Whose connections are counted together once a certificate was shown.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Member {
    Machine(Uuid),
    Operator(String),
}

impl Member {
    fn of(peer: &Peer) -> Option<Self> {
        match peer {
            Peer::Machine(machine) => Some(Self::Machine(machine.uid)),
            Peer::Operator(operator) => Some(Self::Operator(operator.name.clone())),
            Peer::Anonymous | Peer::Local { .. } => None,
        }
    }

    const fn most(&self) -> usize {
        match self {
            Self::Machine(_) => MACHINE_EACH,
            Self::Operator(_) => MEMBERS_EACH,
        }
    }
}

/// The bound TLS port.
pub struct TlsListener {
    tcp: TcpListener,
    local: SocketAddr,
    door: Door,
}

#[derive(Clone)]
struct Door {
    acceptor: TlsAcceptor,
    anonymous: Gate<IpAddr>,
    members: Gate<Member>,
}

type Stream = TlsStream<Watched<TcpStream>>;

impl TlsListener {
    /// Binds the port; [`TlsListener::serve`] accepts.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn bind(address: SocketAddr, config: Arc<ServerConfig>) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // A restart must not wait for the old connections' ends.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let tcp = socket.listen(BACKLOG)?;
        let local = tcp.local_addr()?;
        let room = open_files::limit().saturating_sub(ANONYMOUS + OTHER_FILES).clamp(MEMBERS_EACH, MEMBERS);
        let gate = |total| Limits { total, waiting: QUIET, stalled: STALLED };
        let (anonymous, members) = (Gate::new(gate(ANONYMOUS)), Gate::new(gate(room)));
        Ok(Self { tcp, local, door: Door { acceptor: TlsAcceptor::from(config), anonymous, members } })
    }

    /// The bound address, the port filled in.
    pub const fn address(&self) -> SocketAddr {
        self.local
    }

    /// Serves `router` with [`Peer`] and `SocketAddr` in every request's extensions, whatever a route is written with (axum's
    /// `Extension`, or `request.extensions()` in a gRPC service). When stopped, requests under way may end. Dropping the
    /// future ends every connection.
    ///
    /// # Errors
    /// None at present: what fails is one connection's own.
    pub async fn serve(self, router: Router, stop: CancellationToken) -> io::Result<()> {
        // Ended with this future, whatever ends it.
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                Some(_ended) = connections.join_next() => continue,
                accepted = self.accept() => accepted,
            };
            let Some((stream, remote, place)) = accepted else { continue };
            let (door, router, stop) = (self.door.clone(), router.clone(), stop.clone());
            connections.spawn(async move { door.connection(stream, remote, place, router, stop).await });
        }
        drop(self.tcp);
        while connections.join_next().await.is_some() {}
        Ok(())
    }

    async fn accept(&self) -> Option<(TcpStream, SocketAddr, Place<IpAddr>)> {
        let (stream, remote) = match self.tcp.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(service = "tls", %error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                return None;
            }
        };
        let address = remote.ip();
        match self.door.anonymous.admit(&origin(address), each_of(address, ANONYMOUS_EACH, ANONYMOUS)).await {
            Some(place) => Some((stream, remote, place)),
            None => {
                turned_away(remote, "its address has too many connections");
                None
            }
        }
    }
}

fn turned_away(remote: SocketAddr, why: &str) {
    if let Some(left_out) = LINES.step() {
        tracing::warn!(service = "tls", %remote, why, left_out, "a connection was closed");
    }
}

impl Door {
    async fn connection(
        self, tcp: TcpStream, remote: SocketAddr, place: Place<IpAddr>, router: Router, stop: CancellationToken,
    ) {
        let seat = Arc::clone(place.seat());
        let handshake = handshake(&self.acceptor, Watched::new(tcp, Arc::clone(&seat)));
        let (mut stream, peer) = tokio::select! {
            () = stop.cancelled() => return,
            () = seat.wanted() => return turned_away(remote, "it was silent, and another connection needed its place"),
            done = timeout(HANDSHAKE_LIMIT, handshake) => match done {
                Ok(Ok(done)) => done,
                Ok(Err(error)) => return failed(remote, &error),
                Err(_) => return failed(remote, &io::ErrorKind::TimedOut.into()),
            },
        };
        let member = Member::of(&peer);
        let info = ConnectionInfo { peer, remote };
        let Some(member) = member else {
            return serve::connection(stream, info, &seat, router, stop).await;
        };
        match self.members.try_admit(&member, member.most()) {
            Admission::Admitted(own) => {
                stream.get_mut().0.sit(Arc::clone(own.seat()));
                drop(place);
                serve::connection(stream, info, own.seat(), router, stop).await;
            }
            Admission::TooMany => turned_away(remote, "its certificate has too many connections"),
            Admission::Full => turned_away(remote, "every connection for certificates is in use"),
        }
    }
}

fn failed(remote: SocketAddr, error: &io::Error) {
    // Agents and health checks look whether anybody listens, and hang up.
    if error.kind() == io::ErrorKind::UnexpectedEof {
        tracing::debug!(service = "tls", %remote, %error, "hung up before the handshake");
    } else if let Some(left_out) = LINES.step() {
        tracing::warn!(service = "tls", %remote, %error, left_out, "TLS handshake failed");
    }
}

async fn handshake(acceptor: &TlsAcceptor, stream: Watched<TcpStream>) -> io::Result<(Stream, Peer)> {
    let tcp = stream.get_ref();
    tcp.set_nodelay(true)?;
    // A machine whose power went never says goodbye: the kernel notices within about a minute.
    setsockopt(tcp, sockopt::KeepAlive, &true)?;
    setsockopt(tcp, sockopt::TcpKeepIdle, &30)?;
    setsockopt(tcp, sockopt::TcpKeepInterval, &10)?;
    setsockopt(tcp, sockopt::TcpKeepCount, &3)?;
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
async fn linger(mut stream: Watched<TcpStream>) {
    let drained = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(LINGER_BYTES), &mut tokio::io::sink()).await
    };
    // Whether the client was still there to read the alert changes nothing here.
    drop(timeout(LINGER_LIMIT, drained).await);
}
