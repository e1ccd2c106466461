//! Every kind of source, good and bad: mirrors, proxies, trust, credentials, files, registries.
//!
//! The servers drop what their writes answer (`let _ =`): the client may have hung up, and what it reports is what counts.
#![allow(clippy::unwrap_used)] // Tests.

mod common;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
};

use common::{
    digest, noise,
    server::{answer, range_start, serve_content, serve_raw},
};
use landfall_api::{DiskReceipt, ErrorCode, Progress};
use landfall_disk::{
    Access, Authorization, Format, Image, ImageSource, LogLevel, Observer, Proof, Resolved, WriteError, open_source,
    resolve_proof,
};

static RUN: AtomicBool = AtomicBool::new(false);

#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl Observer for Lines {
    fn progress(&self, _: &Progress) {}
    fn receipt_written(&self, _: &DiskReceipt) {}
    fn log(&self, _: LogLevel, message: &str) {
        self.0.lock().unwrap().push(message.to_owned());
    }
}

impl Lines {
    fn text(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }
}

fn image_at(urls: &[&str]) -> Image {
    let urls = urls.iter().map(|url| (*url).to_owned()).collect();
    Image { urls, proof: Proof::Waived, format: None, no_table: false, access: Access::default() }
}

fn read_on(source: &mut dyn ImageSource) -> Result<Vec<u8>, WriteError> {
    let (mut all, mut piece) = (Vec::new(), vec![0; 100_000]);
    loop {
        match source.read(&mut piece, &RUN)? {
            0 => return Ok(all),
            n => all.extend_from_slice(&piece[..n]),
        }
    }
}

fn fetch(image: &Image, digest_guards: bool, observer: &Lines) -> Result<Vec<u8>, WriteError> {
    read_on(&mut *open_source(image, digest_guards, observer)?)
}

fn content() -> Vec<u8> {
    noise(3_000_000, 5)
}

/// A URL where no server listens.
fn dead() -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    format!("http://{}/image", listener.local_addr().unwrap())
}

/// A server whose answers all end at `cut`.
fn serve_cut(content: Vec<u8>, cut: usize) -> String {
    serve_raw(move |stream, head, _| {
        let (from, total) = (range_start(head).unwrap_or(0), content.len());
        let status = if from > 0 { "206 Partial" } else { "200 OK" };
        let range = format!("content-range: bytes {from}-{}/{total}\r\ncontent-length: {}", total - 1, total - from);
        // A client may hang up.
        let _ = write!(stream, "HTTP/1.1 {status}\r\n{range}\r\n\r\n");
        let _ = stream.write_all(&content[from.min(cut)..cut]);
    })
}

