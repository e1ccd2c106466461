//! A machine's newest session: who holds it, when it was heard, what it was promised.

use std::time::Duration;

use jiff::Timestamp;
use landfall_api::message::{Hello, Vitals};
use landfall_api::{DiskId, DiskReceipt, MachineStatus};

use crate::epoch::Epoch;
use crate::lease::Lease;
use crate::limits::Limits;
use crate::time::{Now, Steady};

/// The status notes an agent's peak memory when it has grown by this much, bytes.
const RSS_STEP: u64 = 1 << 20;
/// Heartbeats are many and the status is for people: it notes one in so many: one a minute where they come every 5 s. Each that is
/// noted is a write of the document.
const NOTED_EVERY: u32 = 12;

/// The newest session of a machine, whether its stream is up or not.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    pub(crate) epoch: Epoch,
    pub(crate) boot_id: String,
    pub(crate) disks: Vec<DiskId>,
    pub(crate) address: String,
    /// The protocol revision its agent speaks; 0 after a restart of the coordinator.
    pub(crate) protocol: u32,
    /// What it sees on its disks: as its hello said, and what it has written since.
    pub(crate) receipts: Vec<DiskReceipt>,
    /// Its stream is up.
    pub(crate) connected: bool,
    pub(crate) heard: Steady,
    /// The agent's own clock, as its newest hello or heartbeat had it.
    pub(crate) said: Option<Duration>,
    pub(crate) lease: Lease,
    /// Marked silent in the conditions.
    pub(crate) silent: bool,
    /// When the status last noted that it was heard.
    pub(crate) noted: Steady,
    /// The agent's peak memory as the status has it, bytes.
    pub(crate) peak_rss_bytes: u64,
    /// Nothing is assigned before a person decides.
    pub(crate) held: bool,
    /// Its agent still scans its buses: nothing is assigned before it has reported its disks.
    pub(crate) scanning: bool,
    /// It outlived its last session and holds a list; whether it still works on it shows in a moment.
    pub(crate) settling: bool,
    /// It holds no list and is given none yet: another agent, of which the store does not know, may be acting.
    pub(crate) waits: bool,
    /// Its agent, or one before it in this process, knew what the store does not: the store is an old copy.
    pub(crate) behind: bool,
    /// Another coordinator has it and hears its agent.
    pub(crate) is_elsewhere: bool,
    /// When its agent was last heard, as the document said when this was remembered of it.
    pub(crate) seen: Option<Timestamp>,
}

/// What a heartbeat asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    /// The lease is renewed: the agent is to hear of it.
    pub renewed: bool,
    /// The machine's status is to note that its agent was heard.
    pub noted: bool,
}

impl Session {
    /// A session that was just accepted.
    pub(crate) fn opened(epoch: Epoch, hello: &Hello, address: &str, lease: Lease, held: bool, now: Now) -> Self {
        Self {
            epoch,
            boot_id: hello.boot_id.clone(),
            disks: hello.disks.clone(),
            address: address.to_owned(),
            protocol: hello.protocol,
            receipts: hello.receipts.clone(),
            connected: true,
            heard: now.steady,
            said: Some(hello.boottime).filter(|said| !said.is_zero()),
            lease,
            silent: false,
            noted: now.steady,
            peak_rss_bytes: 0,
            held,
            scanning: hello.scanning,
            settling: false,
            waits: false,
            behind: false,
            is_elsewhere: false,
            seen: None,
        }
    }

    /// What a status says of a session that was not this process's. When it was last heard, and so when its lease ends, is not known,
    /// so the worst is taken: heard just before `since`.
    pub(crate) fn remembered(status: &MachineStatus, limits: &Limits, since: Steady) -> Option<Self> {
        let holder = status.session.as_ref()?;
        // What was promised counts, whatever the configuration says now.
        let promised = holder.lease.map_or(limits.lease, |lease| lease.get().max(limits.lease));
        let wait = if holder.leased { promised } else { limits.silent_after() };
        Some(Self {
            epoch: Epoch::new(status.epoch),
            boot_id: holder.boot_id.clone(),
            disks: holder.disks.clone(),
            address: holder.address.clone(),
            protocol: 0,
            receipts: status.receipts.clone(),
            connected: false,
            heard: since,
            said: None,
            lease: Lease::remembered(holder.leased, since.plus(wait)),
            silent: true,
            noted: since,
            peak_rss_bytes: 0,
            held: false,
            scanning: false,
            settling: false,
            waits: false,
            behind: false,
            is_elsewhere: false,
            seen: status.last_heard,
        })
    }

    /// Its epoch.
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The protocol revision its agent speaks; 0 where that is not known.
    pub const fn protocol(&self) -> u32 {
        self.protocol
    }

    /// Whether another coordinator has it, and hears its agent.
    pub const fn is_elsewhere(&self) -> bool {
        self.is_elsewhere
    }

    /// Whether its conditions say that it is silent.
    pub const fn is_silent(&self) -> bool {
        self.silent
    }

    /// Whether its stream is up.
    pub const fn is_connected(&self) -> bool {
        self.connected
    }

