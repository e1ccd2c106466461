//! The operators' API: any method, path, query and body, as root and without a role. Always an answer in JSON, and never a fault of
//! the coordinator's own.
//!
//! Input: who and how, the target after its length, the body.
#![no_main]

use std::sync::{Arc, OnceLock};

use axum::{body::Body, http::Request};
use landfall_coordinator::{operator, pki::Pki, state::Coordinator, tls::Peer};
use landfall_coordinator_fuzz::{Input, ask, config, described, engine, run};
use landfall_store::Store;
use libfuzzer_sys::fuzz_target;

/// One CA for all inputs: making a key is slow.
fn pki() -> Arc<Pki> {
    static MADE: OnceLock<(tempfile::TempDir, Arc<Pki>)> = OnceLock::new();
    let (_, pki) = MADE.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let life = std::time::Duration::from_secs(3600);
        let pki = Pki::open(directory.path(), [10, 77, 0, 1].into(), life).expect("a CA");
        (directory, Arc::new(pki))
    });
    Arc::clone(pki)
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let how = input.u8();
    let method = ["GET", "POST", "DELETE", "PUT", "PATCH", "HEAD"][usize::from(how & 7) % 6];
    let target = input.text();
    let Ok(mut request) = Request::builder().method(method).uri(&target).body(Body::from(input.0.to_vec())) else {
        return;
    };
    let root = how & 8 == 0;
    // What goes on until the client goes away would not end here.
    let endless = target.contains("watch") || target.contains("follow");
    if endless {
        return;
    }
    run(async {
        let store = Store::memory();
        let engine = engine(&store).await;
        described(&engine).await;
        let coordinator =
            Coordinator { config: config("/nonexistent"), store, engine, pki: pki(), ops: Arc::default() };
        let peer = if root { Peer::Local { uid: 0, user: "root".into() } } else { Peer::Anonymous };
        request.extensions_mut().insert(peer);
        let (status, _, body) = ask(operator::router(Arc::new(coordinator)), request).await;
        assert!(status < 500, "{method} {target}: {status} {}", String::from_utf8_lossy(&body));
        assert!(root || status != 200 || ["/healthz", "/readyz"].iter().any(|open| target.contains(open)), "{target}");
    });
});
