//! The newest progress of each attempt under way, and which attempts an agent may speak of.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use landfall_api::{ActionState, ActionStatus, Progress, Workflow};
use landfall_edge::metrics::metrics;
use landfall_machine::is_running;
use uuid::Uuid;

/// For so long after an attempt ended, lines of its log are still taken in: they come on a stream of their own.
const LATE: SignedDuration = SignedDuration::from_secs(5);

/// The newest progress of each action under way, until it is folded into the status. Bounded by the attempts that are under
/// way: what an agent says of any other is dropped.
#[derive(Default)]
pub(in crate::engine) struct Waiting(Mutex<Inbox>);

#[derive(Default)]
struct Inbox {
    newest: HashMap<(Uuid, u32), Reported>,
    /// Who has waited longest is first.
    order: VecDeque<(Uuid, u32)>,
    /// Of every write under way.
    stages: HashMap<(Uuid, u32), Stage>,
    /// By workflow, the actions that an agent may speak of.
    spoken: HashMap<Uuid, Vec<Spoken>>,
}

/// An action that an agent is at, or was a moment ago.
struct Spoken {
    action: u32,
    attempt: u32,
    /// That attempt failed, and the agent may have begun the next one.
    retries: bool,
    /// It is over, and its late log lines are taken in until then.
    until: Option<Timestamp>,
}

impl Spoken {
    fn is_of(&self, action: u32, attempt: u32) -> bool {
        self.action == action && (attempt == self.attempt || self.retries && attempt == self.attempt + 1)
    }
}

/// The stage an attempt is in, and since when.
struct Stage {
    attempt: u32,
    name: &'static str,
    since: Timestamp,
}

/// The stages whose time is counted, as the agent's write pipeline names them; any other is `other`.
const STAGES: [&str; 7] = ["fetch", "compare", "write", "flush", "verify", "readBack", "commit"];

/// Progress as it came.
pub(in crate::engine) struct Reported {
    pub(in crate::engine) machine: Uuid,
    pub(in crate::engine) attempt: u32,
    pub(in crate::engine) progress: Progress,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in which attempts are under way in a workflow.
    pub(in crate::engine) fn follow(&self, workflow: &Workflow, now: Timestamp) {
        let (Some(uid), Some(status)) = (workflow.metadata.uid, &workflow.status) else { return };
        let runs = is_running(workflow);
        let spoken = |(of, action): (&ActionStatus, u32)| {
            let under_way = runs && matches!(of.state, ActionState::Pending | ActionState::Running);
            let until = if under_way {
                None
            } else {
                Some(of.ended_at.unwrap_or(now).checked_add(LATE).unwrap_or(Timestamp::MAX))
            };
            let said = Spoken { action, attempt: of.attempt, retries: under_way && of.ended_at.is_some(), until };
            (of.attempt > 0 && said.until.is_none_or(|until| until > now)).then_some(said)
        };
        let actions = status.actions.iter().chain(&status.on_failure).zip(0u32..);
        let spoken: Vec<_> = actions.filter_map(spoken).collect();
        let mut inbox = self.lock();
        if spoken.is_empty() {
            inbox.spoken.remove(&uid);
        } else {
            inbox.spoken.insert(uid, spoken);
        }
    }

    /// Whether a line of that attempt's log is to be taken in.
    pub(in crate::engine) fn hears(&self, workflow: Uuid, action: u32, attempt: u32, now: Timestamp) -> bool {
        let inbox = self.lock();
        let mut spoken = inbox.spoken.get(&workflow).into_iter().flatten();
        spoken.any(|of| of.is_of(action, attempt) && of.until.is_none_or(|until| until > now))
    }

    /// Lets go of what is over.
    pub(in crate::engine) fn sweep(&self, now: Timestamp) {
        let inbox = &mut *self.lock();
        inbox.spoken.retain(|_, spoken| {
            spoken.retain(|of| of.until.is_none_or(|until| until > now));
            !spoken.is_empty()
        });
        let spoken = &inbox.spoken;
        let is_spoken = |(workflow, action): &(Uuid, u32)| {
            spoken.get(workflow).into_iter().flatten().any(|of| of.action == *action)
        };
        inbox.stages.retain(|key, _| is_spoken(key));
    }

    pub(in crate::engine) fn put(&self, key: (Uuid, u32), reported: Reported, now: Timestamp) {
        let mut inbox = self.lock();
        let mut spoken = inbox.spoken.get(&key.0).into_iter().flatten();
        if !spoken.any(|of| of.until.is_none() && of.is_of(key.1, reported.attempt)) {
            return;
        }
        Self::note_stage(&mut inbox.stages, key, &reported, now);
        if inbox.newest.insert(key, reported).is_some() {
            metrics().progress_thinned.add(1);
        } else {
            inbox.order.push_back(key);
        }
    }

