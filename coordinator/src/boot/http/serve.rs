//! The listening side: a bounded number of connections, each of which must move.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::socket::{setsockopt, sockopt::TcpUserTimeout};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

use super::Client;

/// Connections at one time; more wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 1024;
/// From the connection, or from the answer before, to the end of a request's headers.
const HEADER_LIMIT: Duration = Duration::from_secs(60);
/// How long a peer may leave what was sent unacknowledged, or its window shut, before the connection counts as dead. A slow
/// disk may well stop reading for minutes.
const STALL_LIMIT: Duration = Duration::from_secs(600);
/// How long answers under way may take to end after the service was told to stop. A download resumes by itself.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// Serves the routes until cancelled.
///
/// # Errors
/// When accepting fails for another reason than a broken connection or a shortage that passes.
pub async fn serve(listener: TcpListener, router: Router, cancel: CancellationToken) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = cancel.cancelled() => break,
            // The semaphore is never closed.
            Ok(place) = places.clone().acquire_owned() => tokio::select! {
                () = cancel.cancelled() => break,
                accepted = listener.accept() => accepted.map(|(stream, peer)| (stream, peer, place)),
            },
        };
        match accepted {
            Ok((stream, peer, place)) => {
                let (router, cancel) = (router.clone(), cancel.clone());
                connections.spawn(async move {
                    let _place = place;
                    connection(stream, Client(peer), router, cancel).await;
                });
            }
            Err(error) => match error.kind() {
                io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted => {}
                // Out of file descriptors or memory, mostly: it passes when connections end.
                _ if matches!(error.raw_os_error(), Some(code) if SHORTAGES.contains(&code)) => {
                    tracing::error!(service = "http", %error, "cannot accept connections for the moment");
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

async fn connection(stream: TcpStream, client: Client, router: Router, cancel: CancellationToken) {
    let milliseconds = u32::try_from(STALL_LIMIT.as_millis()).unwrap_or(u32::MAX);
    if let Err(error) = setsockopt(&stream, TcpUserTimeout, &milliseconds) {
        tracing::debug!(service = "http", %error, "no time limit on a connection");
    }
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(client);
        let router = router.clone();
        async move {
            Ok::<_, Infallible>(router.oneshot(request.map(Body::new)).await.unwrap_or_else(|never| match never {}))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_LIMIT)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
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
