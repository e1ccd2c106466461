//! A computer with an agent that does what it is asked to, for as long as its lease allows.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use landfall_api::message::{
    ActionRef, ActionResult, CloudInitResult, DiskReport, EventBody, EventRecord, Hello, Vitals, WriteImageResult,
};
use landfall_api::{DiskId, DiskReceipt, ErrorCode, Problem, Receipt, ReceiptState};
use landfall_machine::{Epoch, Input, Tell};
use uuid::Uuid;

use super::site::{LEASE, MACHINE, MAX_ATTEMPTS, Site, Word};

/// What the agent is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Work {
    workflow: Uuid,
    index: u32,
    attempt: u32,
    /// Of the three steps of an action: not begun, begun, written.
    done: u8,
    /// It was asked to stop; whatever writes does so until its next step.
    stops: bool,
}

impl Work {
    fn of(workflow: Uuid, index: u32, attempt: u32) -> Self {
        Self { workflow, index, attempt, done: 0, stops: false }
    }
}

/// A receipt on a computer's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    workflow: Uuid,
    state: ReceiptState,
    written_at: Timestamp,
}

pub(crate) struct Computer {
    number: u8,
    boot: u32,
    mark: Option<Mark>,
    /// Whose image its disk boots.
    pub(crate) system: Option<Uuid>,
    /// The epoch of its session; 0: none, in this boot.
    epoch: u64,
    /// To the process of that start.
    connected: Option<u32>,
    work: Option<Work>,
    /// It acts until then, by true time.
    lease_until: u64,
    /// Events that were not acknowledged.
    unsent: Vec<EventRecord>,
    seq: HashMap<(Uuid, u32, u32), u64>,
    /// A bus is being scanned.
    scanning: bool,
    /// No session of this boot has heard of its disks.
    open: bool,
    /// It started what is on its disk.
    pub(crate) installed: bool,
    /// Positions in the log of what was acknowledged to it.
    pub(crate) acknowledged: Vec<(Uuid, u64)>,
    /// Every write that it committed: which workflow's.
    pub(crate) commits: Vec<Uuid>,
}

impl Computer {
    pub(crate) fn new(number: u8) -> Self {
        Self {
            number,
            boot: 0,
            mark: None,
            system: None,
            epoch: 0,
            connected: None,
            work: None,
            lease_until: 0,
            unsent: Vec::new(),
            seq: HashMap::new(),
            scanning: false,
            open: false,
            installed: false,
            acknowledged: Vec::new(),
            commits: Vec::new(),
        }
    }

    /// The workflow for which its agent can write a disk at this moment.
    pub(crate) fn acts_for(&self, now: u64) -> Option<Uuid> {
        self.work.filter(|_| now < self.lease_until).map(|work| work.workflow)
    }

    fn is_connected(&self, site: &Site) -> bool {
        self.connected == Some(site.starts)
    }

    fn id(&self) -> DiskId {
        DiskId { serial: format!("D{}", self.number), size_bytes: 1 << 30, ..DiskId::default() }
    }

    fn receipt(&self, mark: Mark) -> DiskReceipt {
        let receipt = Receipt {
            machine_uid: MACHINE,
            workflow_uid: mark.workflow,
            workflow_name: "w".into(),
            generation: 1,
            action_index: 0,
            image_digest: None,
            state: mark.state,
            written_at: mark.written_at,
        };
        DiskReceipt { disk: self.id(), receipt }
    }

    /// Power is cut, or the machine restarts: the agent and all it knew is gone.
    pub(crate) fn restart(&mut self) {
        self.boot += 1;
        (self.epoch, self.connected, self.work, self.lease_until) = (0, None, None, 0);
        self.unsent.clear();
        self.seq.clear();
        (self.installed, self.open) = (false, false);
    }

    pub(crate) fn scans(&mut self) {
        self.scanning = true;
    }

    /// Its disks are reported once it has reported everything else and holds no list.
    pub(crate) fn finds(&mut self, site: &mut Site) {
        self.scanning = false;
        if !self.is_connected(site) || self.work.is_some() || !self.unsent.is_empty() {
            return;
        }
        let receipts = self.mark.iter().map(|mark| self.receipt(*mark)).collect();
        let report = DiskReport { generation: 1, disks: vec![self.id()], receipts, unreadable: Vec::new() };
        if site.disks(self.epoch, &self.boot_id(), report) {
            self.open = false;
        }
    }