    /// Counts the time of the stage that ended, if another one began.
    fn note_stage(stages: &mut HashMap<(Uuid, u32), Stage>, key: (Uuid, u32), reported: &Reported, now: Timestamp) {
        let (attempt, stage) = (reported.attempt, reported.progress.stage.as_str());
        if stage.is_empty() {
            return;
        }
        let name = STAGES.into_iter().find(|known| *known == stage).unwrap_or("other");
        if stages.get(&key).is_some_and(|s| (s.attempt, s.name) == (attempt, name)) {
            return;
        }
        // An attempt that was cut off tells nothing about how long its stage takes.
        if let Some(ended) = stages.insert(key, Stage { attempt, name, since: now }).filter(|s| s.attempt == attempt) {
            count_stage(&ended, now);
        }
    }

    /// No more progress is to come of it. The last stage counts if the action succeeded.
    pub(super) fn close_stage(&self, key: (Uuid, u32), succeeded: bool, now: Timestamp) {
        if let Some(stage) = self.lock().stages.remove(&key).filter(|_| succeeded) {
            count_stage(&stage, now);
        }
    }

    pub(in crate::engine) fn forget(&self, workflow: Uuid) {
        self.lock().spoken.remove(&workflow);
    }

    pub(in crate::engine) fn take(&self) -> Option<((Uuid, u32), Reported)> {
        let mut inbox = self.lock();
        let key = inbox.order.pop_front()?;
        inbox.newest.remove(&key).map(|reported| (key, reported))
    }
}

fn count_stage(stage: &Stage, now: Timestamp) {
    // A clock that was set back meanwhile tells nothing.
    if let Ok(took) = Duration::try_from(now.duration_since(stage.since)) {
        metrics().stage_seconds.of(&[("stage", stage.name)]).took(took);
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::{Kind, WorkflowPhase};
    use serde_json::json;

    use super::*;

    const RUN: Uuid = Uuid::from_u128(7);

    fn workflow(attempts: [u32; 2], phase: WorkflowPhase) -> Workflow {
        let actions: Vec<_> = [("look", attempts[0]), ("stop", attempts[1])]
            .into_iter()
            .map(|(name, attempt)| {
                let action: landfall_api::Action =
                    serde_json::from_value(json!({"name": name, "hold": {"message": "x"}})).unwrap();
                let state = if attempt > 0 { ActionState::Running } else { ActionState::Pending };
                ActionStatus { attempt, state, ..ActionStatus::pending(action) }
            })
            .collect();
        Workflow {
            api_version: landfall_api::API_VERSION.into(),
            kind: Kind::Workflow,
            metadata: landfall_api::Metadata { name: "w".into(), uid: Some(RUN), ..Default::default() },
            spec: serde_json::from_value(json!({"machine": "m", "template": "t"})).unwrap(),
            status: Some(landfall_api::WorkflowStatus { actions, phase, ..Default::default() }),
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    fn tell(waiting: &Waiting, workflow: Uuid, action: u32, attempt: u32) {
        let progress = Progress { stage: "write".into(), ..Progress::default() };
        waiting.put((workflow, action), Reported { machine: Uuid::nil(), attempt, progress }, at(0));
    }

    #[test]
    fn only_attempts_under_way_take_room() {
        let waiting = Waiting::default();
        waiting.follow(&workflow([3, 0], WorkflowPhase::Running), at(0));
        for n in 0..50_000 {
            tell(&waiting, RUN, n, 1 + n % 2);
            tell(&waiting, RUN, 0, 4 + n);
            tell(&waiting, Uuid::from_u128(8), n, 1);
        }
        let held = |waiting: &Waiting| {
            let inbox = waiting.lock();
            (inbox.newest.len(), inbox.order.len(), inbox.stages.len())
        };
        assert_eq!(held(&waiting), (0, 0, 0));
        tell(&waiting, RUN, 0, 3);
        assert_eq!(held(&waiting), (1, 1, 1));
        waiting.follow(&workflow([3, 0], WorkflowPhase::Cancelled), at(0));
        assert!(
            waiting.hears(RUN, 0, 3, at(1)) && !waiting.hears(RUN, 0, 2, at(1)) && !waiting.hears(RUN, 1, 1, at(1))
        );
        waiting.sweep(at(60));
        assert!(!waiting.hears(RUN, 0, 3, at(60)));
        assert!(waiting.take().is_some() && held(&waiting) == (0, 0, 0), "what is over is let go");
    }
}
