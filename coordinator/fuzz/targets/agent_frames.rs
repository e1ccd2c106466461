//! Arbitrary bytes as the agents' gRPC calls, raw and as the messages they claim to be: an answer, never a fault of the
//! coordinator's own.
//!
//! Input: which call and who calls, then the body: whole, or messages after their length.
#![no_main]

use landfall_coordinator::session;
use landfall_coordinator::tls::{MachineCert, Peer};
use landfall_coordinator_fuzz::{Input, ask, call, described, engine, framed, run};
use landfall_proto::v1;
use landfall_store::Store;
use libfuzzer_sys::fuzz_target;
use prost::Message as _;
use uuid::Uuid;

/// gRPC's code for a fault of the server's own.
const INTERNAL: &str = "13";

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let how = input.u8();
    let method = ["Enroll", "Session", "Telemetry", "Unknown"][usize::from(how & 3)];
    let mut body = Vec::new();
    // Whether the body is what the method takes: messages, and for the one that is no stream at least one.
    let mut messages = how & 4 != 0 && (method != "Enroll" || !input.0.is_empty());
    if how & 4 == 0 {
        body.extend_from_slice(input.0);
    } else {
        while !input.0.is_empty() {
            let message = input.bytes();
            messages &= match method {
                "Enroll" => v1::EnrollRequest::decode(message).is_ok(),
                "Session" => v1::SessionRequest::decode(message).is_ok(),
                _ => v1::TelemetryRequest::decode(message).is_ok(),
            };
            framed(message, &mut body);
        }
    }
    run(async {
        let store = Store::memory();
        let engine = engine(&store).await;
        described(&engine).await;
        let machine = store.machine("m1").await.expect("a store").expect("a machine");
        let peer = match how >> 3 & 3 {
            0 => Peer::Anonymous,
            1 => Peer::Machine(certificate(Uuid::nil())),
            _ => Peer::Machine(certificate(machine.metadata.uid.unwrap_or_default())),
        };
        let mut request = call(method, body);
        request.extensions_mut().insert(peer);
        let (status, grpc, _) = ask(session::router(engine.clone()), request).await;
        assert!(matches!(status, 200 | 404 | 405 | 415), "{status}");
        // The framework answers a frame that is cut or claims to be compressed, bytes that are no message, and a call of one
        // message whose body is empty.
        assert!(!messages || grpc.as_deref() != Some(INTERNAL), "a fault of the coordinator's own");
        // It still serves.
        assert!(engine.boot().boot_decision("52:54:00:00:00:01".parse().expect("an address"), None).await.is_ok());
    });
});

fn certificate(uid: Uuid) -> MachineCert {
    landfall_coordinator::fuzzing::machine_certificate("m1", uid)
}
