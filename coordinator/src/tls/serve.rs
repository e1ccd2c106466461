//! One connection of the TLS port, from its handshake to its end: what it may hold, and how long it may take.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{Router, body::Body, http::Request};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
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
/// A session, its telemetry, and what is fetched beside them; an operator's watches.
const MEMBER: Windows = Windows { streams: 64, stream: 64 << 10, connection: 256 << 10, send: 128 << 10 };

/// Serves one connection until it ends, falls idle, gives way to another, or the port stops.
pub(super) async fn connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    info: ConnectionInfo,
    seat: &Arc<Seat>,
    router: Router,
    stop: CancellationToken,
) {
    let anonymous = info.peer == Peer::Anonymous;
    let remote = info.remote;
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
    let builder = builder(if anonymous { &ANONYMOUS } else { &MEMBER });
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
