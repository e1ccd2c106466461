//! Every kind of source but registries, good and bad: mirrors, proxies, trust, credentials, files.
//!
//! The servers drop what their writes answer (`let _ =`): the client may have hung up, and what it reports is what counts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::common::fetch::{Lines, RUN, content, dead, fetch, image_at, read_on};
use crate::common::noise;
use crate::common::server::{answer, range_start, say, say_part, serve_content, serve_raw};
use landfall_api::{ErrorCode, SecretText};
use landfall_disk::{Authorization, Format, WriteError, open_source};

/// A server whose answers all end at `cut`.
fn serve_cut(content: Vec<u8>, cut: usize) -> String {
    serve_raw(move |stream, head, _| {
        say_part(stream, head, "", content.len(), &content[..cut]);
    })
}

fn serve_status(status: &'static str) -> String {
    serve_raw(move |stream, _, _| say(stream, status, 0, b""))
}

#[test]
fn the_next_mirror_continues_at_the_same_byte() {
    let (lines, asked) = (Lines::default(), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&asked);
    let good = serve_content(content(), "", move |head| seen.lock().unwrap().push(range_start(head)));
    let urls = [dead(), serve_status("404 Not Found"), serve_cut(content(), 1_000_000), good];
    let image = image_at(&urls.each_ref().map(String::as_str));
    assert!(fetch(&image, true, &lines).unwrap() == content());
    assert_eq!(*asked.lock().unwrap(), [Some(1_000_000)]);
    assert!(lines.text().contains("404") && lines.text().contains("at byte 1000000"), "{}", lines.text());
}

#[test]
fn a_mirror_with_another_length_is_not_joined() {
    let (lines, first) = (Lines::default(), serve_cut(content(), 1_000_000));
    let other = serve_content(noise(2_900_000, 5), "", |_| {});
    let gone = serve_status("410 Gone");
    let error = fetch(&image_at(&[&first, &other, &gone]), true, &lines).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("2900000 bytes, but another mirror has 3000000"), "{text}");
    assert!(text.contains("410 Gone") && [first, other, gone].iter().all(|url| text.contains(url)), "{text}");
}

#[test]
fn without_a_digest_no_mirror_continues_anothers_download() {
    let (lines, asked) = (Lines::default(), Arc::new(AtomicU32::new(0)));
    let seen = Arc::clone(&asked);
    let good = serve_content(content(), "etag: \"x\"\r\n", move |_| {
        seen.fetch_add(1, Ordering::SeqCst);
    });
    let cut = serve_cut(content(), 1_000_000);
    assert!(fetch(&image_at(&[&cut, &good]), false, &lines).is_err());
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    // At its start there is nothing to join.
    assert!(fetch(&image_at(&[&dead(), &good]), false, &lines).unwrap() == content());
}

#[test]
fn distant_parts_use_ranges_and_near_ones_read_on() {
    let (lines, asked) = (Lines::default(), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&asked);
    let url = serve_content(content(), "etag: \"v1\"\r\n", move |head| {
        let range = head.lines().find(|line| line.starts_with("range: ")).unwrap_or("none");
        seen.lock().unwrap().push(range.to_owned());
    });
    let image = image_at(&[&url]);
    let mut source = open_source(&image, true, &lines).unwrap();
    for range in
        [2_000_000..2_000_010, 500_000..1_500_000, 0..3_000_000, 2_999_999..u64::MAX, 3_000_000..u64::MAX, 9..9]
    {
        source.seek(range.clone(), &RUN).unwrap();
        let expected = &content()[range.start as usize..range.end.min(3_000_000) as usize];
        assert!(read_on(&mut *source).unwrap() == expected, "{range:?}");
    }
    assert_eq!(source.total(), Some(3_000_000));
    let expected = ["2000000-2000009", "500000-1499999", "0-2999999", "2999999-"].map(|r| format!("range: bytes={r}"));
    assert_eq!(*asked.lock().unwrap(), expected);
    // A small gap costs no request.
    asked.lock().unwrap().clear();
    let mut source = open_source(&image, true, &lines).unwrap();
    let mut byte = [0];
    for at in [0, 1000, 200_000] {
        source.seek(at..u64::MAX, &RUN).unwrap();
        assert_eq!(source.read(&mut byte, &RUN).unwrap(), 1);
        assert_eq!(byte[0], content()[at as usize], "{at}");
    }
    assert_eq!(asked.lock().unwrap().len(), 1);
}