    fn boot_id(&self) -> String {
        format!("{}-{}", self.number, self.boot)
    }

    /// The store has forgotten what was written since its copy was made. Where the newest image left no room for a receipt, nothing
    /// on the disk shows it either, nor what it was written over: to write that again is no fault that anything could prevent.
    pub(crate) fn is_forgotten(&mut self) {
        if self.mark.is_none() {
            self.commits.clear();
        }
    }

    fn boots_its_disk(&mut self) {
        self.restart();
        self.installed = self.system.is_some();
    }

    pub(crate) fn connect(&mut self, site: &mut Site) {
        if self.installed {
            return;
        }
        // An agent whose lease has ended lets go of its list before it says anything.
        self.lets_go(site);
        let running = self.work.map(|work| ActionRef {
            workflow_uid: work.workflow,
            action_index: work.index,
            attempt: work.attempt,
        });
        let receipts = self.mark.iter().filter(|_| !self.scanning).map(|mark| self.receipt(*mark)).collect();
        let hello = Hello {
            software: "1".into(),
            protocol: 3,
            boot_id: self.boot_id(),
            disks: vec![self.id()],
            receipts,
            scanning: self.scanning,
            last_epoch: self.epoch,
            running,
            holds: running.map(|running| running.workflow_uid),
            boottime: Duration::from_secs(site.now),
            ..Hello::default()
        };
        self.connected = None;
        if let Some(epoch) = site.hello(hello) {
            // An agent that had a session in this boot may go on with its list: it looks at its own disks before it writes.
            self.open = self.scanning && (self.epoch == 0 || self.open);
            (self.epoch, self.connected) = (epoch, Some(site.starts));
        }
    }

    /// The connection breaks; the coordinator may notice.
    pub(crate) fn disconnect(&mut self, site: &mut Site, noticed: bool) {
        if self.is_connected(site) && noticed && site.epoch() == Some(self.epoch) {
            let epoch = Epoch::new(self.epoch);
            let _refused = site.hand(None, |_| Input::Closed { epoch, why: "cut".into() });
        }
        self.connected = None;
    }

    fn lets_go(&mut self, site: &Site) {
        if site.now >= self.lease_until {
            self.ends(site, ErrorCode::LeaseExpired, true);
        }
    }

    /// The attempt under way, if there is one, ends without success, and with it the list.
    fn ends(&mut self, site: &Site, code: ErrorCode, retryable: bool) {
        if let Some(work) = self.work.take() {
            let problem = Problem::new(code, "ended");
            self.reports(site, work, EventBody::Failed { problem, retryable });
        }
    }

    fn reports(&mut self, site: &Site, work: Work, body: EventBody) {
        let Work { workflow: workflow_uid, index: action_index, attempt, .. } = work;
        let seq = self.seq.entry((workflow_uid, action_index, attempt)).or_default();
        *seq += 1;
        let record = EventRecord { workflow_uid, action_index, attempt, seq: *seq, time: site.wall(), body };
        self.unsent.push(record);
    }

    /// Takes in the next message, if one came.
    pub(crate) fn hears(&mut self, site: &mut Site) {
        if !self.is_connected(site) {
            return;
        }
        let epoch = self.epoch;
        let mut lines = site.line.iter_mut().chain(&mut site.older_lines);
        let line = lines.find(|(of, _)| *of == epoch).map(|(_, line)| line);
        let Some(word) = line.and_then(VecDeque::pop_front) else { return };
        match word {
            Word::Assign { workflow, starts, from } => {
                assert!(!self.open || self.work.is_some(), "a list for a machine whose disks are not known");
                // What it was at ends before anything else begins.
                self.ends(site, ErrorCode::Cancelled, false);
                let (index, attempt) = starts[0];
                self.work = Some(Work::of(workflow, index, attempt));
                self.lease_until = from.unwrap().as_secs() + LEASE;
            }
            // A term that has ended stays dead.
            Word::Tell(Tell::LeaseRenewal { counts_from, .. }) if site.now < self.lease_until => {
                self.lease_until = self.lease_until.max(counts_from.unwrap().as_secs() + LEASE);
            }
            Word::Tell(Tell::LeaseRenewal { .. }) => {}
            Word::Tell(Tell::Cancel { workflow_uid, .. }) => {
                if let Some(work) = self.work.as_mut().filter(|work| work.workflow == workflow_uid) {
                    work.stops = true;
                }
            }
            Word::Tell(Tell::Fenced { epoch, .. }) => {
                self.work = None;
                self.connected = None;
                let _refused = site.hand(None, |_| Input::FenceAcknowledged { epoch });
            }
            Word::Tell(Tell::Idle { boot_disk: true, .. }) if self.work.is_none() => self.boots_its_disk(),
            Word::Tell(Tell::Idle { .. } | Tell::Control { .. }) => {}
        }
    }

