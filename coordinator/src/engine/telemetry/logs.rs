//! Log lines of runs, in memory: bounded in lines, in bytes, and in how fast one run may add to them.
//!
//! Lines above [`RATE`] are dropped and counted, so that one agent in a loop neither displaces others' lines nor costs
//! more than the counting. What must outlive the process, the last lines of a failed attempt, goes into the run's
//! status; see [`super::tail`].

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use landfall_api::message::{LogLevel, LogLine};
use tokio::sync::broadcast;
use uuid::Uuid;

use super::{super::shorten::cut, redact::Redactor};
use landfall_edge::metrics::metrics;

/// Lines kept of one run.
const LINES: usize = 1000;
/// Bytes kept of one run.
const RUN_BYTES: usize = 256 << 10;
/// Bytes kept of all runs; the run that logged least lately goes first.
const ALL_BYTES: usize = 64 << 20;
/// What a line costs beside its text, bytes, about.
const LINE_COST: usize = 96;
/// Lines a follower may be behind before it misses some.
const FOLLOW: usize = 256;
/// A line is cut here, bytes.
const LINE_BYTES: usize = 4096;
/// So much of a line is looked at for secrets, bytes; nothing of the rest is kept.
const LOOK_BYTES: usize = 4 * LINE_BYTES;
/// Lines a second that one run may add in the long run: more than a person reads, less than a core notices.
const RATE: u32 = 200;
/// Lines that it may add at once.
const BURST: u32 = 1000;

/// Every run's lines.
#[derive(Default)]
pub(super) struct Logs(Mutex<Rings>);

#[derive(Default)]
struct Rings {
    clock: u64,
    bytes: usize,
    rings: HashMap<Uuid, Ring>,
    /// Who logged when, by `clock`; the first is the next to go.
    order: BTreeMap<u64, Uuid>,
}

#[derive(Default)]
struct Ring {
    lines: VecDeque<LogLine>,
    bytes: usize,
    /// Made for the first follower: most runs have none.
    live: Option<broadcast::Sender<LogLine>>,
    touched: u64,
    redactor: Redactor,
    /// Whether the redactor knows this run's secrets.
    prepared: bool,
    allowance: Allowance,
    left_out: u64,
    /// Lines that were ever taken in.
    taken: u64,
}

/// How many lines a run may add now: refills with time.
#[derive(Default)]
struct Allowance {
    /// Lines that are spent of [`BURST`].
    spent: f64,
    at: Option<Timestamp>,
}

impl Allowance {
    fn take(&mut self, now: Timestamp) -> bool {
        if let Some(at) = self.at {
            // A clock that was set back refills nothing.
            let passed = now.duration_since(at).as_secs_f64().max(0.0);
            self.spent = (self.spent - passed * f64::from(RATE)).max(0.0);
        }
        self.at = Some(now);
        let may = self.spent + 1.0 <= f64::from(BURST);
        if may {
            self.spent += 1.0;
        }
        may
    }
}

impl Ring {
    fn push(&mut self, record: LogLine) {
        self.bytes += cost(&record);
        self.taken += 1;
        if let Some(live) = &self.live {
            // There is no follower any more: that is no error.
            let _followers = live.send(record.clone());
        }
        self.lines.push_back(record);
        while (self.lines.len() > LINES || self.bytes > RUN_BYTES)
            && let Some(gone) = self.lines.pop_front()
        {
            self.bytes -= cost(&gone);
        }
    }

    fn followed(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.receiver_count() > 0)
    }
}

fn cost(record: &LogLine) -> usize {
    record.message.len() + LINE_COST
}

impl Rings {
    fn ring(&mut self, workflow: Uuid) -> &mut Ring {
        self.clock += 1;
        let ring = self.rings.entry(workflow).or_default();
        self.order.remove(&ring.touched);
        ring.touched = self.clock;
        self.order.insert(self.clock, workflow);
        ring
    }

    fn forget(&mut self, workflow: Uuid) {
        if let Some(ring) = self.rings.remove(&workflow) {
            self.order.remove(&ring.touched);
            self.bytes -= ring.bytes;
        }
    }

    /// Drops a run's lines, but not what is known of its secrets: it may log again.
    fn empty(&mut self, workflow: Uuid) {
        if let Some(ring) = self.rings.get_mut(&workflow) {
            self.order.remove(&ring.touched);
            self.bytes -= std::mem::take(&mut ring.bytes);
            ring.lines = VecDeque::new();
        }
    }

