//! What iPXE's query strings become: a script of known lines, with nothing of the asker's own in it.
#![no_main]

use std::sync::OnceLock;

use axum::{Router, body::Body, http::Request};
use landfall_coordinator_fuzz::{ask, run, table};
use libfuzzer_sys::fuzz_target;

/// How a line of a script may begin.
const WORDS: [&str; 16] = [
    "#!ipxe", "#", ":", "echo", "set ", "inc ", "kernel ", "initrd ", "boot", "exit", "chain ", "sleep ", "goto ",
    "iseq ", "sanboot", "imgfree",
];

fuzz_target!(|query: &str| {
    static ROUTER: OnceLock<Router> = OnceLock::new();
    let router = ROUTER.get_or_init(table::router).clone();
    let Ok(request) = Request::get(format!("/boot/ipxe?{query}")).body(Body::empty()) else { return };
    let (status, _, body) = run(ask(router, request));
    assert!(matches!(status, 200 | 400), "{status}");
    if status != 200 {
        return;
    }
    let script = String::from_utf8(body).expect("a script is text");
    assert!(script.starts_with("#!ipxe\n"));
    for line in script.lines().map(str::trim_start).filter(|line| !line.is_empty()) {
        let line = line.trim_start_matches(['|', '&', ' ']);
        assert!(WORDS.iter().any(|word| line.starts_with(word)), "a line that is not ours: {line:?}");
        assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
    }
    assert!(!script.contains("t0ken") || query.to_ascii_lowercase().contains("01"), "a token is its machine's own");
});
