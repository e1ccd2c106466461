//! A BMC for tests: Redfish over HTTP or HTTPS, or IPMI 2.0 over LAN, with one switch for each complaint about real ones.
//!
//! What a client did is counted here, so that a test asserts what a BMC would see: failed logins, open sessions, starts.

mod auth;
mod computer;
mod ipmi;
mod quirks;
mod routes;
mod server;
mod shared;

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

pub use auth::Accounts;
pub use computer::{Computer, Start};
pub use quirks::{EntityTags, Quirks};

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
    /// Requests so far: each as method and path, or as a payload's type and a command with its data.
    pub requests: Vec<String>,
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
        Self::serve(quirks, None).await
    }

    /// Starts one on HTTPS, with a certificate of its own.
    pub async fn start_tls(quirks: Quirks) -> Self {
        Self::serve(quirks, Some(server::Identity::generate())).await
    }

    /// Starts one on IPMI 2.0 over LAN.
    pub async fn start_ipmi(quirks: Quirks) -> Self {
        let shared = Shared::new(quirks);
        let (port, task) = ipmi::spawn(shared.clone()).await;
        Self { shared, address: format!("ipmi://127.0.0.1:{port}"), fingerprint: None, task }
    }

    async fn serve(quirks: Quirks, identity: Option<server::Identity>) -> Self {
        let shared = Shared::new(quirks);
        let (fingerprint, scheme) =
            (identity.as_ref().map(server::Identity::fingerprint), identity.as_ref().map_or("http", |_| "https"));
        let down = shared.clone();
        let is_down = move || down.lock().quirks.is_down;
        let (port, task) = server::spawn(routes::router(shared.clone()), identity, is_down).await;
        Self { shared, address: format!("redfish+{scheme}://127.0.0.1:{port}"), fingerprint, task }
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

    /// Waits until the state is as `wanted`, at most 30 s.
    ///
    /// # Panics
    /// It is not as wanted in time.
    pub async fn until(&self, what: &str, wanted: impl Fn(&State) -> bool) {
        let mut changes = self.shared.changed.subscribe();
        let waits = async {
            while !wanted(&self.shared.lock()) {
                if changes.changed().await.is_err() {
                    break;
                }
            }
        };
        let outcome = timeout(Duration::from_secs(30), waits).await;
        assert!(outcome.is_ok(), "the BMC waited 30 s for: {what}\n{:#?}", self.shared.lock());
    }
}

impl Drop for BmcSim {
    fn drop(&mut self) {
        self.task.abort();
    }
}