    /// Changes one ring and keeps the count of all bytes right; then the oldest go until the bound holds.
    fn change<T>(&mut self, workflow: Uuid, act: impl FnOnce(&mut Ring) -> T) -> T {
        let ring = self.ring(workflow);
        let before = ring.bytes;
        let out = act(ring);
        let after = ring.bytes;
        self.bytes = self.bytes + after - before;
        // A ring with a follower is passed over, so the walk is bounded by the followers there are.
        let mut passed = 0;
        while self.bytes > ALL_BYTES
            && let Some((_, oldest)) = self.order.iter().nth(passed).map(|(at, uid)| (*at, *uid))
        {
            if oldest == workflow || self.rings.get(&oldest).is_some_and(Ring::followed) {
                passed += 1;
            } else {
                self.empty(oldest);
            }
        }
        out
    }
}

impl Logs {
    fn lock(&self) -> MutexGuard<'_, Rings> {
        // Nothing in here panics half-way through a change that counts.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a line, without secrets and cut.
    pub(in crate::engine) fn push(&self, workflow: Uuid, mut record: LogLine, now: Timestamp) {
        self.lock().change(workflow, |ring| {
            if !ring.allowance.take(now) {
                ring.left_out += 1;
                metrics().log_lines_left_out.add(1);
                return;
            }
            // In this order: half a secret would not be found any more.
            ring.redactor.clean_start(&mut record.message, LOOK_BYTES);
            if record.message.len() > LINE_BYTES {
                cut(&mut record.message, LINE_BYTES);
                record.message.push('…');
            }
            tracing::debug!(
                target: "landfall_agent", workflow_uid = %workflow, action = record.action_index,
                attempt = record.attempt, level = %record.level, "{}", record.message
            );
            match std::mem::take(&mut ring.left_out) {
                0 => {}
                left_out => ring.push(LogLine {
                    level: LogLevel::Warn,
                    message: format!("{left_out} lines over the limit of {RATE} a second were dropped"),
                    ..record.clone()
                }),
            }
            ring.push(record);
        });
    }

    /// What must not be shown of this run.
    pub(super) fn conceal(&self, workflow: Uuid, secrets: impl IntoIterator<Item = String>) {
        self.lock().change(workflow, |ring| {
            ring.redactor.learn(secrets);
            ring.prepared = true;
        });
    }

    /// Whether [`Self::conceal`] was called for this run since the start.
    pub(super) fn prepared(&self, workflow: Uuid) -> bool {
        self.lock().rings.get(&workflow).is_some_and(|ring| ring.prepared)
    }

    /// A text of this run without its secrets.
    pub(super) fn clean(&self, workflow: Uuid, text: &mut String) {
        match self.lock().rings.get(&workflow) {
            Some(ring) => ring.redactor.clean(text),
            None => Redactor::default().clean(text),
        }
    }

    /// The same, of what may be the beginning of a longer text.
    pub(super) fn clean_start(&self, workflow: Uuid, text: &mut String, was_cut: bool) {
        match self.lock().rings.get(&workflow) {
            Some(ring) if was_cut => ring.redactor.clean_cut(text),
            Some(ring) => ring.redactor.clean(text),
            None => Redactor::default().clean(text),
        }
    }

    /// The lines there are, and those to come.
    pub(in crate::engine) fn follow(&self, workflow: Uuid) -> (Vec<LogLine>, broadcast::Receiver<LogLine>) {
        self.lock().change(workflow, |ring| {
            let live = ring.live.get_or_insert_with(|| broadcast::channel(FOLLOW).0).subscribe();
            (ring.lines.iter().cloned().collect(), live)
        })
    }

    /// The lines there are.
    pub(super) fn kept(&self, workflow: Uuid) -> Vec<LogLine> {
        self.lock().rings.get(&workflow).into_iter().flat_map(|ring| &ring.lines).cloned().collect()
    }

    /// The newest `count` lines of one attempt, oldest first.
    pub(super) fn of_attempt(&self, workflow: Uuid, action: u32, attempt: u32, count: usize) -> Vec<LogLine> {
        let rings = self.lock();
        let Some(ring) = rings.rings.get(&workflow) else { return Vec::new() };
        let ours = |line: &&LogLine| line.action_index == action && line.attempt == attempt;
        let mut lines: Vec<_> = ring.lines.iter().rev().filter(ours).take(count).cloned().collect();
        lines.reverse();
        lines
    }

    /// How many lines were ever taken in: unchanged, there is nothing new to look at.
    pub(in crate::engine) fn taken(&self, workflow: Uuid) -> u64 {
        self.lock().rings.get(&workflow).map_or(0, |ring| ring.taken)
    }

