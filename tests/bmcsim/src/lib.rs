//! A BMC for tests: Redfish over HTTP or HTTPS, IPMI 2.0 over LAN, or a webhook, with one switch for each complaint about real ones.
//!
//! What a client did is counted here, so that a test asserts what a BMC would see: failed logins, open sessions, starts.

mod answers;
mod auth;
mod computer;
mod hardware;
mod ipmi;
mod media;
mod quirks;
mod routes;
mod serial;
mod server;
mod shared;
mod webhook;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub use auth::Accounts;
pub use computer::{Computer, Start};
pub use hardware::{Hardware, Switch};
pub use media::Drive;
pub use quirks::{Eject, EntityTags, Insert, MediaAt, Quirks};
pub use serial::Serial;

use shared::Shared;

/// The account that it accepts at first.
pub const USERNAME: &str = "landfall";
/// Its password.
pub const PASSWORD: &str = "right";

/// What a test looks at and changes.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// What it does otherwise than it should.
    pub quirks: Quirks,
    /// Logins.
    pub accounts: Accounts,
    /// The computer.
    pub computer: Computer,
    /// Its serial port.
    pub serial: Serial,
    /// Its virtual CD drive.
    pub drive: Drive,
    /// Requests so far: each as method and path, or as a payload's type and a command with its data.
    pub requests: Vec<String>,
}

impl State {
    /// Notes a request; whether it is answered.
    fn takes(&mut self, request: String) -> bool {
        self.quirks.hangs |= self.quirks.hangs_at.is_some_and(|part| request.contains(part));
        self.requests.push(request);
        !self.quirks.hangs
    }
}

/// A BMC that runs until it is dropped.
pub struct BmcSim {
    shared: Shared,
    address: String,
    fingerprint: Option<[u8; 32]>,
    task: JoinHandle<()>,
}

impl BmcSim {
    /// Starts one on HTTP.
    pub async fn start(quirks: Quirks) -> Self {
        Self::serve(loopback().await, Shared::new(quirks), None)
    }

    /// Starts one on HTTPS, with a certificate of its own.
    pub async fn start_tls(quirks: Quirks) -> Self {
        let identity = server::Identity::generate(&quirks);
        Self::serve(loopback().await, Shared::new(quirks), Some(identity))
    }

    /// Starts one on HTTPS before a computer that is there, at a port that may be in another network.
    pub fn start_before(hardware: Arc<dyn Hardware>, listener: TcpListener, quirks: Quirks) -> Self {
        let (identity, shared) = (server::Identity::generate(&quirks), Shared::new(quirks));
        shared.lock().computer.hardware = Some(hardware);
        Self::serve(listener, shared, Some(identity))
    }

    /// Starts one on IPMI 2.0 over LAN.
    pub async fn start_ipmi(quirks: Quirks) -> Self {
        let shared = Shared::new(quirks);
        let (port, task) = ipmi::spawn(shared.clone()).await;
        Self { shared, address: format!("ipmi://127.0.0.1:{port}"), fingerprint: None, task }
    }

    /// Starts a web server in its place, on HTTP.
    pub async fn start_webhook(quirks: Quirks) -> Self {
        let (shared, listener) = (Shared::new(quirks), loopback().await);
        let address = format!("webhook+http://{}", listener.local_addr().expect("an address"));
        let task = server::spawn(listener, webhook::router(shared.clone()), None, || false);
        Self { shared, address, fingerprint: None, task }
    }

    fn serve(listener: TcpListener, shared: Shared, identity: Option<server::Identity>) -> Self {
        let (fingerprint, scheme) =
            (identity.as_ref().map(server::Identity::fingerprint), identity.as_ref().map_or("http", |_| "https"));
        let down = shared.clone();
        let is_down = move || down.lock().quirks.is_down;
        let address = format!("redfish+{scheme}://{}", listener.local_addr().expect("an address"));
        let task = server::spawn(listener, routes::router(shared.clone()), identity, is_down);
        Self { shared, address, fingerprint, task }
    }

    /// Its address, as a machine's document states it.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// SHA-256 of its certificate; absent over HTTP.
    pub const fn fingerprint(&self) -> Option<[u8; 32]> {
        self.fingerprint
    }

    /// What it has seen: a copy.
    pub fn seen(&self) -> State {
        self.shared.lock().clone()
    }

    /// Changes what it does.
    pub fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.lock());
    }

    /// The computer writes to its serial port.
    pub fn writes(&self, characters: &[u8]) {
        self.change(|state| state.serial.output.extend(characters));
        self.shared.notify();
    }

    /// The BMC ends Serial over LAN by itself.
    pub fn end_console(&self) {
        self.change(|state| state.serial.end());
        self.shared.notify();
    }

    /// It restarts after an outage: it answers again, and has lost its sessions and the boot device.
    pub fn restart(&self) {
        self.change(|state| {
            (state.quirks.hangs, state.quirks.hangs_at, state.quirks.is_down) = (false, None, false);
            state.accounts.sessions.clear();
            state.computer.forget_boot(&state.quirks);
        });
    }

    /// Waits until the state is as `wanted`, without end.
    pub async fn reaches(&self, wanted: impl Fn(&State) -> bool) {
        let mut changes = self.shared.changed.subscribe();
        while !wanted(&self.shared.lock()) {
            if changes.changed().await.is_err() {
                break;
            }
        }
    }

    /// Waits until the state is as `wanted`, at most 30 s.
    ///
    /// # Panics
    /// It is not as wanted in time.
    pub async fn until(&self, what: &str, wanted: impl Fn(&State) -> bool) {
        let outcome = timeout(Duration::from_secs(30), self.reaches(wanted)).await;
        assert!(outcome.is_ok(), "the BMC waited 30 s for: {what}\n{:#?}", self.shared.lock());
    }
}

async fn loopback() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.expect("a port on loopback")
}

impl Drop for BmcSim {
    fn drop(&mut self) {
        self.task.abort();
    }
}
