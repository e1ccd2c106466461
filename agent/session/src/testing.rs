//! Doubles for tests of what a session is part of: a computer that does nothing, a coordinator that does not answer, and the
//! enrolment that a boot script leads to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use landfall_api::message::{Identity, Proof, Vitals};
use landfall_api::{DiskId, MacAddr, Pin, SecretText};
use tokio::sync::mpsc;

use crate::{
    AgentKey, BootClock, ConnectError, Credentials, Dial, Dialling, Host, Instruction, Looking, Seen, Session,
    SessionConfig, SessionHandle, Surroundings, Target, Validity, boot_time, enroll,
};

/// A computer with these disks, on which nothing happens.
#[derive(Debug, Default)]
pub struct Still(pub Vec<DiskId>);

impl Host for Still {
    fn look(&self) -> Looking<'_> {
        Seen::disks(self.0.clone(), vec![]).at_once()
    }
    fn vitals(&self) -> Vitals {
        Vitals { uptime: boot_time(), peak_rss_bytes: 1 << 20 }
    }
}

/// A coordinator that refuses the certificate of so many connections, which ends each session, and is silent to every other.
#[derive(Debug, Default)]
pub struct Silent(AtomicUsize);

impl Dial for Silent {
    fn dial<'a>(&'a self, _: &'a Target, _: Validity, _: Option<&'a Credentials>) -> Dialling<'a> {
        if self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err() {
            return Box::pin(std::future::pending());
        }
        let address = ([127, 0, 0, 1], 1).into();
        let source = rustls::Error::AlertReceived(rustls::AlertDescription::CertificateExpired);
        Box::pin(async move { Err(ConnectError::CredentialsRefused { address, source }) })
    }
}

/// Credentials that no coordinator issued.
pub fn credentials() -> Credentials {
    Credentials::new(AgentKey::generate().unwrap(), Vec::new())
}

/// A session whose certificate is refused so many times, and then nothing is heard.
pub fn session(refused: usize) -> (SessionHandle, mpsc::Receiver<Instruction>) {
    let pin = format!("sha256:{}", "00".repeat(32)).parse().unwrap();
    let config = SessionConfig {
        target: Target::new("https://127.0.0.1:1", vec![pin]).unwrap(),
        credentials: credentials(),
        software: String::new(),
        identity: Identity::default(),
        boot_id: String::new(),
        enrolled_at: Duration::ZERO,
    };
    let dial = Arc::new(Silent(refused.into()));
    let world = Surroundings { dial, clock: BootClock::new(boot_time), chance: Arc::new(|| 0) };
    Session::start_in(world, config, Arc::new(Still::default()))
}

/// What the agent finds on the command line in its boot script.
#[derive(Debug)]
pub struct Booted {
    /// Where the coordinator is, and its pinned keys.
    pub target: Target,
    /// The proof for the enrolment.
    pub token: SecretText,
}

impl Booted {
    /// Reads a boot script.
    ///
    /// # Errors
    /// It does not start the agent.
    pub fn of_script(script: &str) -> Result<Self, String> {
        let word = |name: &str| {
            let rest = script.split(name).nth(1).and_then(|rest| rest.split_whitespace().next());
            rest.ok_or_else(|| format!("no {name} in the boot script: {script}"))
        };
        let pin = word("landfall.ca=")?.parse::<Pin>().map_err(|e| e.to_string())?;
        let target = Target::new(word("landfall.coordinator=")?, vec![pin]).map_err(|e| e.to_string())?;
        Ok(Self { target, token: SecretText::new(word("landfall.token=")?) })
    }

    /// Enrols a computer with one port, and opens its session.
    ///
    /// # Errors
    /// It is not enrolled.
    pub async fn start(
        self, name: &str, mac: MacAddr, host: Still,
    ) -> Result<(SessionHandle, mpsc::Receiver<Instruction>), String> {
        let identity = Identity { macs: vec![mac], ..Identity::default() };
        let key = AgentKey::generate().map_err(|e| e.to_string())?;
        let (target, proof, boot_id) = (self.target, Proof::BootToken(self.token), format!("boot-{name}"));
        let software = env!("CARGO_PKG_VERSION");
        let enrolled = enroll(&target, software, &identity, &boot_id, &proof, &key).await;
        let credentials = enrolled.map_err(|e| format!("{name} is not enrolled: {}", e.problem))?.credentials;
        let software = software.to_owned();
        let enrolled_at = boot_time();
        let config = SessionConfig { target, credentials, software, identity, boot_id, enrolled_at };
        Ok(Session::start(config, Arc::new(host)))
    }
}