    /// Whether its agent is still to report its disks: it scanned its buses when it said hello.
    pub const fn is_scanning(&self) -> bool {
        self.scanning
    }

    /// Whether it is still to show whether it works on its list.
    pub const fn is_settling(&self) -> bool {
        self.settling
    }

    /// What it sees on its disks.
    pub fn receipts(&self) -> &[DiskReceipt] {
        &self.receipts
    }

    /// From when on, by the agent's own clock, a lease counts that is given now; `None`: the agent did not say.
    pub const fn counts_from(&self) -> Option<Duration> {
        self.said
    }

    /// Whether its agent may be acting.
    pub fn may_act(&self, now: Now) -> bool {
        self.lease.may_act(now.steady)
    }

    /// When its agent was last heard, by the wall's clock as it is set now; `None` without a stream.
    pub fn last_heard(&self, now: Now) -> Option<Timestamp> {
        self.connected.then(|| now.wall_at(self.heard))
    }

    /// The stream ended without its agent's word: nothing can be sent until it comes back. Its lease runs on.
    pub const fn cut(&mut self) {
        self.connected = false;
    }

    /// The agent was heard, by whatever message.
    pub const fn hears(&mut self, now: Now) {
        self.heard = now.steady;
    }

    /// The agent was heard by a heartbeat: renews the lease, if it holds one.
    pub fn beats(&mut self, limits: &Limits, vitals: Vitals, now: Now) -> Beat {
        let peak_rss_bytes = vitals.peak_rss_bytes;
        self.hears(now);
        self.said = Some(vitals.uptime);
        let renewed = self.lease.renew(limits.lease, now.steady);
        let grown = peak_rss_bytes >= self.peak_rss_bytes + RSS_STEP;
        let noted = self.silent || grown || now.steady.since(self.noted) >= limits.heartbeat * NOTED_EVERY;
        if noted {
            self.silent = false;
            self.noted = now.steady;
            self.peak_rss_bytes = self.peak_rss_bytes.max(peak_rss_bytes);
        }
        Beat { renewed, noted }
    }

    /// The same where the status could not be written: it is noted with the next one.
    pub fn beats_unnoted(&mut self, limits: &Limits, vitals: Vitals, now: Now) {
        self.hears(now);
        self.said = Some(vitals.uptime);
        self.lease.renew(limits.lease, now.steady);
    }

    /// Whether its agent has just become silent; from then on it counts as that.
    pub(crate) fn falls_silent(&mut self, limits: &Limits, now: Now) -> bool {
        let silent = self.is_newly_silent(limits, now);
        self.silent |= silent;
        silent
    }

    /// Whether its agent has been silent for too long, and its conditions do not say so yet.
    pub fn is_newly_silent(&self, limits: &Limits, now: Now) -> bool {
        self.connected && !self.silent && now.steady.since(self.heard) >= limits.silent_after()
    }

    /// A receipt that this agent wrote. A workflow that begins on an agent that is there already is judged by it.
    pub(crate) fn wrote(&mut self, receipt: &DiskReceipt) {
        self.receipts.retain(|known| !known.disk.same_disk(&receipt.disk));
        self.receipts.push(receipt.clone());
    }

    /// How long a session without a lease is waited for after its last word.
    pub(crate) fn quiet(&self, limits: &Limits) -> Steady {
        self.heard.plus(limits.silent_after())
    }

