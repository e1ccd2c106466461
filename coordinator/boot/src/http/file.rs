//! Serving one file from disk, whole or in part.
//!
//! Own code instead of tower-http's `ServeDir`, which knows neither `ETag` nor `If-Range`: an image that was replaced
//! between two halves of a resumed download would be glued together.

use std::io;
use std::io::SeekFrom;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use axum::{body::Body, response::Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;

use landfall_edge::gate::Limiter;

use super::range::{Selection, Version, http_date, select};

/// One read from the disk: few system calls, and little memory a connection.
pub(super) const CHUNK: usize = 128 << 10;

/// Lines a second about files that are there and cannot be read.
static FAILURES: Limiter = Limiter::a_second(10);

/// The path below `root` that a URL path names; `None` for anything that could lead outside, or that hides.
///
/// Links are followed by [`respond_below`], which refuses those that lead out.
pub fn below(root: &Path, url_path: &str) -> Option<PathBuf> {
    let mut path = root.to_owned();
    for part in url_path.split('/') {
        if part.is_empty() || part.starts_with('.') || part.contains(['\\', '\0']) {
            return None;
        }
        path.push(part);
    }
    Some(path)
}

/// The response for a GET or HEAD of a file below `root`. A symbolic link that leads out of it is refused: a tree that was
/// unpacked there could otherwise serve any file that the coordinator can read.
pub async fn respond_below(root: &Path, url_path: &str, request: &HeaderMap) -> Response {
    let Some(path) = below(root, url_path) else { return plain(StatusCode::NOT_FOUND, "no such file\n") };
    match leads_inside(root, &path).await {
        Ok(true) => respond(&path, request).await,
        Ok(false) => {
            if let Some(left_out) = FAILURES.step() {
                tracing::warn!(
                    service = "http", file = %path.display(), left_out,
                    "not served: a symbolic link leads out of boot.images; copy the file there"
                );
            }
            plain(StatusCode::NOT_FOUND, "no such file\n")
        }
        Err(error) => failed(&path, &error),
    }
}

async fn leads_inside(root: &Path, path: &Path) -> io::Result<bool> {
    let root = tokio::fs::canonicalize(root).await?;
    Ok(tokio::fs::canonicalize(path).await?.starts_with(root))
}

/// The response for a GET or HEAD of the file.
pub async fn respond(path: &Path, request: &HeaderMap) -> Response {
    match open(path).await {
        Ok((file, version)) => match part(file, &version, select(request, &version)).await {
            Ok(response) => response,
            Err(error) => failed(path, &error),
        },
        Err(error) => failed(path, &error),
    }
}

pub(super) fn failed(path: &Path, error: &io::Error) -> Response {
    let (status, text) = match error.kind() {
        // A name longer than the file system takes names no file.
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename => {
            (StatusCode::NOT_FOUND, "no such file\n")
        }
        _ => {
            if let Some(left_out) = FAILURES.step() {
                tracing::error!(service = "http", file = %path.display(), %error, left_out, "cannot serve a file");
            }
            (
                StatusCode::INTERNAL_SERVER_ERROR,
                "cannot read the file; the coordinator's log has the reason
",
            )
        }
    };
    plain(status, text)
}

/// A short text answer.
pub fn plain(status: StatusCode, text: impl Into<String>) -> Response {
    let mut response = Response::new(Body::from(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

pub(super) async fn open(path: &Path) -> io::Result<(File, Version)> {
    // Asked before opening: opening a FIFO would wait for its writer.
    if !tokio::fs::metadata(path).await?.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let file = File::open(path).await?;
    let meta = file.metadata().await?;
    let changed = u64::try_from(meta.mtime()).unwrap_or(0);
    // Inode and change time as well: a replaced file differs even if its size and its (settable) mtime do not.
    let etag = format!(
        "\"{:x}-{:x}.{:x}-{:x}-{:x}.{:x}\"",
        meta.len(),
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ino(),
        meta.ctime(),
        meta.ctime_nsec()
    );
    Ok((file, Version { length: meta.len(), etag, modified: UNIX_EPOCH + Duration::from_secs(changed) }))
}

async fn part(mut file: File, version: &Version, selection: Selection) -> io::Result<Response> {
    let (mut response, start, length) = head(version, selection)?;
    if length > 0 {
        file.seek(SeekFrom::Start(start)).await?;
        *response.body_mut() = Body::from_stream(ReaderStream::with_capacity(file.take(length), CHUNK));
    }
    Ok(response)
}

/// The response without its body, which is of so many bytes from the first of these numbers on.
pub(super) fn head(version: &Version, selection: Selection) -> io::Result<(Response, u64, u64)> {
    let (status, start, length) = match selection {
        Selection::Whole => (StatusCode::OK, 0, version.length),
        Selection::Part { start, end } => (StatusCode::PARTIAL_CONTENT, start, end - start + 1),
        Selection::Unsatisfiable => (StatusCode::RANGE_NOT_SATISFIABLE, 0, 0),
        Selection::NotModified => (StatusCode::NOT_MODIFIED, 0, 0),
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let value = |text: String| HeaderValue::try_from(text).map_err(io::Error::other);
    headers.insert(header::ETAG, value(version.etag.clone())?);
    headers.insert(header::LAST_MODIFIED, value(http_date(version.modified))?);
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    match selection {
        Selection::NotModified => return Ok((response, 0, 0)),
        Selection::Part { start, end } => {
            headers.insert(header::CONTENT_RANGE, value(format!("bytes {start}-{end}/{}", version.length))?);
        }
        Selection::Unsatisfiable => {
            headers.insert(header::CONTENT_RANGE, value(format!("bytes */{}", version.length))?);
        }
        Selection::Whole => {}
    }
    headers.insert(header::CONTENT_LENGTH, length.into());
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    Ok((response, start, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_and_outside_paths_are_not_served() {
        let root = Path::new("/images");
        assert_eq!(below(root, "a/b.img").unwrap(), Path::new("/images/a/b.img"));
        for bad in ["", "/etc/passwd", "..", "a/../../b", "a//b", "a/", ".hidden", "a/.b", "a\\b", "a\0b", "./a"] {
            assert_eq!(below(root, bad), None, "{bad:?}");
        }
    }
}
