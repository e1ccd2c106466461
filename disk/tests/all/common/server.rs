//! HTTP servers on loopback; each ends with the test's process.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use axum::{Router, extract::Request, response::Response};

/// A server on loopback that answers each request by `answer`; it ends with the test's process.
pub(crate) fn serve(answer: impl Fn(Request) -> Response + Clone + Send + Sync + 'static) -> String {
    let (tell, started) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            let router = Router::new().fallback(move |request: Request| {
                let answer = answer.clone();
                async move { answer(request) }
            });
            axum::serve(listener, router).await.unwrap();
        });
    });
    let address: SocketAddr = started.recv().unwrap();
    format!("http://{address}/image")
}

/// A server that writes raw bytes: for answers that a well-bred server cannot give.
pub(crate) fn serve_raw(answer: impl Fn(&mut TcpStream, &str, u32) + Send + 'static) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (count, stream) in (0..).zip(listener.incoming()) {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            answer(&mut stream, &String::from_utf8_lossy(&head).to_ascii_lowercase(), count);
        }
    });
    format!("http://{address}/image")
}

/// Answers with this status, which may have header lines behind it, and this body. The length that is stated need not be the body's.
pub(crate) fn say(stream: &mut impl Write, status: &str, length: u64, body: &[u8]) {
    // A client may hang up.
    let _ = (write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n"), stream.write_all(body));
}

/// Answers with `content` from where the client asked for it on, and states that there are `total` bytes.
pub(crate) fn say_part(stream: &mut impl Write, head: &str, headers: &str, total: usize, content: &[u8]) {
    let from = range_start(head).unwrap_or(0);
    let status = if from > 0 {
        format!("206 Partial\r\ncontent-range: bytes {from}-{}/{total}", total - 1)
    } else {
        "200 OK".into()
    };
    say(stream, &format!("{status}{headers}"), (total - from) as u64, content.get(from..).unwrap_or_default());
}

pub(crate) fn range_start(head: &str) -> Option<usize> {
    let line = head.lines().find(|l| l.starts_with("range: bytes="))?;
    line.trim_start_matches("range: bytes=").trim_end_matches('-').parse().ok()
}

/// One that gives `content` as a good server does: whole, or the range asked for, with these header lines besides.
/// `see` gets each request's head, in lower case.
pub(crate) fn serve_content(content: Vec<u8>, headers: &'static str, see: impl Fn(&str) + Send + 'static) -> String {
    serve_raw(move |stream, head, _| {
        see(head);
        answer(stream, head, &content, headers);
    })
}

/// Answers one request well.
pub(crate) fn answer(stream: &mut impl Write, head: &str, content: &[u8], headers: &str) {
    let total = content.len();
    let (status, body) = match range(head) {
        Some((first, end)) => {
            let end = end.min(total);
            (format!("206 Partial\r\ncontent-range: bytes {first}-{}/{total}", end - 1), &content[first..end])
        }
        None => ("200 OK".to_owned(), content),
    };
    // A client may hang up.
    let _ = (
        write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n", body.len()),
        stream.write_all(body),
    );
}

/// First byte and end of the range asked for.
fn range(head: &str) -> Option<(usize, usize)> {
    let (first, last) = head.lines().find_map(|line| line.strip_prefix("range: bytes="))?.split_once('-')?;
    Some((first.parse().ok()?, last.parse::<usize>().map_or(usize::MAX, |last| last + 1)))
}
