//! A registry for the tests of this crate.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use landfall_api::Digest;
use sha2::{Digest as _, Sha256};

/// A registry that has these at their paths, on loopback; its address.
pub(crate) fn serve(files: BTreeMap<String, Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let path = lines.next().and_then(|line| Some(line.split(' ').nth(1)?.to_owned())).unwrap_or_default();
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let body = files.get(&path).map_or(&b""[..], Vec::as_slice);
            let status = if body.is_empty() { "404 Not Found" } else { "200 OK" };
            let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
            // A client may hang up.
            drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)));
        }
    });
    address
}

/// SHA-256 of these bytes.
pub(crate) fn digest(bytes: &[u8]) -> Digest {
    Digest::from_sha256(Sha256::digest(bytes).into())
}