    /// One step of what it is at.
    pub(crate) fn works(&mut self, site: &mut Site) {
        self.lets_go(site);
        let Some(mut work) = self.work else { return };
        if work.stops {
            return self.ends(site, ErrorCode::Cancelled, false);
        }
        match (work.index, work.done) {
            (_, 0) => self.reports(site, work, EventBody::Started),
            // It relies on the coordinator: a real agent would look at its own receipt once more.
            (0, 1) => {
                let mark = self.marks(site, work, ReceiptState::Intent);
                self.system = None;
                self.reports(site, work, EventBody::ReceiptWritten { receipt: mark });
            }
            // An image without room for a receipt takes the one of the beginning away: by then it is reported.
            (0, _) if !site.leaves_room(work.workflow) && !self.unsent.is_empty() => return,
            (0, _) => return self.commits(site, work),
            (1, _) => {
                let result = ActionResult::CloudInit(CloudInitResult { root_device: "/dev/vda1".into() });
                self.reports(site, work, EventBody::Finished { result });
                self.work = Some(Work::of(work.workflow, 2, 1));
                return;
            }
            (_, _) => {
                self.reports(site, work, EventBody::Finished { result: ActionResult::Reboot });
                // The report is sent, and its ack awaited for a moment only.
                self.sends(site, 1);
                return self.boots_its_disk();
            }
        }
        work.done += 1;
        self.work = Some(work);
    }

    fn marks(&mut self, site: &Site, work: Work, state: ReceiptState) -> DiskReceipt {
        let mark = Mark { workflow: work.workflow, state, written_at: site.wall() };
        self.mark = Some(mark);
        self.receipt(mark)
    }

    fn commits(&mut self, site: &Site, work: Work) {
        let receipt = Some(self.marks(site, work, ReceiptState::Done)).filter(|_| site.leaves_room(work.workflow));
        if receipt.is_none() {
            self.mark = None;
        }
        self.commits.push(work.workflow);
        self.system = Some(work.workflow);
        let (written, stored_bytes, raw_bytes, written_bytes, elapsed_ms) = (true, 1, 1, 1, 1);
        let result = WriteImageResult { receipt, written, stored_bytes, raw_bytes, written_bytes, elapsed_ms };
        self.reports(site, work, EventBody::Finished { result: ActionResult::WriteImage(result) });
        self.work = Some(Work::of(work.workflow, 1, 1));
    }

    /// The attempt under way fails; the agent tries again by itself while that may be.
    pub(crate) fn fails(&mut self, site: &mut Site) {
        self.lets_go(site);
        let Some(work) = self.work.filter(|work| work.index == 0 && work.done > 0 && !work.stops) else { return };
        self.ends(site, ErrorCode::Truncated, true);
        if work.attempt < MAX_ATTEMPTS {
            self.work = Some(Work::of(work.workflow, 0, work.attempt + 1));
        }
    }

    /// Sends what is not acknowledged, `times` in a row.
    pub(crate) fn sends(&mut self, site: &mut Site, times: usize) {
        if !self.is_connected(site) || site.epoch() != Some(self.epoch) {
            return;
        }
        let epoch = Epoch::new(self.epoch);
        let Some(of) = self.unsent.first().map(|record| record.workflow_uid) else {
            // By true time: a computer's own clock has its own beginning, and goes no faster.
            let vitals = Vitals { uptime: Duration::from_secs(site.now), peak_rss_bytes: 1 };
            let _refused = site.hand(None, |_| Input::Heartbeat { epoch, vitals });
            return;
        };
        let (batch, rest): (Vec<_>, Vec<_>) = self.unsent.drain(..).partition(|record| record.workflow_uid == of);
        self.unsent = rest;
        match site.events(epoch, of, &batch, times) {
            Some(positions) => self.acknowledged.extend(positions.into_iter().map(|position| (of, position))),
            None => {
                self.connected = None;
                self.unsent.splice(0..0, batch);
            }
        }
    }
}
