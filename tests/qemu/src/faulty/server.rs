//! The server's side of [`super::FaultyHttp`].

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::watch;

use super::{Command, FileFault, Notice};

/// Bytes sent at once.
const CHUNK: u64 = 64 * 1024;

struct Server {
    dir: PathBuf,
    faults: watch::Receiver<Command>,
}

/// Serves the files in `dir` until standard input ends.
///
/// # Errors
/// If the address cannot be bound.
pub async fn serve(listen: SocketAddr, dir: PathBuf) -> std::io::Result<()> {
    let (sender, faults) = watch::channel(Command::default());
    let server = Arc::new(Server { dir, faults });
    let router = Router::new().route("/{file}", get(file)).with_state(server);
    let listener = tokio::net::TcpListener::bind(listen).await?;
    tell(&Notice::Listening);
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(command) => {
                    sender.send_replace(command);
                    tell(&Notice::Taken);
                }
                Err(error) => eprintln!("not a command: {error}: {line}"),
            }
        }
        drop(end);
    });
    tokio::select! {
        served = async { axum::serve(listener, router).await } => served,
        _ = ended => Ok(()),
    }
}

fn tell(notice: &Notice) {
    if let Ok(line) = serde_json::to_string(notice) {
        // Without a reader the lab has ended, and standard input ends too.
        let _ = writeln!(std::io::stdout(), "{line}");
    }
}

async fn file(
    State(server): State<Arc<Server>>, Path(name): Path<String>, method: Method, headers: HeaderMap,
) -> Response {
    let path = server.dir.join(&name);
    let Ok(mut file) = tokio::fs::File::open(&path).await else {
        return (StatusCode::NOT_FOUND, format!("no {name} here\n")).into_response();
    };
    let Ok(length) = file.metadata().await.map(|metadata| metadata.len()) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let etag = format!("\"{length}\"");
    let from = range_start(&headers, &etag).filter(|from| *from <= length);
    let start = from.unwrap_or(0);
    if method == Method::GET {
        tell(&Notice::Request { file: name.clone(), from: start });
    }
    if file.seek(std::io::SeekFrom::Start(start)).await.is_err() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let mut answer = Response::builder()
        .header(header::CONTENT_LENGTH, length - start)
        .header(header::CONTENT_TYPE, "application/octet-stream")
        .header(header::ACCEPT_RANGES, "bytes")
        .header(header::ETAG, etag);
    if from.is_some() {
        answer = answer
            .status(StatusCode::PARTIAL_CONTENT)
            .header(header::CONTENT_RANGE, format!("bytes {start}-{}/{length}", length.saturating_sub(1)));
    }
    let body = if method == Method::HEAD { Body::empty() } else { sending(file, name, start, server.faults.clone()) };
    answer.body(body).unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

/// `bytes=N-`, unless `If-Range` names another version.
fn range_start(headers: &HeaderMap, etag: &str) -> Option<u64> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if text(header::IF_RANGE).is_some_and(|named| named != etag) {
        return None;
    }
    text(header::RANGE)?.strip_prefix("bytes=")?.split('-').next()?.parse().ok()
}

/// The file from `start`, with its faults at each moment.
fn sending(file: tokio::fs::File, name: String, start: u64, faults: watch::Receiver<Command>) -> Body {
    let state = (file, name, start, faults);
    Body::from_stream(futures::stream::unfold(Some(state), |state| async move {
        let (mut file, name, at, mut faults) = state?;
        loop {
            let fault = faults.borrow_and_update().faults.get(&name).cloned().unwrap_or_default();
            if fault.cut_at.is_some_and(|cut| cut <= at) {
                tell(&Notice::Cut { file: name, at });
                // An error of the body makes the server close the connection in the middle.
                return Some((Err(std::io::Error::from(std::io::ErrorKind::ConnectionAborted)), None));
            }
            if fault.pause_at.is_some_and(|pause| pause <= at) {
                tell(&Notice::Paused { file: name.clone(), at });
                faults.changed().await.ok()?;
                continue;
            }
            if let Some(rate) = fault.bytes_per_second {
                let millis = CHUNK * 1000 / rate.max(1);
                tokio::time::sleep(Duration::from_millis(millis)).await;
            }
            let mut bytes = vec![0; usize::try_from(room(&fault, at)).unwrap_or(1)];
            return match file.read(&mut bytes).await {
                Ok(0) => None,
                Ok(n) => {
                    bytes.truncate(n);
                    flip(&fault, at, &mut bytes);
                    Some((Ok(Bytes::from(bytes)), Some((file, name, at + n as u64, faults))))
                }
                Err(error) => Some((Err(error), None)),
            };
        }
    }))
}

/// How much may be sent from `at` before the next fault.
fn room(fault: &FileFault, at: u64) -> u64 {
    let stops = [fault.cut_at, fault.pause_at];
    stops.into_iter().flatten().map(|stop| stop - at).fold(CHUNK, u64::min)
}

fn flip(fault: &FileFault, at: u64, bytes: &mut [u8]) {
    let inside = fault.flip_at.and_then(|flip| flip.checked_sub(at)).and_then(|flip| usize::try_from(flip).ok());
    if let Some(byte) = inside.and_then(|flip| bytes.get_mut(flip)) {
        *byte ^= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_ends_sending_and_one_byte_is_flipped() {
        let fault = FileFault { cut_at: Some(100), pause_at: Some(70), flip_at: Some(65), ..FileFault::default() };
        assert_eq!(room(&fault, 64), 6);
        let mut bytes = vec![0; 6];
        flip(&fault, 64, &mut bytes);
        assert_eq!(bytes, [0, 1, 0, 0, 0, 0]);
        flip(&fault, 70, &mut bytes);
        assert_eq!(bytes, [0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn a_range_of_another_version_is_answered_from_the_start() {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, "bytes=5-".parse().unwrap());
        assert_eq!(range_start(&headers, "\"9\""), Some(5));
        headers.insert(header::IF_RANGE, "\"8\"".parse().unwrap());
        assert_eq!(range_start(&headers, "\"9\""), None);
    }
}
