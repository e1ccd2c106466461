//! The listening side: a bounded number of connections, each of which must move.
//!
//! | bound | number |
//! |---|---|
//! | connections | [`MAX_CONNECTIONS`] |
//! | of one address (this host itself: no limit of its own) | [`CONNECTIONS_EACH`] |
//! | a request's headers | [`HEADER_LIMIT`], [`HEADER_BYTES`] |
//!
//! When all places are taken, a connection that has been quiet for [`QUIET`] without a request gives way, or a download
//! without a read for [`STALLED`] (it resumes by itself), first one of the address with the most connections.

use std::{convert::Infallible, io, net::IpAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::socket::{setsockopt, sockopt::TcpUserTimeout};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

use super::Client;
use landfall_edge::gate::{Gate, Held, Limiter, Limits, Place, Watched, each_of, origin};

/// Connections at one time; more wait in the kernel's queue.
pub const MAX_CONNECTIONS: usize = 1024;
/// Of them, those of one address.
pub const CONNECTIONS_EACH: usize = 256;
/// A connection that is quiet for so long without a request gives way when all places are taken.
pub const QUIET: Duration = Duration::from_secs(2);
/// A download of which nothing was taken for so long, likewise.
pub const STALLED: Duration = Duration::from_secs(60);
/// From the connection, or from the answer before, to the end of a request's headers.
pub const HEADER_LIMIT: Duration = Duration::from_secs(30);
/// All headers of one request.
pub const HEADER_BYTES: usize = 32 * 1024;
/// How long a peer may leave what was sent unacknowledged, or its window shut, before the connection counts as dead. A slow
/// disk may well stop reading for minutes.
const STALL_LIMIT: Duration = Duration::from_secs(600);
/// How long answers under way may take to end after the stop of the service. A download resumes by itself.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);
/// Log lines per second about refused clients: any host can cause them.
static LINES: Limiter = Limiter::a_second(10);

/// Serves the routes until cancelled.
///
/// # Errors
/// When accepting fails for another reason than a broken connection or a shortage that passes.
pub async fn serve(listener: TcpListener, router: Router, cancel: CancellationToken) -> io::Result<()> {
    let gate = Gate::new(Limits { total: MAX_CONNECTIONS, waiting: QUIET, stalled: STALLED });
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = cancel.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (from, each) = (origin(peer.ip()), each_of(peer.ip(), CONNECTIONS_EACH, MAX_CONNECTIONS));
                let place = tokio::select! {
                    () = cancel.cancelled() => break,
                    place = gate.admit(&from, each) => place,
                };
                let Some(place) = place else {
                    if let Some(left_out) = LINES.step() {
                        let why = "its address has too many connections";
                        tracing::warn!(service = "http", client = %peer, why, left_out, "a connection was closed");
                    }
                    continue;
                };
                let (router, cancel) = (router.clone(), cancel.clone());
                connections.spawn(connection(stream, Client(peer), place, router, cancel));
            }
            Err(error) => match error.kind() {
                io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted => {}
                // Out of file descriptors or memory, mostly: it passes when connections end.
                _ if matches!(error.raw_os_error(), Some(code) if SHORTAGES.contains(&code)) => {
                    tracing::error!(service = "http", %error, "cannot accept connections at the moment");
                    sleep(Duration::from_secs(1)).await;
                }
                _ => return Err(error),
            },
        }
    }
    connections.close();
    if timeout(DRAIN_LIMIT, connections.wait()).await.is_err() {
        tracing::info!(service = "http", open = connections.len(), "connections are cut");
    }
    Ok(())
}

const SHORTAGES: [i32; 4] = [nix::libc::EMFILE, nix::libc::ENFILE, nix::libc::ENOBUFS, nix::libc::ENOMEM];

async fn connection(
    stream: TcpStream, client: Client, place: Place<IpAddr>, router: Router, cancel: CancellationToken,
) {
    let seat = Arc::clone(place.seat());
    let milliseconds = u32::try_from(STALL_LIMIT.as_millis()).unwrap_or(u32::MAX);
    if let Err(error) = setsockopt(&stream, TcpUserTimeout, &milliseconds) {
        tracing::debug!(service = "http", %error, "no time limit on a connection");
    }
    let requests = Arc::clone(&seat);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        let busy = requests.begin();
        request.extensions_mut().insert(client);
        // No route reads a body, so none is kept.
        let request = request.map(|_unread| Body::empty());
        let router = router.clone();
        async move {
            let response = router.oneshot(request).await.unwrap_or_else(|never| match never {});
            Ok::<_, Infallible>(response.map(|body: Body| Held::answer(body, busy)))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_LIMIT)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(Watched::new(stream, Arc::clone(&seat))), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        // Its place is already taken.
        () = seat.wanted() => return,
        () = cancel.cancelled() => {
            connection.as_mut().graceful_shutdown();
            // The caller waits for no longer than this, and then the process ends.
            match timeout(DRAIN_LIMIT, connection).await {
                Ok(ended) => ended,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = ended {
        // A peer that goes away in mid-answer is normal, and the request's own line says how far it got.
        tracing::debug!(service = "http", client = %client.0, %error);
    }
}