    pub(in crate::engine) fn forget(&self, workflow: Uuid) {
        self.lock().forget(workflow);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(message: String) -> LogLine {
        LogLine { time: Timestamp::UNIX_EPOCH, level: LogLevel::Info, action_index: 0, attempt: 1, message }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    #[test]
    fn a_workflow_that_logs_too_fast_loses_counted_lines() {
        let (logs, run) = (Logs::default(), Uuid::from_u128(1));
        for n in 0..BURST + 500 {
            logs.push(run, line(n.to_string()), at(0));
        }
        let kept = logs.of_attempt(run, 0, 1, usize::MAX);
        assert_eq!(kept.len(), BURST as usize);
        assert_eq!(kept.last().unwrap().message, (BURST - 1).to_string());
        logs.push(run, line("later".into()), at(1));
        let kept = logs.of_attempt(run, 0, 1, 2);
        assert!(kept[0].message.starts_with("500 lines over the limit"), "{kept:?}");
        assert_eq!(kept[1].message, "later");
    }

    #[test]
    fn log_bytes_are_bounded_per_workflow_and_in_total() {
        let (logs, run) = (Logs::default(), Uuid::from_u128(1));
        for _ in 0..BURST {
            logs.push(run, line("x".repeat(2 * LINE_BYTES)), at(0));
        }
        let kept = logs.of_attempt(run, 0, 1, usize::MAX);
        assert!(kept.iter().map(cost).sum::<usize>() <= RUN_BYTES && kept.len() > 10, "{}", kept.len());
        for other in 2..1000 {
            for _ in 0..100 {
                logs.push(Uuid::from_u128(other), line("x".repeat(LINE_BYTES)), at(0));
            }
        }
        let rings = logs.lock();
        assert!(rings.bytes <= ALL_BYTES, "{}", rings.bytes);
        assert_eq!(rings.bytes, rings.rings.values().map(|ring| ring.bytes).sum::<usize>());
        assert_eq!(rings.rings.values().filter(|ring| ring.bytes > 0).count(), rings.order.len());
        assert!(rings.rings[&run].lines.is_empty(), "the one that logged least lately went first");
    }

    #[test]
    fn a_followed_workflows_log_is_not_displaced() {
        let (logs, run) = (Logs::default(), Uuid::from_u128(1));
        logs.push(run, line("mine".into()), at(0));
        let (kept, mut live) = logs.follow(run);
        assert_eq!(kept.len(), 1);
        for other in 2..1000 {
            for _ in 0..100 {
                logs.push(Uuid::from_u128(other), line("x".repeat(LINE_BYTES)), at(0));
            }
        }
        logs.push(run, line("still".into()), at(0));
        assert_eq!(live.try_recv().unwrap().message, "still");
    }

    #[test]
    fn a_secret_never_stays_in_a_workflows_log() {
        let (logs, run) = (Logs::default(), Uuid::from_u128(1));
        logs.conceal(run, ["hunter2-hunter2".to_owned()]);
        logs.push(run, line("first".into()), at(0));
        logs.lock().empty(run);
        logs.push(run, line("password is hunter2-hunter2, mind".into()), at(0));
        let text = logs.of_attempt(run, 0, 1, 1).remove(0).message;
        assert!(!text.contains("hunter2") && text.ends_with(", mind"), "{text}");
    }

    #[test]
    fn a_secret_at_a_lines_cut_is_removed_completely() {
        let (logs, run) = (Logs::default(), Uuid::from_u128(1));
        logs.conceal(run, ["hunter2-hunter2".to_owned(), "s".repeat(2 * LINE_BYTES)]);
        let blank = |bytes| "-".repeat(bytes);
        for text in [
            blank(LINE_BYTES - 8) + "hunter2-hunter2",
            // Cut before it is looked at, and shrunk by what is taken out before it.
            format!("{}{}{}hunter2-hunter2", "s".repeat(2 * LINE_BYTES), blank(10), blank(2 * LINE_BYTES - 18)),
            "s".repeat(2 * LINE_BYTES).repeat(2)[8..].to_owned() + "hunter2-hunter2",
        ] {
            logs.push(run, line(text), at(0));
            let kept = logs.of_attempt(run, 0, 1, 1).remove(0).message;
            assert!(!kept.contains("hunter") && !kept.contains("ssssssss"), "{kept}");
            assert!(kept.len() <= LINE_BYTES + '…'.len_utf8());
        }
    }
}
