//! A computer: powered on, booted as the coordinator decides, run by its agent, disconnected, crashed, and powered on
//! again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_api::SecretText;
use landfall_api::message::{Identity, PhoneHomeReport, Proof, Vitals};
use landfall_boot::policy::Decision;
use landfall_session::{
    AgentKey, BootClock, Changing, Connection, Credentials, Host, Instruction, Looking, Seen, Session, SessionConfig,
    SessionHandle, Surroundings, Target, enroll_over,
};
use landfall_sim::chance::Chance;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::disk::Disk;
use super::flag::Flag;
use super::net::{Line, Net, Port};
use super::runner::{Ended, Runner, Stop};
use super::truth::Truth;
use super::up::Up;

/// The MAC of that machine.
pub(crate) fn mac(machine: u64) -> String {
    format!("52:54:00:00:00:{machine:02x}")
}

/// Its name.
pub(crate) fn name(machine: u64) -> String {
    format!("m{machine}")
}

/// How long an idle machine waits for a person.
const PATIENCE: u64 = 900;

/// One computer.
pub(crate) struct Computer {
    /// Which machine it is, or claims to be.
    pub(crate) machine: u64,
    /// Its unique number.
    pub(crate) number: u64,
    pub(crate) disk: Arc<Mutex<Disk>>,
    pub(crate) net: Net,
    pub(crate) up: Up,
    pub(crate) truth: Truth,
    pub(crate) chance: Chance,
    pub(crate) calm: Flag<bool>,
}

/// What the session needs from the machine.
struct Looks {
    disk: Arc<Mutex<Disk>>,
    /// When its buses have been scanned, in this boot.
    scanned: Instant,
}

impl Host for Looks {
    fn look(&self) -> Looking<'_> {
        let scanning = Instant::now() < self.scanned;
        let disk = self.disk.lock().unwrap();
        let receipts = disk.receipt.iter().filter(|_| !scanning).cloned().collect();
        Seen { scanning, ..Seen::disks(vec![disk.id.clone()], receipts) }.at_once()
    }
    fn changed<'a>(&'a self, seen: &'a Seen) -> Changing<'a> {
        Box::pin(async {
            if !seen.scanning {
                std::future::pending::<()>().await;
            }
            sleep_until(self.scanned).await;
        })
    }
    fn vitals(&self) -> Vitals {
        Vitals::default()
    }
}

fn identity(machine: u64) -> Identity {
    Identity { macs: vec![mac(machine).parse().unwrap()], ..Identity::default() }
}

impl Computer {
    /// Boots again and again until the runtime ends.
    pub(crate) async fn run(mut self) {
        for boot in 1u64.. {
            let power = Flag::new(true);
            let apart = Flag::new(false);
            let number = self.number * 1_000_000 + boot;
            let port = Port { net: self.net.clone(), number, power: power.clone(), apart: apart.clone() };
            let calm = self.calm.get();
            let dies = if !calm && self.chance.percent(40) { 1 + self.chance.below(400) } else { u64::MAX >> 8 };
            let mut weather = self.chance.split();
            let (quiet, truth) = (self.calm.clone(), self.truth.clone());
            let weather = async {
                loop {
                    if quiet.get() {
                        apart.set(false);
                        std::future::pending::<()>().await;
                    }
                    sleep(Duration::from_secs(10 + weather.below(300))).await;
                    truth.saw(format!("computer {number} is cut off"));
                    apart.set(true);
                    // Shorter than a lease mostly, and sometimes longer.
                    let long = if weather.percent(25) { 200 } else { 20 };
                    drop(timeout(Duration::from_secs(1 + weather.below(long)), quiet.until(|calm| *calm)).await);
                    apart.set(false);
                }
            };
            let life = Life { computer: number, chance: self.chance.split(), port, of: &self };
            let how = tokio::select! {
                biased;
                how = life.live() => how,
                () = sleep(Duration::from_secs(dies)) => "lost its power",
                () = weather => "",
            };
            power.set(false);
            let line = if self.chance.percent(50) { Line::Cut } else { Line::Silent };
            self.net.unplug(number, line);
            self.truth.saw(format!("computer {number} {how}"));
            sleep(Duration::from_secs(5 + self.chance.below(60))).await;
        }
    }
}

