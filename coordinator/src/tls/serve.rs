//! One connection of the TLS port, from its handshake to its end: what it may hold, and how long it may take.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{Router, body::Body, http::Request};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::{ConnectionInfo, Peer, arriving};
use landfall_edge::gate::{Held, Seat};

/// From the handshake to the end of the first request's headers.
pub const FIRST_REQUEST: Duration = Duration::from_secs(10);
/// Between two requests.
pub const BETWEEN_REQUESTS: Duration = Duration::from_secs(60);
/// HTTP/1: the headers of one request, which are at most so many bytes in all. HTTP/2 has the same for its header lists.
const HEADER_LIMIT: Duration = Duration::from_secs(10);
const HEADER_BYTES: usize = 32 * 1024;
/// HTTP/2: a peer that vanished without a word is noticed within the sum of both.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_LIMIT: Duration = Duration::from_secs(20);
/// Requests and answers under way may take so long to end after the stop, or after the connection was ordered to end.
const DRAIN: Duration = Duration::from_secs(5);

/// What HTTP/2 lets one connection hold, by whether it showed a certificate.
struct Windows {
    /// Requests at once.
    streams: u32,
    /// Bytes of one request's body, and of all of them, that may wait to be read.
    stream: u32,
    connection: u32,
    /// Bytes of one answer that may wait to be sent.
    send: usize,
}

/// A client without a certificate: one small request at a time is what there is to say.
const ANONYMOUS: Windows = Windows { streams: 8, stream: 16 << 10, connection: 64 << 10, send: 64 << 10 };
/// An operator's watches and requests.
const MEMBER: Windows = Windows { streams: 64, stream: 64 << 10, connection: 256 << 10, send: 128 << 10 };
/// A session, its telemetry, a renewal, and what is fetched beside them.
const MACHINE: Windows = Windows { streams: 8, ..MEMBER };

impl Windows {
    const fn of(peer: &Peer) -> &'static Self {
        match peer {
            Peer::Anonymous => &ANONYMOUS,
            Peer::Machine(_) => &MACHINE,
            Peer::Operator(_) | Peer::Local { .. } => &MEMBER,
        }
    }
}

/// Serves one connection until it ends, falls idle, gives way to another, or the port stops.
pub(super) async fn connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S, info: ConnectionInfo, seat: &Arc<Seat>, router: Router, stop: CancellationToken,
) {
    let anonymous = info.peer == Peer::Anonymous;
    let (remote, windows) = (info.remote, Windows::of(&info.peer));
    let requests = Arc::clone(seat);
    let service = service_fn(move |request: Request<Incoming>| {
        let busy = requests.begin();
        let mut request = arriving::bounded(request, anonymous);
        request.extensions_mut().insert(info.peer.clone());
        request.extensions_mut().insert(info.remote);
        let router = router.clone();
        async move {
            let response = router.oneshot(request).await.unwrap_or_else(|never| match never {});
            Ok::<_, Infallible>(response.map(|body: Body| Held::answer(body, busy)))
        }
    });
    let builder = builder(windows);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        // Its place is already taken.
        () = seat.wanted() => return,
        () = async { tokio::select! {
            () = stop.cancelled() => {}
            () = seat.idle(FIRST_REQUEST, BETWEEN_REQUESTS) => {}
        } } => {
            connection.as_mut().graceful_shutdown();
            match timeout(DRAIN, connection).await {
                Ok(ended) => ended,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = ended {
        // A peer that disconnects, or speaks another protocol: not an error of the coordinator.
        tracing::debug!(service = "tls", %remote, %error, "a connection broke");
    }
}

fn builder(windows: &Windows) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_LIMIT).max_buf_size(HEADER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_LIMIT)
        .max_concurrent_streams(windows.streams)
        .initial_stream_window_size(windows.stream)
        .initial_connection_window_size(windows.connection)
        .max_send_buf_size(windows.send)
        // Cannot truncate: it is a constant of a few thousand.
        .max_header_list_size(HEADER_BYTES as u32);
    builder
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use jiff::Timestamp;
    use landfall_api::Role;
    use landfall_edge::gate::{Admission, Gate, Limits};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use uuid::Uuid;

    use super::*;
    use crate::tls::{MachineCert, OperatorCert};

    /// What a server's first frame says of that setting.
    async fn setting(client: &mut DuplexStream, wanted: u16) -> u32 {
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let mut head = [0; 9];
        client.read_exact(&mut head).await.unwrap();
        let mut settings = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
        client.read_exact(&mut settings).await.unwrap();
        let value = |setting: &[u8]| u32::from_be_bytes(setting[2..].try_into().unwrap());
        let of = |setting: &&[u8]| u16::from_be_bytes([setting[0], setting[1]]) == wanted;
        settings.chunks(6).find(of).map(value).unwrap()
    }

    #[tokio::test]
    async fn a_connection_has_as_many_streams_as_its_peer_needs() {
        let machine = Peer::Machine(MachineCert {
            name: "m1".into(),
            uid: Uuid::from_u128(1),
            key_fingerprint: String::new(),
            serial_hex: String::new(),
            not_after: Timestamp::MAX,
        });
        let (made, not_after) = (Timestamp::MIN, Timestamp::MAX);
        let operator =
            Peer::Operator(OperatorCert { name: "ann".into(), role: Role::Admin, made, not_after, stands_in: false });
        for (peer, streams) in [(Peer::Anonymous, 8), (machine, 8), (operator, 64)] {
            let (mut client, server) = tokio::io::duplex(4096);
            let info = ConnectionInfo { peer, remote: SocketAddr::from(([10, 77, 0, 9], 1)) };
            let gate = Gate::new(Limits { total: 1, waiting: FIRST_REQUEST, stalled: FIRST_REQUEST });
            let Admission::Admitted(place) = gate.try_admit(&0, 1) else { panic!("it is free") };
            let stop = CancellationToken::new();
            let served = tokio::spawn(async move { connection(server, info, place.seat(), Router::new(), stop).await });
            // SETTINGS_MAX_CONCURRENT_STREAMS.
            assert_eq!(setting(&mut client, 3).await, streams);
            drop(client);
            served.await.unwrap();
        }
    }
}
