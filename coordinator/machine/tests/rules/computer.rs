//! A computer with an agent that does what it is told, for as long as its lease allows.

use jiff::Timestamp;
use landfall_api::{
    DiskId, DiskReceipt, ErrorCode, Problem, Receipt, ReceiptState,
    message::{ActionRef, ActionResult, CloudInitResult, EventBody, EventRecord, Hello, WriteImageResult},
};
use landfall_machine::{Epoch, Input, Tell};
use uuid::Uuid;

use super::site::{LEASE, MACHINE, Site, Word};

/// What the agent is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Work {
    workflow: Uuid,
    index: u32,
    attempt: u32,
    /// Of the three steps of an action: not begun, begun, written.
    done: u8,
}

pub(crate) struct Computer {
    number: u8,
    boot: u32,
    pub(crate) disk: Option<(Uuid, ReceiptState)>,
    /// The epoch of its session; 0: none, in this boot.
    epoch: u64,
    connected: bool,
    work: Option<Work>,
    /// It acts until then, by true time.
    lease_until: u64,
    /// Events that were not acknowledged.
    unsent: Vec<EventRecord>,
    seq: std::collections::HashMap<(Uuid, u32, u32), u64>,
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
            disk: None,
            epoch: 0,
            connected: false,
            work: None,
            lease_until: 0,
            unsent: Vec::new(),
            seq: std::collections::HashMap::new(),
            installed: false,
            acknowledged: Vec::new(),
            commits: Vec::new(),
        }
    }

    /// Whether its agent can write a disk at this moment.
    pub(crate) fn can_act(&self, now: u64) -> bool {
        self.work.is_some() && now < self.lease_until
    }

    fn id(&self) -> DiskId {
        DiskId { serial: format!("D{}", self.number), size_bytes: 1 << 30, ..DiskId::default() }
    }

    fn receipt(&self, workflow_uid: Uuid, state: ReceiptState, at: Timestamp) -> DiskReceipt {
        let receipt = Receipt {
            machine_uid: MACHINE,
            workflow_uid,
            workflow_name: "w".into(),
            generation: 1,
            action_index: 0,
            image_digest: None,
            state,
            written_at: at,
        };
        DiskReceipt { disk: self.id(), receipt }
    }

    /// Power is cut, or the machine restarts: the agent and all it knew is gone.
    pub(crate) fn restart(&mut self) {
        self.boot += 1;
        (self.epoch, self.connected, self.work, self.lease_until) = (0, false, None, 0);
        self.unsent.clear();
        self.seq.clear();
        self.installed = false;
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
        let receipts: Vec<_> =
            self.disk.iter().map(|(uid, state)| self.receipt(*uid, *state, Timestamp::UNIX_EPOCH)).collect();
        let known = receipts
            .iter()
            .map(|r| site.stored.workflows.iter().any(|w| w.metadata.uid == Some(r.receipt.workflow_uid)))
            .collect();
        let hello = Hello {
            software: "1".into(),
            protocol: 3,
            boot_id: format!("{}-{}", self.number, self.boot),
            disks: vec![self.id()],
            receipts,
            last_epoch: self.epoch,
            running,
            holds: running.map(|running| running.workflow_uid),
            ..Hello::default()
        };
        let named = hello.holds;
        let input = Input::Hello { hello: Box::new(hello), address: String::new(), known };
        self.connected = false;
        if let Ok(true) = site.hand(named, |_| input.clone())
            && let Some(epoch) = site.epoch()
        {
            (self.epoch, self.connected) = (epoch, true);
        }
    }

    /// The connection breaks; the coordinator may notice.
    pub(crate) fn disconnect(&mut self, site: &mut Site, noticed: bool) {
        if self.connected && noticed && site.epoch() == Some(self.epoch) {
            let epoch = Epoch::new(self.epoch);
            let _refused = site.hand(None, |_| Input::Closed { epoch, why: "cut".into() });
        }
        self.connected = false;
    }

    fn lets_go(&mut self, site: &Site) {
        if let Some(work) = self.work.filter(|_| site.now >= self.lease_until) {
            let problem = Problem::new(ErrorCode::LeaseExpired, "unheard");
            self.reports(site, work, EventBody::Failed { problem, retryable: true });
            self.work = None;
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
        if !self.connected {
            return;
        }
        let epoch = self.epoch;
        let lines = site.line.iter_mut().chain(&mut site.older_lines);
        let line = lines.filter(|(of, _)| *of == epoch).map(|(_, line)| line).next();
        let Some(sent) = line.and_then(std::collections::VecDeque::pop_front) else { return };
        match sent.what {
            Word::Assign { workflow, starts } => {
                let (index, attempt) = starts[0];
                self.work = Some(Work { workflow, index, attempt, done: 0 });
                self.lease_until = sent.at + LEASE;
            }
            Word::Tell(Tell::LeaseRenewal { .. }) => self.lease_until = sent.at + LEASE,
            Word::Tell(Tell::Cancel { workflow_uid, reason }) => {
                if let Some(work) = self.work.filter(|work| work.workflow == workflow_uid) {
                    let problem = Problem::new(ErrorCode::Cancelled, reason);
                    self.reports(site, work, EventBody::Failed { problem, retryable: false });
                    self.work = None;
                }
            }
            Word::Tell(Tell::Fenced { epoch, .. }) => {
                self.work = None;
                self.connected = false;
                let _refused = site.hand(None, |_| Input::FenceAcknowledged { epoch });
            }
            Word::Tell(Tell::Idle { boot_disk }) => {
                if boot_disk && self.work.is_none() && matches!(self.disk, Some((_, ReceiptState::Done))) {
                    self.restart();
                    self.installed = true;
                }
            }
            Word::Tell(Tell::Control { .. }) => {}
        }
    }

    /// One step of what it is at.
    pub(crate) fn works(&mut self, site: &mut Site) {
        self.lets_go(site);
        let Some(mut work) = self.work.filter(|_| self.can_act(site.now)) else { return };
        let at = site.wall();
        match (work.index, work.done) {
            (_, 0) => self.reports(site, work, EventBody::Started),
            // It relies on the coordinator: a real agent would look at its own receipt once more.
            (0, 1) => {
                self.disk = Some((work.workflow, ReceiptState::Intent));
                let receipt = self.receipt(work.workflow, ReceiptState::Intent, at);
                self.reports(site, work, EventBody::ReceiptWritten { receipt });
            }
            (0, _) => {
                let written = true;
                self.commits.push(work.workflow);
                self.disk = Some((work.workflow, ReceiptState::Done));
                let receipt = Some(self.receipt(work.workflow, ReceiptState::Done, at));
                let (stored_bytes, raw_bytes, written_bytes, elapsed_ms) = (1, 1, 1, 1);
                let result = ActionResult::WriteImage(WriteImageResult {
                    receipt,
                    written,
                    stored_bytes,
                    raw_bytes,
                    written_bytes,
                    elapsed_ms,
                });
                self.reports(site, work, EventBody::Finished { result });
                self.work = Some(Work { index: 1, attempt: 1, done: 0, ..work });
                return;
            }
            (1, _) => {
                let result = ActionResult::CloudInit(CloudInitResult { root_device: "/dev/vda1".into() });
                self.reports(site, work, EventBody::Finished { result });
                self.work = Some(Work { index: 2, attempt: 1, done: 0, ..work });
                return;
            }
            (_, _) => {
                self.reports(site, work, EventBody::Finished { result: ActionResult::Reboot });
                // The report is sent, and its ack awaited for a moment only.
                self.sends(site, 1);
                self.restart();
                self.installed = true;
                return;
            }
        }
        work.done += 1;
        self.work = Some(work);
    }

    /// Sends what is not acknowledged, `times` in a row.
    pub(crate) fn sends(&mut self, site: &mut Site, times: usize) {
        if !self.connected || site.epoch() != Some(self.epoch) {
            return;
        }
        let epoch = Epoch::new(self.epoch);
        let Some(of) = self.unsent.first().map(|record| record.workflow_uid) else {
            let _refused = site.hand(None, |_| Input::Heartbeat { epoch, peak_rss_bytes: 1 });
            return;
        };
        let (batch, rest): (Vec<_>, Vec<_>) = self.unsent.drain(..).partition(|record| record.workflow_uid == of);
        self.unsent = rest;
        let known = site.stored.workflows.iter().any(|w| w.metadata.uid == Some(of));
        let mut events = Vec::new();
        for record in &batch {
            let found = site.stored.log.iter().position(|logged| logged.key() == record.key());
            let position = found.unwrap_or_else(|| {
                site.stored.log.push(record.clone());
                site.stored.log.len() - 1
            });
            events.push((position as u64 + 1, record.clone()));
        }
        let mut acknowledged = !known;
        for _ in 0..if known { times } else { 0 } {
            acknowledged = site.hand(Some(of), |of| Input::Reported { epoch, of, events: events.clone() }) == Ok(true);
            if !acknowledged {
                break;
            }
        }
        if acknowledged {
            self.acknowledged.extend(events.iter().map(|(position, _)| (of, *position)));
        } else {
            self.connected = false;
            self.unsent.splice(0..0, batch);
        }
    }
}
