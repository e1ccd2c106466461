//! Paths, queries and headers of the plain HTTP port, metadata among them: always an answer, and never a server's fault.
//!
//! Input: method and asker, then the target and headers, each after its length.
#![no_main]

use std::{net::SocketAddr, sync::OnceLock};

use axum::{Router, body::Body, http::Request};
use landfall_boot::http::{Client, metadata};
use landfall_coordinator_fuzz::{Input, MAC, ask, run, table};
use libfuzzer_sys::fuzz_target;
use uuid::Uuid;

fuzz_target!(|data: &[u8]| {
    static ROUTER: OnceLock<Router> = OnceLock::new();
    let router = ROUTER.get_or_init(table::router).clone();
    let mut input = Input(data);
    let how = input.u8();
    let method = ["GET", "HEAD", "POST", "DELETE", "OPTIONS"][usize::from(how & 7) % 5];
    let target = input.text();
    let mut request = Request::builder().method(method).uri(&target);
    while !input.0.is_empty() {
        let name = ["range", "if-range", "if-none-match", "if-modified-since", "host"][usize::from(input.u8()) % 5];
        request = request.header(name, input.text().into_bytes());
    }
    let Ok(mut request) = request.body(Body::empty()) else { return };
    request.extensions_mut().insert(Client(SocketAddr::from(([10, 77, 0, how], 4711))));
    let (status, _, body) = run(ask(router, request));
    assert!(status < 500 && body.len() < 64 << 10, "{status}: {} bytes", body.len());

    let asker = metadata::Asker {
        ip: [10, 77, 0, 9].into(),
        mac: MAC.parse().expect("an address"),
        machine: landfall_boot::policy::PublicFacts { name: "m1".into(), uid: Uuid::nil(), by_token_only: true },
    };
    assert!(metadata::get(&target, &asker).is_none_or(|text| !text.is_empty() && text.len() < 1024));
});
