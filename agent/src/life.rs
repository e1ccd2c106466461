//! The agent's life, as PID 1 and as an ordinary command: reach the coordinator, enrol, hold the session, execute
//! assignments. Every failed step logs what failed and what to do, and is retried for ever.

pub(crate) mod clock;
mod coordinator;
mod dry_run;
mod once;
mod serve;
mod uplink;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use landfall_api::message::{DiskReport, Identity, Proof, UnreadableDisk, Vitals};
use landfall_api::{DiskFacts, ErrorCode, MacAddr, MachineFacts, NicFacts, Problem, SecretText};
use landfall_session::{
    AgentKey, Backoff, BootToken, Changing, EnrollError, Enrolled, Host, Looking, News, Seen, Session, SessionConfig,
    Target, boot_token,
};
use tokio::{sync::watch, time::timeout};

pub(crate) use self::coordinator::{ByNetwork, Coordinator, Kept};
pub(crate) use self::once::{Once, Verdict};
use self::serve::Ending;
use crate::disks::{Disks, OnDisks};
use crate::drivers::SETTLE_LIMIT;
use crate::facts::{self, Slow};
use crate::logging::Tail;
use crate::net::{Neighbours, Network, Uplink};
use crate::ownership::owns_machine;
use crate::status::Board;
use crate::thread::on_thread;

/// Waits between attempts.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Between requests for a token of a machine without a workflow.
const IDLE_WAIT: Duration = Duration::from_secs(15);
/// Ports that a token is asked for; a document names at most so many.
const MAX_ASKED: usize = 64;
/// After a refusal that only a person can lift.
const HELD_WAIT: Duration = Duration::from_secs(60);

/// What the agent needs to know before it starts.
pub(crate) struct Life {
    /// Where the coordinator is, and its pins.
    pub(crate) coordinator: Coordinator,
    /// The one-time token; without one the coordinator is asked for it, and otherwise a person must approve the key.
    pub(crate) token: Option<SecretText>,
    /// The port to try first.
    pub(crate) boot_port: Option<MacAddr>,
    /// The network ports, if the agent brings them up itself.
    pub(crate) network: Option<Network>,
    /// Whether the drivers of this machine's devices are loaded; absent if the agent does not load them.
    pub(crate) drivers_settled: Option<watch::Receiver<bool>>,
    /// The disks, watched.
    pub(crate) disks: Disks,
    /// Where it says what it does.
    pub(crate) board: Board,
    /// The log's memory.
    pub(crate) tail: Tail,
    /// Whether one workflow alone is done.
    pub(crate) once: Once,
}

/// Why the machine should go down now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// A workflow's last action: restart the machine.
    Reboot,
    /// A workflow's last action: turn the machine off.
    PowerOff,
    /// A workflow's last action: start the loaded kernel.
    Kexec,
    /// There is no workflow, and the machine boots its own disk.
    BootDisk,
}

impl Life {
    /// Lives until the machine should restart.
    pub(crate) async fn live(self) -> End {
        let key = loop {
            match AgentKey::generate() {
                Ok(key) => break key,
                Err(e) => tracing::error!(
                    "{e}: {}; trying again",
                    Problem::new(landfall_api::ErrorCode::Internal, "no key").caused_by(&e)
                ),
            }
            tokio::time::sleep(FIRST_WAIT).await;
        };
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        let neighbours = self.network.as_ref().map_or_else(Neighbours::none, Network::neighbours);
        let late = LateFacts { neighbours, slow: Slow::ask() };
        loop {
            let (target, uplink) = self.reach().await;
            if self.token.is_none() {
                // An enrolment rule may judge this machine by its facts.
                self.wait_for_drivers().await;
            }
            let (enrolled, proof) = match self.enroll_or_wait(&target, uplink.as_ref(), &key, &late).await {
                Ok(enrolled) => enrolled,
                Err(e) => {
                    self.leave(uplink).await;
                    let wait = e.retry_after.unwrap_or_else(|| if e.retryable { backoff.step() } else { HELD_WAIT });
                    tracing::error!("enrolment failed: {}; next attempt in {} s", e.problem, wait.as_secs().max(1));
                    self.board.failed(format!("enrolment: {}", e.problem));
                    tokio::time::sleep(wait).await;
                    continue;
                }
            };
            let target = self.coordinator.keep(target);
            let enrolled_at = landfall_session::boot_time();
            backoff.reset();
            tracing::info!(
                "enrolled as {} ({}) {:.1} s after the kernel's start",
                enrolled.machine_name,
                enrolled.machine_uid,
                enrolled_at.as_secs_f32()
            );
            self.board.change(|status| {
                status.machine = Some(enrolled.machine_name.clone());
                status.now = "waiting for the coordinator's instructions".to_owned();
                (status.fingerprint, status.error) = (None, None);
            });
            if owns_machine() {
                clock::set(enrolled.coordinator_time);
            }
            // Enrolling takes one port; the hello names every port, and they come with their drivers.
            self.wait_for_drivers().await;
            let seen = gather(&late).await;
            let identity = facts::identity(&seen);
            let config = SessionConfig {
                target: target.clone(),
                credentials: enrolled.credentials,
                software: env!("CARGO_PKG_VERSION").to_owned(),
                identity: identity.clone(),
                boot_id: facts::boot_id(),
                enrolled_at,
            };
            let (session, instructions) =
                Session::start(config, Arc::new(ThisMachine { disks: self.disks.clone(), late: late.clone() }));
            let keeper = self.keep_uplink(uplink, &target, session.connection());
            let renew = || enroll(&target, &identity, &key, &seen, &proof);
            tokio::spawn({
                let (board, connection) = (self.board.clone(), session.connection());
                async move { board.follow(connection).await }
            });
            let ending = tokio::select! {
                ending = serve::serve(&session, instructions, &self.disks, (&self.board, &self.tail), &self.once, &renew) => ending,
                never = keeper => match never {},
            };
            session.close().await;
            match ending {
                Ending::Restart(end) => return end,
                Ending::Over(problem) => {
                    tracing::error!(
                        "the coordinator holds this machine: {problem}; next enrolment in {} s",
                        HELD_WAIT.as_secs()
                    );
                    self.board.change(|status| {
                        status.now = "held by the coordinator; the agent enrols again later".to_owned();
                        status.error = Some(problem.to_string());
                    });
                    tokio::time::sleep(HELD_WAIT).await;
                }
            }
        }
    }

