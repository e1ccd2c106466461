//! Calls of a real server on loopback.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread;

use landfall_api::{HttpMethod, ImageAccess, SecretText};

use super::*;
use crate::actions::testing;

const SECRET: &str = "geheim-7731";

/// A server that gives each connection to `answer` with the request's head and body; it ends with the test's process.
fn serve(answer: impl Fn(&mut TcpStream, &str) + Send + 'static) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request = request(&mut stream);
            answer(&mut stream, &request);
        }
    });
    format!("http://{address}/hook")
}

/// The head, and as much of a body as it announces.
fn request(stream: &mut TcpStream) -> String {
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    let head = |bytes: &[u8]| String::from_utf8_lossy(bytes).to_ascii_lowercase();
    let length = |head: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix("content-length: ").map(str::to_owned));
        line.and_then(|line| line.parse().ok()).unwrap_or(0_usize)
    };
    let mut left = None;
    while left != Some(0) && stream.read(&mut byte).unwrap_or(0) == 1 {
        bytes.push(byte[0]);
        left = match left {
            Some(left) => Some(left - 1),
            None => bytes.ends_with(b"\r\n\r\n").then(|| length(&head(&bytes))),
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn say(stream: &mut TcpStream, status: &str, headers: &str, body: &str) {
    let length = body.len();
    // The client may have hung up.
    let _ = write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n{body}");
}

fn spec(method: HttpMethod, url: &str) -> Http {
    Http {
        url: url.to_owned(),
        method,
        headers: vec![("Authorization".into(), SecretText::new(format!("Bearer {SECRET}")))],
        body: None,
        expect_status: Vec::new(),
        keep: KeepBody::Nothing,
        access: ImageAccess::default(),
        secret: true,
    }
}

fn get(url: &str) -> Http {
    spec(HttpMethod::Get, url)
}

fn done(spec: Http) -> Result<HttpResult, Failure> {
    call(&testing::job(landfall_api::message::ActionKind::Http(spec.clone())), spec)
}

#[test]
fn each_status_ends_an_attempt_as_stated() {
    for (status, expected, ends) in [
        (200, vec![], Ok(200)),
        (204, vec![], Ok(204)),
        (404, vec![], Err(false)),
        (404, vec![204, 404], Ok(404)),
        (200, vec![201], Err(false)),
        (301, vec![], Err(false)),
        (400, vec![], Err(false)),
        (408, vec![], Err(true)),
        (429, vec![], Err(true)),
        (500, vec![], Err(true)),
        (503, vec![503], Ok(503)),
    ] {
        let url = serve(move |stream, _| say(stream, &format!("{status} X"), "location: /other\r\n", ""));
        let said = done(Http { expect_status: expected, ..spec(HttpMethod::Post, &url) });
        assert_eq!(said.map(|r| r.status).map_err(|f| f.retryable), ends, "{status}");
    }
}

#[test]
fn the_request_is_what_was_stated_with_its_key() {
    let (sent, requests) = mpsc::channel();
    let url = serve(move |stream, request| {
        sent.send(request.to_owned()).unwrap();
        say(stream, "200 OK", "", "");
    });
    let call = Http { body: Some(SecretText::new("{\"a\":1}")), ..spec(HttpMethod::Put, &url) };
    done(call.clone()).unwrap();
    done(call).unwrap();
    let first = requests.recv().unwrap();
    assert!(first.starts_with("PUT /hook HTTP/1.1") && first.ends_with("\r\n\r\n{\"a\":1}"), "{first}");
    let key = format!("idempotency-key: {}-0", uuid::Uuid::from_u128(1));
    for request in [first, requests.recv().unwrap()] {
        let request = request.to_ascii_lowercase();
        assert!(request.contains(&key) && request.contains(&format!("authorization: bearer {SECRET}")), "{request}");
    }
}

#[test]
fn no_secret_is_in_any_failure() {
    let echo = |status: &'static str| serve(move |stream, request| say(stream, status, "", request));
    let hangs_up = serve(|_, _| {});
    let refused = {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        format!("http://{}/", listener.local_addr().unwrap())
    };
    let broken = || vec![("X-Key".to_owned(), SecretText::new(format!("{SECRET}\r\nX-B: 1")))];
    let at = |pointer: &str| KeepBody::At(pointer.to_owned());
    for call in [
        get(&echo("400 Bad")),
        get(&echo("500 Bad")),
        get(&hangs_up),
        get(&refused),
        Http { headers: broken(), ..get(&refused) },
        Http { keep: at("/a"), ..get(&echo("200 OK")) },
        Http { body: Some(SecretText::new(SECRET)), keep: KeepBody::Text, ..spec(HttpMethod::Post, &echo("422 No")) },
    ] {
        let failure = done(call).unwrap_err();
        let all = format!("{failure:?} {}", failure.problem);
        assert!(!all.contains("7731"), "{all}");
    }
}

#[test]
fn a_refusal_without_secrets_says_what_the_server_said() {
    let url = serve(|stream, _| say(stream, "422 No", "", "no such site\n"));
    let failure = done(Http { secret: false, headers: Vec::new(), ..get(&url) }).unwrap_err();
    assert_eq!(failure.problem.causes, ["the server says: no such site"]);
    assert!(failure.problem.message.contains("answered 422, and 200 to 299 is expected"));
}

#[test]
fn a_redirect_to_another_server_gets_no_headers() {
    let (sent, requests) = mpsc::channel();
    let sent = Arc::new(sent);
    let see = sent.clone();
    let other = serve(move |stream, request| {
        see.send(("other", request.to_ascii_lowercase())).unwrap();
        say(stream, "200 OK", "", "");
    });
    let own = serve(move |stream, request| {
        sent.send(("own", request.to_ascii_lowercase())).unwrap();
        let target = if request.starts_with("GET /hook") { "/again".to_owned() } else { other.clone() };
        say(stream, "302 Found", &format!("location: {target}\r\n"), "");
    });
    assert_eq!(done(get(&own)).unwrap().status, 200);
    let seen: Vec<_> =
        requests.try_iter().map(|(who, head)| (who, head.contains("7731"), head.contains("idempotency"))).collect();
    assert_eq!(seen, [("own", true, true), ("own", true, true), ("other", false, false)]);
    let url = serve(|stream, _| say(stream, "307 Again", "location: /hook\r\n", ""));
    let failure = done(get(&url)).unwrap_err();
    assert!(failure.problem.message.contains("more than 5 redirects") && !failure.retryable, "{failure:?}");
}

#[test]
fn what_is_kept_of_a_body_is_bounded() {
    // Endless: read to its end it would never be answered.
    let endless = || {
        serve(|stream, _| {
            // A client that has hung up ends the loop.
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            while stream.write_all(&[b'a'; 4096]).is_ok() {}
        })
    };
    let text = done(Http { keep: KeepBody::Text, ..get(&endless()) }).unwrap();
    assert_eq!((text.body.len(), text.cut), (HttpResult::MAX_BODY, true));
    let refused = done(Http { keep: KeepBody::At("/a".into()), ..get(&endless()) }).unwrap_err();
    assert!(refused.problem.message.contains("larger than 64 KiB"), "{refused:?}");
    assert_eq!(done(get(&endless())).unwrap().body, "");
    // Not cut in the middle of a character, and valid whatever it was.
    let odd = serve(|stream, _| say(stream, "200 OK", "", &format!("{}ä", "a".repeat(HttpResult::MAX_BODY - 1))));
    let text = done(Http { keep: KeepBody::Text, ..get(&odd) }).unwrap();
    assert_eq!((text.body.len(), text.cut), (HttpResult::MAX_BODY - 1, true));
}

#[test]
fn a_pointer_keeps_one_value_of_a_json_answer() {
    let json = "{\"state\": \"ready\", \"ids\": [7, {\"a\": true}]}";
    let url = serve(move |stream, _| say(stream, "200 OK", "", json));
    for (pointer, kept) in
        [("/state", Some("ready")), ("/ids/0", Some("7")), ("/ids/1", Some("{\"a\":true}")), ("/x", None)]
    {
        let said = done(Http { keep: KeepBody::At(pointer.into()), ..get(&url) });
        assert_eq!(said.as_ref().ok().map(|r| r.body.as_str()), kept, "{pointer}");
        assert!(said.is_ok() || said.is_err_and(|f| f.problem.code == ErrorCode::BadFormat && !f.retryable));
    }
}

#[test]
fn a_call_that_is_stopped_ends_at_once() {
    let (begun, waits) = mpsc::channel();
    let (release, held) = mpsc::channel::<()>();
    let url = serve(move |_, _| {
        begun.send(()).unwrap();
        // The test has dropped the sender if it failed.
        let _ = held.recv();
    });
    let spec = get(&url);
    let job = testing::job(landfall_api::message::ActionKind::Http(spec.clone()));
    let cancel = job.cancel.clone();
    let called = thread::spawn(move || call(&job, spec));
    waits.recv().unwrap();
    cancel.cancel();
    let failure = called.join().unwrap().unwrap_err();
    assert_eq!((failure.problem.code, failure.retryable), (ErrorCode::Cancelled, false));
    drop(release);
}

#[test]
fn nothing_is_sent_once_the_lease_ran_out() {
    let (sent, requests) = mpsc::channel();
    let url = serve(move |stream, _| {
        sent.send(()).unwrap();
        say(stream, "200 OK", "", "");
    });
    let spec = get(&url);
    let job = testing::without_lease(testing::job(landfall_api::message::ActionKind::Http(spec.clone())));
    assert_eq!(call(&job, spec).unwrap_err().problem.code, ErrorCode::LeaseExpired);
    assert!(requests.try_recv().is_err());
}