/// One boot.
struct Life<'c> {
    computer: u64,
    chance: Chance,
    port: Port,
    of: &'c Computer,
}

impl Life<'_> {
    async fn live(mut self) -> &'static str {
        let Some(token) = self.boot().await else { return self.own_disk().await };
        sleep(Duration::from_secs(10 + self.chance.below(30))).await;
        let (world, key) = (self.world(), AgentKey::generate().unwrap());
        let Some(credentials) = self.enrol(&key, &token).await else {
            sleep(Duration::from_secs(60)).await;
            return "could not enrol";
        };
        let config = SessionConfig {
            target: target(),
            credentials,
            software: "0.1.0".into(),
            identity: identity(self.of.machine),
            boot_id: format!("boot-{}", self.computer),
            enrolled_at: Duration::from_secs(1),
        };
        // Sometimes a bus is slow, also slower than a lost connection.
        let scan = if self.chance.percent(50) { self.chance.below(40) } else { 0 };
        let looks = Looks { disk: self.of.disk.clone(), scanned: Instant::now() + Duration::from_secs(scan) };
        let (session, instructions) = Session::start_in(world, config, Arc::new(looks));
        self.agent(session, instructions, &key, &token).await
    }

    /// The firmware's question. Without an answer the machine boots its own disk.
    async fn boot(&self) -> Option<String> {
        let engine = timeout(Duration::from_secs(20), self.of.up.wait()).await.ok()?;
        if self.port.apart.get() {
            return None;
        }
        let decision = engine.boot().boot_decision(mac(self.of.machine).parse().unwrap(), None);
        match timeout(Duration::from_secs(30), decision).await.ok()?.ok()? {
            Decision::RunAgent { token, .. } => Some(token),
            _ => None,
        }
    }

    fn world(&mut self) -> Surroundings {
        let (begun, chance) = (Instant::now(), Mutex::new(self.chance.split()));
        Surroundings {
            dial: Arc::new(self.port.clone()),
            clock: BootClock::new(move || begun.elapsed()),
            chance: Arc::new(move || chance.lock().unwrap().next()),
        }
    }

    /// The installed system, which phones home, or a disk that does not boot; until a person restarts the machine.
    async fn own_disk(mut self) -> &'static str {
        let installed = self.of.disk.lock().unwrap().installed.clone();
        if let Some((_, Some(bearer))) = installed {
            sleep(Duration::from_secs(10 + self.chance.below(60))).await;
            for _ in 0..30 {
                let engine = self.of.up.any().filter(|_| !self.port.apart.get());
                if let Some(engine) = engine {
                    let call = engine.sessions().phone_home(&bearer, PhoneHomeReport::default());
                    if let Ok(Ok(())) = timeout(Duration::from_secs(30), call).await {
                        self.of.truth.saw("phoned home");
                        break;
                    }
                }
                sleep(Duration::from_secs(10)).await;
            }
        }
        sleep(Duration::from_secs(60 + self.chance.below(PATIENCE))).await;
        "was restarted by a person"
    }

    async fn enrol(&mut self, key: &AgentKey, token: &str) -> Option<Credentials> {
        let (proof, identity) = (Proof::BootToken(SecretText::new(token)), identity(self.of.machine));
        for _ in 0..20 {
            let boot_id = format!("boot-{}", self.computer);
            match enroll_over(&self.port, &target(), "0.1.0", &identity, &boot_id, &proof, key).await {
                Ok(enrolled) => return Some(enrolled.credentials),
                Err(error) if !error.retryable => {
                    self.of.truth.saw(format!("computer {} was not enrolled: {:?}", self.computer, error.problem.code));
                    return None;
                }
                Err(_) => sleep(Duration::from_secs(1 + self.chance.below(10))).await,
            }
        }
        None
    }

    /// A small version of the agent's main loop: one workflow at a time, and the coordinator's instructions for it.
    async fn agent(
        &mut self, session: SessionHandle, mut instructions: mpsc::Receiver<Instruction>, key: &AgentKey, token: &str,
    ) -> &'static str {
        let mut connection = session.connection();
        let (truth, machine) = (self.of.truth.clone(), name(self.of.machine));
        let watcher = async {
            loop {
                if let Connection::Connected { epoch } = *connection.borrow_and_update() {
                    truth.welcomed(&machine, epoch);
                }
                if connection.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        let follow = async {
            let mut running: Option<Runner> = None;
            let mut next: Option<(Box<landfall_api::message::Assignment>, landfall_session::LeaseWatch)> = None;
            loop {
                let instruction = tokio::select! {
                    biased;
                    ended = async { match running.as_mut() {
                        Some(runner) => runner.run().await,
                        None => std::future::pending().await,
                    } } => {
                        running = None;
                        match ended {
                            Ended::Restart => return "restarts",
                            Ended::Stays => {}
                        }
                        if let Some((assignment, lease)) = next.take() {
                            running = Some(self.runner(*assignment, lease, &session));
                        }
                        continue;
                    }
                    instruction = instructions.recv() => instruction,
                };
                match instruction {
                    Some(Instruction::Assign { assignment, lease }) => match &running {
                        Some(r) if r.workflow() == assignment.workflow_uid && r.lease_holds() => {}
                        Some(_) => next = Some((assignment, lease)),
                        None => running = Some(self.runner(*assignment, lease, &session)),
                    },
                    Some(Instruction::Cancel { workflow_uid, .. }) => {
                        next.take_if(|(assignment, _)| assignment.workflow_uid == workflow_uid);
                        if let Some(runner) = running.as_ref().filter(|r| r.workflow() == workflow_uid) {
                            runner.stop(Stop::Cancelled);
                        }
                    }
                    Some(Instruction::Fenced { .. }) => {
                        next = None;
                        if let Some(runner) = &running {
                            runner.stop(Stop::Fenced);
                        }
                    }
                    Some(Instruction::Idle { boot_disk: true, .. }) if running.is_none() => return "boots its own disk",
                    // Workflows are never paused here, no list has a hold, and no person tries one out.
                    Some(
                        Instruction::Check(_)
                        | Instruction::Control { .. }
                        | Instruction::Idle { .. }
                        | Instruction::Refused { .. },
                    ) => {}
                    None => {
                        // The session ended by itself: a new certificate cures a refused one.
                        let renewed = match self.enrol(key, token).await {
                            Some(credentials) => session.restart(credentials).ok(),
                            None => None,
                        };
                        match renewed {
                            Some(again) => instructions = again,
                            None => {
                                if let Some(runner) = running.as_mut() {
                                    runner.stop(Stop::Fenced);
                                    runner.run().await;
                                }
                                return "was refused";
                            }
                        }
                    }
                }
            }
        };
        tokio::select! {
            biased;
            () = watcher => "",
            how = follow => how,
        }
    }
}

impl Life<'_> {
    fn runner(
        &mut self, assignment: landfall_api::message::Assignment, lease: landfall_session::LeaseWatch,
        session: &SessionHandle,
    ) -> Runner {
        self.of.truth.saw(format!(
            "computer {} begins at action {}, attempt {}",
            self.computer, assignment.start_index, assignment.start_attempt
        ));
        let (disk, truth) = (self.of.disk.clone(), self.of.truth.clone());
        Runner::new(assignment, lease, session.clone(), disk, truth, self.computer, self.chance.split())
    }
}

fn target() -> Target {
    Target::new("https://10.77.0.1:7443", vec![landfall_session::pin_of_spki(b"not checked here")]).unwrap()
}