    /// Bounded: a controller whose driver hangs while it is loaded must not keep the machine from its coordinator.
    async fn wait_for_drivers(&self) {
        let Some(settled) = &self.drivers_settled else { return };
        match timeout(SETTLE_LIMIT, settled.clone().wait_for(|settled| *settled)).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => tracing::error!("loading drivers failed; continuing with the devices found so far"),
            Err(_) => tracing::warn!(
                "drivers are still being loaded after {} s; continuing with the ports found so far",
                SETTLE_LIMIT.as_secs()
            ),
        }
    }

    /// Repeats the request over the same port as long as only an approval or a workflow is missing. The facts are collected again for
    /// each request: a disk or a port may have appeared, and with it a rule that approves this machine.
    async fn enroll_or_wait(
        &self, target: &Target, uplink: Option<&Uplink>, key: &AgentKey, late: &LateFacts,
    ) -> Result<(Enrolled, Proof), EnrollError> {
        let mut said = false;
        loop {
            // Only a key that waits for approval is judged by the facts, and they take a while to collect.
            let mut seen = collected(facts::collect_identity).await;
            let asked = self.proof(target, uplink, key, &seen, &mut said).await;
            let unasked = |problem| EnrollError { problem, retryable: true, retry_after: None };
            let Some(proof) = asked.map_err(unasked)? else {
                tokio::time::sleep(IDLE_WAIT).await;
                continue;
            };
            if matches!(proof, Proof::Approval { .. }) {
                seen = gather(late).await;
            }
            match enroll(target, &facts::identity(&seen), key, &seen, &proof).await {
                Err(EnrollError { problem, retry_after: Some(after), .. }) if problem.code == ErrorCode::Unapproved => {
                    tracing::info!(
                        "waiting for approval: {}; next request in {} s",
                        problem.message,
                        after.as_secs().max(1)
                    );
                    tokio::time::sleep(after).await;
                }
                Ok(enrolled) => return Ok((enrolled, proof)),
                Err(refused) => return Err(refused),
            }
        }
    }

    /// What proves this machine; nothing while it has no workflow. `said`: whether that is on the console already.
    ///
    /// The uplink's port is asked for first, then the others: a document need not name them all.
    async fn proof(
        &self, target: &Target, uplink: Option<&Uplink>, key: &AgentKey, seen: &MachineFacts, said: &mut bool,
    ) -> Result<Option<Proof>, Problem> {
        if let Some(token) = &self.token {
            return Ok(Some(Proof::BootToken(token.clone())));
        }
        let is_uplink = |nic: &&NicFacts| uplink.is_some_and(|uplink| uplink.name == nic.name);
        let ports = seen.nics.iter().filter(is_uplink).chain(seen.nics.iter().filter(|nic| !is_uplink(nic)));
        let (uuid, mut reasons) = (facts::identity(seen).smbios_uuid, BTreeSet::new());
        for port in ports.take(MAX_ASKED) {
            match boot_token(target, port.mac, uuid).await? {
                BootToken::Given(token) => return Ok(Some(Proof::BootToken(token))),
                BootToken::NoWorkflow(why) => {
                    self.board.change(|status| (status.now, status.fingerprint) = (why.clone(), None));
                    if !std::mem::replace(said, true) {
                        tracing::info!("{why}; the agent asks again every {} s", IDLE_WAIT.as_secs());
                        tracing::info!("to start its installed system, put the disk in front of this boot medium");
                    }
                    return Ok(None);
                }
                BootToken::None(why) => reasons.insert(why),
            };
        }
        let reasons: Vec<String> = reasons.into_iter().collect();
        tracing::info!("no boot token ({}): a person or a rule approves this machine's key.", reasons.join("; "));
        tracing::info!("Its fingerprint is");
        tracing::info!("    {}", key.readable_fingerprint());
        self.board.change(|status| {
            status.now = "waiting until a person or a rule approves this machine's key".to_owned();
            status.fingerprint = Some(key.readable_fingerprint());
        });
        Ok(Some(Proof::Approval { fingerprint: key.fingerprint() }))
    }
}