    /// The time until `moment`, at least a second: what a refused agent is to wait.
    pub(crate) fn wait_until(moment: Steady, now: Now) -> Duration {
        moment.since(now.steady).max(Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::SessionHolder;

    use super::*;
    use crate::Horizon;

    const LIMITS: Limits = Limits {
        lease: Duration::from_secs(60),
        heartbeat: Duration::from_secs(5),
        phone_home_deadline: Duration::from_secs(900),
        netboot_deadline: Duration::from_secs(900),
        oldest_protocol: 1,
        horizon: Horizon {
            as_of: Some(Timestamp::UNIX_EPOCH),
            started: Timestamp::UNIX_EPOCH,
            lease: Duration::from_secs(60),
        },
    };

    fn steady(second: u64) -> Steady {
        Steady::after_start(Duration::from_secs(second))
    }

    fn at(second: u64) -> Now {
        Now { wall: Timestamp::from_second(1_000_000 + second as i64).unwrap(), steady: steady(second) }
    }

    fn vitals(uptime: u64, peak_rss_bytes: u64) -> Vitals {
        Vitals { uptime: Duration::from_secs(uptime), peak_rss_bytes }
    }

    /// Opened at 100 s.
    fn opened(boottime: u64, leased: bool) -> Session {
        let hello = Hello { boottime: Duration::from_secs(boottime), protocol: 3, ..Hello::default() };
        let mut lease = Lease::none(steady(100));
        if leased {
            lease.take(LIMITS.lease, steady(100));
        }
        Session::opened(Epoch::new(4), &hello, "10.0.0.1", lease, false, at(100))
    }

    #[test]
    fn a_lease_counts_from_what_the_agent_said() {
        assert_eq!(opened(0, true).counts_from(), None, "it said nothing of its clock");
        let mut session = opened(30, true);
        assert_eq!(session.counts_from(), Some(Duration::from_secs(30)));
        session.beats(&LIMITS, vitals(35, 0), at(105));
        assert_eq!(session.counts_from(), Some(Duration::from_secs(35)));
        session.beats_unnoted(&LIMITS, vitals(40, 0), at(110));
        assert_eq!(session.counts_from(), Some(Duration::from_secs(40)));
        assert!((session.epoch(), session.protocol(), session.is_settling()) == (Epoch::new(4), 3, false));
    }

    #[test]
    fn a_heartbeat_renews_and_is_noted_now_and_then() {
        let beat = |renewed, noted| Beat { renewed, noted };
        let mut session = opened(30, true);
        assert_eq!(session.beats(&LIMITS, vitals(35, 0), at(105)), beat(true, false));
        assert_eq!(session.beats(&LIMITS, vitals(89, RSS_STEP - 1), at(159)), beat(true, false));
        assert_eq!(session.beats(&LIMITS, vitals(90, 0), at(160)), beat(true, true), "one in twelve");
        assert_eq!(session.beats(&LIMITS, vitals(95, RSS_STEP), at(165)), beat(true, true), "its memory has grown");
        assert_eq!(session.beats(&LIMITS, vitals(96, 2 * RSS_STEP - 1), at(166)), beat(true, false));
        assert!(session.may_act(at(225)) && !session.may_act(at(226)));
        session.silent = true;
        assert_eq!(session.beats(&LIMITS, vitals(97, 0), at(167)), beat(true, true), "it was silent");
        assert_eq!(opened(30, false).beats(&LIMITS, vitals(35, 0), at(105)), beat(false, false));
        let mut unnoted = opened(30, true);
        unnoted.beats_unnoted(&LIMITS, vitals(35, 0), at(110));
        assert!(unnoted.may_act(at(169)) && unnoted.last_heard(at(112)) == Some(at(110).wall));
    }

    #[test]
    fn a_connected_agent_falls_silent_once() {
        let mut session = opened(30, true);
        assert!(!session.is_newly_silent(&LIMITS, at(114)) && session.is_newly_silent(&LIMITS, at(115)));
        assert!(!session.falls_silent(&LIMITS, at(114)) && !session.silent);
        assert!(session.falls_silent(&LIMITS, at(115)) && !session.falls_silent(&LIMITS, at(116)) && session.silent);
        assert_eq!(session.quiet(&LIMITS), steady(115));
        let mut cut = opened(30, true);
        cut.cut();
        assert!(!cut.is_connected() && !cut.is_newly_silent(&LIMITS, at(200)) && cut.last_heard(at(200)).is_none());
        let mut heard = opened(30, true);
        heard.hears(at(110));
        assert!(!heard.is_newly_silent(&LIMITS, at(124)) && heard.last_heard(at(124)) == Some(at(110).wall));
    }

    #[test]
    fn a_remembered_session_is_waited_for_from_the_start() {
        let remembered_for = |leased, lease: Option<u64>| {
            let mut status = landfall_api::MachineStatus::default();
            assert!(Session::remembered(&status, &LIMITS, Steady::START).is_none());
            let holder = SessionHolder {
                boot_id: "a".into(),
                disks: Vec::new(),
                address: String::new(),
                leased,
                lease: lease.map(landfall_api::DurationSpec::from_secs),
                ..SessionHolder::default()
            };
            status.session = Some(holder);
            Session::remembered(&status, &LIMITS, Steady::START).unwrap()
        };
        let remembered = |leased| remembered_for(leased, None);
        // The configuration was another when it was promised; the longer one counts.
        for (promised, ends) in [(600, 600), (10, 60)] {
            let session = remembered_for(true, Some(promised));
            assert!(session.may_act(at(ends - 1)) && !session.may_act(at(ends)), "{promised}");
        }
        assert!(remembered(true).may_act(at(59)) && !remembered(true).may_act(at(60)));
        assert!(!remembered(false).may_act(at(1)) && remembered(false).lease.until() == steady(15));
        assert!(!remembered(true).is_connected());
    }

    #[test]
    fn a_session_sees_what_its_agent_has_written_since() {
        let found = |generation| DiskReceipt {
            disk: DiskId { serial: "x".into(), size_bytes: 1, ..DiskId::default() },
            receipt: landfall_api::Receipt {
                machine_uid: uuid::Uuid::nil(),
                workflow_uid: uuid::Uuid::nil(),
                workflow_name: "w".into(),
                generation,
                action_index: 0,
                image_digest: None,
                state: landfall_api::ReceiptState::Intent,
                written_at: at(0).wall,
            },
        };
        let mut session = Session { settling: true, ..opened(30, true) };
        session.wrote(&found(1));
        session.wrote(&found(2));
        assert!(session.receipts() == [found(2)] && session.is_settling());
    }

    #[test]
    fn a_refused_agent_waits_at_least_a_second() {
        assert_eq!(Session::wait_until(steady(130), at(100)), Duration::from_secs(30));
        assert_eq!(Session::wait_until(steady(100), at(100)), Duration::from_secs(1));
    }
}