#[test]
fn a_server_without_ranges_is_read_over_within_a_bound() {
    let lines = Lines::default();
    let url = serve_raw(|stream, _, _| {
        say(stream, "200 OK", 1 << 40, &content());
        // Waits until the client hangs up, however it does.
        let _ = stream.read(&mut [0]);
    });
    let image = image_at(&[&url]);
    let mut source = open_source(&image, true, &lines).unwrap();
    source.seek(2_000_000..2_000_010, &RUN).unwrap();
    assert!(read_on(&mut *source).unwrap() == content()[2_000_000..2_000_010]);
    source.seek(1 << 39..1 << 40, &RUN).unwrap();
    let error = read_on(&mut *source).unwrap_err();
    assert!(matches!(error, WriteError::NoRanges { .. }), "{error}");
}

#[test]
fn one_connection_serves_one_answer_after_another() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}/image", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&connections);
    thread::spawn(move || {
        for stream in listener.incoming() {
            seen.fetch_add(1, Ordering::SeqCst);
            let mut reader = BufReader::new(stream.unwrap());
            thread::spawn(move || {
                loop {
                    let mut head = String::new();
                    while !head.ends_with("\r\n\r\n") {
                        if reader.read_line(&mut head).unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    let mut out = Vec::new();
                    answer(&mut out, &head.to_ascii_lowercase(), &content(), "");
                    let out = String::from_utf8_lossy(&out[..200]).find("connection: close").map(|at| {
                        let mut out = out.clone();
                        out[at..at + 17].copy_from_slice(b"connection: kept ");
                        out
                    });
                    if reader.get_mut().write_all(&out.unwrap()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let lines = Lines::default();
    let mut source = open_source(&image_at(&[&url]), true, &lines).unwrap();
    for at in [0, 1_000_000, 2_000_000, 500_000] {
        source.seek(at..at + 300_000, &RUN).unwrap();
        assert!(read_on(&mut *source).unwrap() == content()[at as usize..at as usize + 300_000]);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[test]
fn a_server_that_says_later_is_asked_later() {
    let lines = Lines::default();
    let url = serve_raw(|stream, head, count| match count {
        0 => say(stream, "503 Busy\r\nretry-after: 1", 0, b""),
        1 => say(stream, "429 Slow", 0, b""),
        _ => answer(stream, head, &content(), ""),
    });
    assert!(fetch(&image_at(&[&url]), true, &lines).unwrap() == content());
    assert!(lines.text().contains("in 1.0 s: 503"), "{}", lines.text());
}

#[test]
fn an_answer_that_is_packed_on_the_way_is_refused() {
    let url = serve_content(content(), "content-encoding: gzip\r\n", |_| {});
    let error = fetch(&image_at(&[&url]), true, &Lines::default()).unwrap_err();
    assert!(error.code() == ErrorCode::BadFormat && error.to_string().contains("compresses it in transfer"), "{error}");
}

#[test]
fn a_content_type_claims_a_format_and_octet_stream_none() {
    for (headers, claimed) in [
        ("content-type: application/zstd\r\n", Some(Format::Zstd)),
        ("content-type: application/octet-stream\r\n", None),
        ("", None),
    ] {
        let (lines, url) = (Lines::default(), serve_content(content(), headers, |_| {}));
        let mut source = open_source(&image_at(&[&url]), true, &lines).unwrap();
        source.read(&mut [0], &RUN).unwrap();
        assert_eq!(source.claimed_format(), claimed);
    }
}

#[test]
fn credentials_go_to_the_images_own_server_only() {
    for (authorization, expected) in [
        (
            Authorization::Basic { username: "anna".into(), password: SecretText::new("geheim") },
            "basic yw5uytpnzwhlaw0=",
        ),
        (Authorization::Bearer(SecretText::new("geheim")), "bearer geheim"),
    ] {
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        let other = serve_content(content(), "", move |head| seen.lock().unwrap().push(head.to_owned()));
        let (own_heads, target) = (Arc::new(Mutex::new(Vec::new())), other.clone());
        let seen = Arc::clone(&own_heads);
        let own = serve_raw(move |stream, head, count| {
            seen.lock().unwrap().push(head.to_owned());
            let location = if count == 0 { "/there" } else { &target };
            say(stream, &format!("302 Found\r\nlocation: {location}"), 0, b"");
        });
        let mut image = image_at(&[&own]);
        image.access.authorization = Some(authorization);
        let lines = Lines::default();
        assert!(fetch(&image, true, &lines).unwrap() == content());
        let expected = format!("authorization: {expected}");
        assert!(own_heads.lock().unwrap().iter().all(|head| head.contains(&expected)), "{own_heads:?}");
        assert_eq!(own_heads.lock().unwrap().len(), 2);
        assert!(heads.lock().unwrap().iter().all(|head| !head.contains("authorization")), "{heads:?}");
        image.urls = vec![serve_status("403 Forbidden")];
        let error = fetch(&image, true, &lines).unwrap_err();
        let said = format!("{} {error} {error:?} {image:?}", lines.text());
        assert!(!said.contains("geheim") && !said.contains("YW5uYT"), "{said}");
    }
}

#[test]
fn redirects_that_never_end_and_passwords_in_urls_are_refused() {
    let round = serve_raw(|stream, _, _| say(stream, "302 Found\r\nlocation: /again", 0, b""));
    let error = fetch(&image_at(&[&round]), true, &Lines::default()).unwrap_err();
    assert!(error.to_string().contains("redirects"), "{error}");
    let with_password = round.replace("http://", "http://anna:geheim@");
    let error = fetch(&image_at(&[&with_password]), true, &Lines::default()).unwrap_err();
    assert!(!error.to_string().contains("geheim") && error.to_string().contains("credentials"), "{error}");
}

/// A TLS server with a certificate of its own authority; gives its port and the authority.
fn serve_tls(reply: impl Fn(&mut dyn Write, &str) + Send + 'static) -> (u16, String) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream.unwrap());
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            reply(&mut stream, &String::from_utf8_lossy(&head).to_ascii_lowercase());
            stream.conn.send_close_notify();
            // A client may hang up.
            let _ = stream.flush();
        }
    });
    (port, made.cert.pem())
}

/// A proxy that tunnels, and answers what is asked for in absolute form itself; `see` gets each first line.
fn proxy(see: impl Fn(&str) + Send + 'static) -> String {
    let url = serve_raw(move |stream, head, _| {
        let line = head.lines().next().unwrap_or_default();
        see(line);
        let Some(target) = line.strip_prefix("connect ").and_then(|rest| rest.split(' ').next()) else {
            return answer(stream, head, &content(), "");
        };
        let mut there = TcpStream::connect(target).unwrap();
        stream.write_all(b"HTTP/1.1 200 Tunnel\r\n\r\n").unwrap();
        let (mut back_from, mut back_to) = (there.try_clone().unwrap(), stream.try_clone().unwrap());
        // Both ways end when either side hangs up.
        thread::spawn(move || drop(std::io::copy(&mut back_from, &mut back_to)));
        drop(std::io::copy(stream, &mut there));
    });
    url.trim_end_matches("/image").to_owned()
}

#[test]
fn a_stated_authority_is_trusted_also_through_a_proxy() {
    let (port, authority) = serve_tls(|mut stream, head| answer(&mut stream, head, &content(), ""));
    let (lines, seen) = (Lines::default(), Arc::new(Mutex::new(Vec::new())));
    let mut image = image_at(&[&format!("https://127.0.0.1:{port}/image")]);
    let through = Arc::clone(&seen);
    image.access.ca_certificates = vec![authority];
    assert!(fetch(&image, true, &lines).unwrap() == content());
    image.access.proxy = Some(proxy(move |line| through.lock().unwrap().push(line.to_owned())));
    assert!(fetch(&image, true, &lines).unwrap() == content());
    image.urls = vec!["http://203.0.113.1/image".into()];
    assert!(fetch(&image, true, &lines).unwrap() == content());
    let expected = [format!("connect 127.0.0.1:{port} http/1.1"), "get http://203.0.113.1/image http/1.1".into()];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[test]
fn an_unknown_authority_and_redirects_to_http_are_refused() {
    let plain = serve_content(content(), "", |_| {});
    let there = format!("302 Found\r\nlocation: {plain}");
    let (port, authority) = serve_tls(move |mut stream, _| say(&mut stream, &there, 0, b""));
    let url = format!("https://127.0.0.1:{port}/image");
    let mut image = image_at(&[&url]);
    let error = fetch(&image, true, &Lines::default()).unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
    image.access.ca_certificates = vec![authority];
    let error = fetch(&image, true, &Lines::default()).unwrap_err().to_string();
    assert!(error.contains("from https to http"), "{error}");
}

#[test]
fn files_are_read_in_parts_and_other_paths_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("an image.raw");
    std::fs::write(&path, content()).unwrap();
    let lines = Lines::default();
    let url = format!("file://{}", path.display().to_string().replace(' ', "%20"));
    let mut source = open_source(&image_at(&[&url]), false, &lines).unwrap();
    assert!(read_on(&mut *source).unwrap() == content());
    assert_eq!(source.total(), Some(3_000_000));
    source.seek(5..9, &RUN).unwrap();
    assert_eq!(read_on(&mut *source).unwrap(), content()[5..9]);
    source.seek(4_000_000..u64::MAX, &RUN).unwrap();
    assert!(read_on(&mut *source).unwrap().is_empty());
    for (url, words) in [
        (format!("file:{}", folder.path().display()), "directory"),
        ("file:/dev/null".into(), "neither a regular file"),
        ("file:/nonexistent/image".into(), "No such file"),
        ("file:image".into(), "absolute path"),
    ] {
        let error = fetch(&image_at(&[&url]), false, &lines).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