fn serve_status(status: &'static str) -> String {
    serve_raw(move |stream, _, _| {
        // A client may hang up.
        let _ = write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
    })
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
        let content = content();
        // A client may hang up.
        let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 1_u64 << 40);
        let _ = stream.write_all(&content);
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
        // A client may hang up.
        0 => drop(write!(stream, "HTTP/1.1 503 Busy\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n")),
        1 => drop(write!(stream, "HTTP/1.1 429 Slow\r\ncontent-length: 0\r\n\r\n")),
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
        (Authorization::Basic { user: "anna".into(), password: "geheim".into() }, "basic yw5uytpnzwhlaw0="),
        (Authorization::Bearer("geheim".into()), "bearer geheim"),
    ] {
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        let other = serve_content(content(), "", move |head| seen.lock().unwrap().push(head.to_owned()));
        let (own_heads, target) = (Arc::new(Mutex::new(Vec::new())), other.clone());
        let seen = Arc::clone(&own_heads);
        let own = serve_raw(move |stream, head, count| {
            seen.lock().unwrap().push(head.to_owned());
            let location = if count == 0 { "/there" } else { &target };
            // A client may hang up.
            let _ = write!(stream, "HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
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
    let round = serve_raw(|stream, _, _| {
        // A client may hang up.
        let _ = write!(stream, "HTTP/1.1 302 Found\r\nlocation: /again\r\ncontent-length: 0\r\n\r\n");
    });
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
    let (port, authority) = serve_tls(move |stream, _| {
        // A client may hang up.
        let _ = write!(stream, "HTTP/1.1 302 Found\r\nlocation: {plain}\r\ncontent-length: 0\r\n\r\n");
    });
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

/// Debian's registry server, with a folder of its own.
struct Registry {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Registry {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = format!(
            "version: 0.1\nlog:\n  level: info\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: 127.0.0.1:0\n",
            folder.path().display()
        );
        let path = folder.path().join("config.yml");
        std::fs::write(&path, config).unwrap();
        let mut child = Command::new("docker-registry")
            .arg("serve")
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("docker-registry, of scripts/setup");
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = log.find_map(|line| {
            let line = line.unwrap();
            let rest = line.split_once("listening on ")?.1;
            Some(rest.split(|c: char| !c.is_ascii_digit() && c != '.' && c != ':').next()?.to_owned())
        });
        // Its log must go on being read.
        thread::spawn(move || log.for_each(drop));
        Self { child, address: address.unwrap(), _folder: folder }
    }

    fn send(&self, method: &str, path: &str, content_type: &str, body: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let (address, length) = (&self.address, body.len());
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: {content_type}\r\n\
             content-length: {length}\r\n\r\n"
        )
        .unwrap();
        stream.write_all(body).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
        answer
    }

    fn push_blob(&self, body: &[u8]) -> String {
        let begun = self.send("POST", "/v2/lab/disk/blobs/uploads/", "application/octet-stream", b"");
        let location = begun.lines().find_map(|line| line.strip_prefix("Location: ")).unwrap();
        let path = location.trim().trim_start_matches(&format!("http://{}", self.address)).to_owned();
        let digest = digest(body).to_string();
        self.send("PUT", &format!("{path}&digest={digest}"), "application/octet-stream", body);
        digest
    }

    /// Pushes layers of (media type, title, content) under a tag; the digest of the manifest.
    fn push(&self, tag: &str, layers: &[(&str, &str, &[u8])]) -> String {
        let config = self.push_blob(b"{}");
        let layer = |(media_type, title, body): &(&str, &str, &[u8])| {
            let (digest, size) = (self.push_blob(body), body.len());
            let annotations = format!(r#"{{"org.opencontainers.image.title":"{title}"}}"#);
            format!(r#"{{"mediaType":"{media_type}","digest":"{digest}","size":{size},"annotations":{annotations}}}"#)
        };
        let layers = layers.iter().map(layer).collect::<Vec<_>>().join(",");
        let manifest = "application/vnd.oci.image.manifest.v1+json";
        let config =
            format!(r#"{{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"{config}","size":2}}"#);
        let body = format!(r#"{{"schemaVersion":2,"mediaType":"{manifest}","config":{config},"layers":[{layers}]}}"#);
        self.send("PUT", &format!("/v2/lab/disk/manifests/{tag}"), manifest, body.as_bytes());
        digest(body.as_bytes()).to_string()
    }

    fn url(&self, version: &str) -> String {
        format!("oci+http://{}/lab/disk{version}", self.address)
    }
}

#[test]
fn registry_layers_are_read_and_pinned_ones_are_proven() {
    let registry = Registry::start();
    let lines = Lines::default();
    let manifest = registry.push("v1", &[("application/zstd", "disk.zst", &content())]);
    for version in [":v1".to_owned(), format!("@{manifest}"), format!(":other@{manifest}")] {
        let image = image_at(&[&registry.url(&version)]);
        let mut source = open_source(&image, true, &lines).unwrap();
        assert!(read_on(&mut *source).unwrap() == content());
        assert_eq!((source.claimed_format(), source.total()), (Some(Format::Zstd), Some(3_000_000)));
        source.seek(1_000_000..1_000_100, &RUN).unwrap();
        assert_eq!(read_on(&mut *source).unwrap(), content()[1_000_000..1_000_100]);
    }
    let mut image = image_at(&[&registry.url(&format!("@{manifest}"))]);
    for proof in [Proof::Waived, Proof::Stored(manifest.parse().unwrap())] {
        image.proof = proof;
        let Resolved::Stored(layer) = resolve_proof(&image, &lines, &RUN).unwrap() else { panic!("not proven") };
        assert_eq!(layer, digest(&content()));
    }
    let gone = dead().replace("http://", "oci+http://").replace("/image", &format!("/lab/disk@{manifest}"));
    image.urls.insert(0, gone);
    let Ok(Resolved::Stored(layer)) = resolve_proof(&image, &lines, &RUN) else { panic!("one registry is enough") };
    assert_eq!(layer, digest(&content()));
    image.urls[1] = image.urls[0].clone();
    assert!(matches!(resolve_proof(&image, &lines, &RUN), Err(error) if error.retryable()), "none answers");

    image.urls = vec![registry.url(":v1")];
    image.proof = Proof::Waived;
    assert!(matches!(resolve_proof(&image, &lines, &RUN), Ok(Resolved::Waived)), "a tag proves nothing");

    registry.push("two", &[("x/y", "a.img", &content()), ("x/y", "b.img", b"small")]);
    let error = fetch(&image_at(&[&registry.url(":two")]), true, &lines).unwrap_err().to_string();
    assert!(error.contains("a.img") && error.contains("b.img"), "{error}");
    assert_eq!(fetch(&image_at(&[&registry.url(":two?layer=b.img")]), true, &lines).unwrap(), b"small");
    let error = fetch(&image_at(&[&registry.url(":none")]), true, &lines).unwrap_err();
    assert!(error.to_string().contains("404"), "{error}");
}

/// A registry that wants a token, which its token server gives for anna's password, and whose blobs lie elsewhere.
fn serve_token_registry(manifest: String, blob: Vec<u8>, heads: Arc<Mutex<Vec<String>>>) -> String {
    let seen = Arc::clone(&heads);
    let store = serve_content(blob, "", move |head| seen.lock().unwrap().push(format!("store {head}")));
    let seen = Arc::clone(&heads);
    let tokens = serve_raw(move |stream, head, _| {
        seen.lock().unwrap().push(format!("tokens {head}"));
        let scoped = head.contains("scope=repository%3aa%3apull") && head.contains("service=lab");
        let (status, body) = if scoped && head.contains("authorization: basic yw5uytpnzwhlaw0=") {
            ("200 OK", r#"{"token":"abc"}"#)
        } else {
            ("401 No", "")
        };
        // A client may hang up.
        let _ = write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    });
    let registry = serve_raw(move |stream, head, _| {
        // A client may hang up.
        let _ = if !head.contains("authorization: bearer abc") {
            write!(
                stream,
                "HTTP/1.1 401 No\r\nwww-authenticate: Bearer realm=\"{tokens}\",service=\"lab\",\
                 scope=\"repository:a:pull\"\r\ncontent-length: 0\r\n\r\n"
            )
        } else if head.contains("/blobs/") {
            write!(stream, "HTTP/1.1 307 There\r\nlocation: {store}\r\ncontent-length: 0\r\n\r\n")
        } else {
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{manifest}", manifest.len())
        };
    });
    registry.replace("http://", "oci+http://").replace("/image", "/a")
}

#[test]
fn a_registry_token_stays_with_its_registry() {
    let layer = digest(&content());
    let manifest = format!(r#"{{"schemaVersion":2,"layers":[{{"digest":"{layer}","size":3000000}}]}}"#);
    let (heads, lines) = (Arc::new(Mutex::new(Vec::new())), Lines::default());
    let registry = serve_token_registry(manifest.clone(), content(), Arc::clone(&heads));
    let mut image = image_at(&[&format!("{registry}@{}", digest(manifest.as_bytes()))]);
    image.access.authorization = Some(Authorization::Basic { user: "anna".into(), password: "geheim".into() });
    assert!(fetch(&image, true, &lines).unwrap() == content());
    for head in heads.lock().unwrap().iter().filter(|head| head.starts_with("store")) {
        assert!(!head.contains("authorization"), "{head}");
    }
    image.access.authorization = Some(Authorization::Basic { user: "anna".into(), password: "falsch".into() });
    let error = fetch(&image, true, &lines).unwrap_err().to_string();
    assert!(error.contains("401") && !error.contains("falsch"), "{error}");
    image.access.authorization = Some(Authorization::Basic { user: "anna".into(), password: "geheim".into() });
    image.urls = vec![format!("{registry}@{}", digest(b"another"))];
    assert_eq!(fetch(&image, true, &lines).unwrap_err().code(), ErrorCode::DigestMismatch);
}
