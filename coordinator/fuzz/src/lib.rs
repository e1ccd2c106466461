//! What several fuzz targets need: taking an input apart, a coordinator without a network, and a runtime whose time passes
//! by itself.

pub mod table;

use std::{future::Future, net::SocketAddr, sync::Arc};

use async_trait::async_trait;
use axum::{Router, body::Body, http::Request};
use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;
use landfall_api::{Document, Pin, Problem};
use landfall_coordinator::config::Config;
use landfall_coordinator::engine::{CertificateAuthority, Engine, IssuedCertificate, Settings, SourceChecker};
use landfall_store::Store;
use serde_json::{Value, json};
use tower::ServiceExt as _;
use uuid::Uuid;

/// The one machine's address.
pub const MAC: &str = "52:54:00:00:00:01";
/// No answer is larger, whatever is asked.
const MAX_ANSWER: usize = 4 << 20;

/// An input, taken apart from its front. Where it is used up, numbers are 0.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// The next two, little-endian.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// The next `count`, or what there is.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Bytes after their length (two bytes).
    pub fn bytes(&mut self) -> &'a [u8] {
        let count = self.u16();
        self.take(count.into())
    }

    /// Text after its length (one byte), whatever the bytes are.
    pub fn text(&mut self) -> String {
        let count = self.u8();
        String::from_utf8_lossy(self.take(count.into())).into_owned()
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let taken = self.take(N);
        out[..taken.len()].copy_from_slice(taken);
        out
    }
}

/// Runs to the end on one thread; waits are passed over.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().expect("a runtime").block_on(future)
}

/// Issues anything to anybody: keys are not what is fuzzed.
pub struct Issuer;

impl CertificateAuthority for Issuer {
    fn key_of_request(&self, csr_der: &[u8]) -> Result<String, Problem> {
        Ok(csr_der.iter().map(|byte| format!("{byte:02x}")).collect())
    }
    fn issue_machine(&self, _: &str, _: Uuid, csr_der: &[u8]) -> Result<IssuedCertificate, Problem> {
        Ok(IssuedCertificate {
            chain_der: vec![csr_der.to_vec()],
            serial_hex: "01".into(),
            not_after: jiff::Timestamp::MAX,
        })
    }
    fn pins(&self) -> Vec<Pin> {
        vec![Pin::from_sha256([0; 32])]
    }
}

/// Every image is there.
pub struct Sources;

#[async_trait]
impl SourceChecker for Sources {
    async fn check(&self, _: &landfall_api::Download) -> Result<(), Problem> {
        Ok(())
    }
}

/// A configuration without a network; `data_dir` is not touched.
pub fn config(data_dir: &str) -> Config {
    let text = format!(
        "data_dir = \"{data_dir}\"\nadvertise = \"10.77.0.1\"\n[tftp]\nenabled = false\n[boot]\nkernel = \"/k\"\n\
         initramfs = \"/i\"\nimages = \"/nonexistent\"\n"
    );
    toml::from_str(&text).expect("a configuration")
}

/// An engine over a store, as at a start of the coordinator. Its clock stands still.
pub async fn engine(store: &Store) -> Engine {
    let settings = Settings::from_config(&config("/nonexistent"), Default::default());
    let clock = Arc::new(|| Timestamp::from_second(1_700_000_000).expect("a time"));
    Engine::start(store.clone(), settings, clock, Arc::new(Issuer), Arc::new(Sources)).await.expect("an engine")
}

/// Applies a document that is known to be good.
pub async fn apply(engine: &Engine, kind: &str, name: &str, spec: Value) {
    let document =
        json!({"apiVersion": "landfall.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let document = Document::from_value(document).expect("a document");
    engine.documents().apply(document, "ann", false).await.expect("an applied document");
}

/// The one machine, and a template that writes, seeds and reboots.
pub async fn described(engine: &Engine) {
    let image = json!({"url": "http://10.77.0.1:7480/images/os.zst", "digest": format!("sha256:{}", "0a".repeat(32))});
    let actions = json!([
        {"name": "write", "writeImage": {"image": image}, "retry": {"maxAttempts": 2, "initialBackoff": "1s"}},
        {"name": "seed", "cloudInit": {}},
        {"name": "restart", "reboot": {}},
    ]);
    apply(engine, "Machine", "m1", json!({"identity": {"macs": [MAC]}})).await;
    apply(engine, "Template", "os", json!({"actions": actions})).await;
}

/// One request through a router: status, the gRPC status where there is one, and the body, which is bounded.
pub async fn ask(router: Router, mut request: Request<Body>) -> (u16, Option<String>, Vec<u8>) {
    request.extensions_mut().insert(SocketAddr::from(([10, 77, 0, 9], 4711)));
    let response = router.oneshot(request).await.unwrap_or_else(|never| match never {});
    let status = response.status().as_u16();
    let header = response.headers().get("grpc-status").cloned();
    let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await.expect("a bounded answer that ends");
    let grpc = header.or_else(|| body.trailers().and_then(|trailers| trailers.get("grpc-status").cloned()));
    (status, grpc.and_then(|code| code.to_str().ok().map(str::to_owned)), body.to_bytes().to_vec())
}

/// A message as gRPC frames it.
pub fn framed(message: &[u8], out: &mut Vec<u8>) {
    out.push(0);
    out.extend_from_slice(&(message.len() as u32).to_be_bytes());
    out.extend_from_slice(message);
}

/// A gRPC call of the agents' service.
pub fn call(method: &str, body: Vec<u8>) -> Request<Body> {
    Request::post(format!("http://c/landfall.agent.v1.AgentService/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::from(body))
        .expect("a request")
}