async fn enroll(
    target: &Target, identity: &Identity, key: &AgentKey, seen: &MachineFacts, proof: &Proof,
) -> Result<Enrolled, EnrollError> {
    let (software, boot_id) = (env!("CARGO_PKG_VERSION"), facts::boot_id());
    match proof {
        Proof::Approval { .. } => {
            landfall_session::enroll_with_facts(target, software, identity, &boot_id, proof, key, seen).await
        }
        Proof::BootToken(_) | Proof::Renewal => {
            landfall_session::enroll(target, software, identity, &boot_id, proof, key).await
        }
    }
}

/// Facts that come when they come, beside those that are collected at once.
#[derive(Clone)]
struct LateFacts {
    neighbours: Neighbours,
    slow: Slow,
}

impl LateFacts {
    fn fill(&self, facts: &mut MachineFacts) {
        self.neighbours.fill(facts);
        self.slow.fill(facts);
    }

    /// Waits until there is one that `facts` do not have.
    async fn changed(&self, facts: &MachineFacts) {
        tokio::select! {
            () = self.neighbours.changed(facts) => {}
            () = self.slow.changed(facts) => {}
        }
    }
}

async fn gather(late: &LateFacts) -> MachineFacts {
    let mut facts = collected(facts::collect).await;
    late.fill(&mut facts);
    facts
}

/// Facts from a thread that may block.
async fn collected(how: fn() -> MachineFacts) -> MachineFacts {
    on_thread("facts", how).await.unwrap_or_else(|e| {
        tracing::error!("cannot collect facts: {e}");
        MachineFacts::default()
    })
}

/// What the session needs from the machine.
struct ThisMachine {
    disks: Disks,
    late: LateFacts,
}

impl ThisMachine {
    /// The receipts on these disks, and the disks with what is on them.
    async fn read_disks(&self, disks: Vec<DiskFacts>, health: bool) -> (OnDisks, Vec<DiskFacts>) {
        let (receipts, contents, mut filled) =
            (self.disks.receipts().clone(), self.disks.contents().clone(), disks.clone());
        let read = on_thread("receipts", move || {
            let found = receipts.on(&filled);
            let answers = |disk: &DiskFacts| !found.unreadable.iter().any(|unread| unread.disk == disk.id);
            contents.fill(&mut filled, answers, health);
            (found, filled)
        });
        read.await.unwrap_or_else(|e| {
            tracing::error!("cannot read receipts: {e}");
            let unread = |disk: &DiskFacts| UnreadableDisk { disk: disk.id.clone(), reason: e.to_string() };
            (OnDisks { receipts: Vec::new(), unreadable: disks.iter().map(unread).collect() }, disks)
        })
    }

    /// With `health`, disks are asked for theirs too.
    async fn see(&self, health: bool) -> Seen {
        let set = self.disks.set();
        let mut facts = gather(&self.late).await;
        let mut found = OnDisks::default();
        if set.complete {
            (found, facts.disks) = self.read_disks(facts.disks, health).await;
        }
        // What was found of a set that changed meanwhile is neither the old one nor the new one.
        let scanning = !set.complete || self.disks.set() != set;
        if scanning {
            found = OnDisks::default();
        }
        let disks = facts.disks.iter().map(|disk| disk.id.clone()).collect();
        let OnDisks { receipts, unreadable } = found;
        Seen { disks: DiskReport { generation: set.generation, disks, receipts, unreadable }, scanning, facts }
    }
}

impl Host for ThisMachine {
    fn look(&self) -> Looking<'_> {
        Box::pin(self.see(true))
    }
    fn glance(&self) -> Looking<'_> {
        // A disk that formats itself answers once it is done, and the kernel resets one that does not answer.
        Box::pin(self.see(false))
    }
    fn changed<'a>(&'a self, seen: &'a Seen) -> Changing<'a> {
        Box::pin(self.disks.complete(|set| seen.scanning || set.generation != seen.disks.generation))
    }
    fn news<'a>(&'a self, facts: &'a MachineFacts) -> News<'a> {
        Box::pin(async move {
            self.late.changed(facts).await;
            let mut facts = facts.clone();
            self.late.fill(&mut facts);
            facts
        })
    }
    fn vitals(&self) -> Vitals {
        facts::vitals()
    }
}
