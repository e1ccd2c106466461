//! Registries as sources: layers, tags, digests, tokens.
//!
//! The servers drop what their writes answer (`let _ =`): the client may have hung up, and what it reports is what counts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::common::digest;
use crate::common::fetch::{Lines, RUN, content, dead, fetch, image_at, read_on};
use crate::common::server::{serve_content, serve_raw};
use landfall_api::{ErrorCode, SecretText};
use landfall_disk::{
    Access, Authorization, CancelFlag, Format, Proof, Resolved, RootLayer, open_source, resolve_proof, root_layers,
};

/// Debian's registry server, with a folder of its own.
struct Registry {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = (self.child.kill(), self.child.wait());
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

#[test]
fn the_layers_of_a_root_are_proven_files_in_order() {
    const TAR: &str = "application/vnd.oci.image.layer.v1.tar";
    let (registry, lines, never) = (Registry::start(), Lines::default(), CancelFlag::new());
    let of = |url: &str| root_layers(url, &Access::default(), &lines, &never);
    let manifest = registry.push("root", &[(TAR, "", b"lower"), (TAR, "", b"upper")]);
    let layers = of(&registry.url(&format!("@{manifest}"))).unwrap();
    let read = |layer: &RootLayer| {
        let image = image_at(&[&layer.url]);
        let content = read_on(&mut *open_source(&image, true, &lines).unwrap()).unwrap();
        assert_eq!((digest(&content), content.len() as u64), (layer.digest, layer.size));
        content
    };
    assert_eq!(layers.iter().map(read).collect::<Vec<_>>(), [b"lower", b"upper"]);
    // A list for platforms: of each machine its own.
    let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let one = |digest: &str, architecture: &str| {
        let platform = format!(r#"{{"os":"linux","architecture":"{architecture}"}}"#);
        let kind = "application/vnd.oci.image.manifest.v1+json";
        format!(r#"{{"mediaType":"{kind}","digest":"{digest}","size":1,"platform":{platform}}}"#)
    };
    let kind = "application/vnd.oci.image.index.v1+json";
    let other = registry.push("other", &[(TAR, "", b"other")]);
    let list = [one(&other, "s390x"), one(&manifest, machine)].join(",");
    let list = format!(r#"{{"schemaVersion":2,"mediaType":"{kind}","manifests":[{list}]}}"#);
    registry.send("PUT", "/v2/lab/disk/manifests/list", kind, list.as_bytes());
    let listed = of(&registry.url(&format!("@{}", digest(list.as_bytes())))).unwrap();
    assert_eq!(listed.iter().map(read).collect::<Vec<_>>(), [b"lower", b"upper"]);

    let disk = registry.push("disk", &[("application/zstd", "disk.zst", b"x")]);
    for (version, part) in [
        (":root".to_owned(), "digest of a manifest"),
        (format!("@{manifest}?layer=x"), "digest of a manifest"),
        (format!("@{disk}"), "application/zstd"),
        (format!("@{}", digest(b"none")), "404"),
    ] {
        let error = of(&registry.url(&version)).unwrap_err().to_string();
        assert!(error.contains(part), "{version}: {error}");
    }
    assert!(of("http://h/root.tar").unwrap_err().to_string().contains("oci://"));
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
    image.access.authorization =
        Some(Authorization::Basic { username: "anna".into(), password: SecretText::new("geheim") });
    assert!(fetch(&image, true, &lines).unwrap() == content());
    for head in heads.lock().unwrap().iter().filter(|head| head.starts_with("store")) {
        assert!(!head.contains("authorization"), "{head}");
    }
    image.access.authorization =
        Some(Authorization::Basic { username: "anna".into(), password: SecretText::new("falsch") });
    let error = fetch(&image, true, &lines).unwrap_err().to_string();
    assert!(error.contains("401") && !error.contains("falsch"), "{error}");
    image.access.authorization =
        Some(Authorization::Basic { username: "anna".into(), password: SecretText::new("geheim") });
    image.urls = vec![format!("{registry}@{}", digest(b"another"))];
    assert_eq!(fetch(&image, true, &lines).unwrap_err().code(), ErrorCode::DigestMismatch);
}
