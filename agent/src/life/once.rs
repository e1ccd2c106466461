//! `landfall-agent run --once`: one workflow, from its assignment to the coordinator's word how it ended.
//!
//! A runner's end is not the workflow's: the steps after a failure follow in an assignment of their own, after an expired lease or a
//! pause the same workflow comes again, and a workflow can end while no runner is at work on it. So the coordinator's word counts. Where
//! the last action restarts the machine, the agent ends before it, and goes by what its own runners came to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use landfall_api::ErrorCode;
use landfall_api::message::Ended;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::runner::Outcome;

/// How the one workflow ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Every action succeeded.
    Succeeded,
    /// It failed or was cancelled, and why.
    Failed(String),
}

/// What is known of the one workflow. The default serves one workflow after the other, and knows nothing.
#[derive(Clone, Default)]
pub(crate) struct Once(Option<Arc<Watched>>);

#[derive(Default)]
struct Watched {
    story: Mutex<Option<Story>>,
    over: Notify,
}

struct Story {
    uid: Uuid,
    /// The worst end of a runner so far; `None` before the first.
    own: Option<Verdict>,
    /// Whether no later end makes it better.
    has_failed: bool,
    /// The coordinator's word.
    said: Option<Verdict>,
    is_over: bool,
}

impl Once {
    /// One workflow alone.
    pub(crate) fn watched() -> Self {
        Self(Some(Arc::default()))
    }

    /// The coordinator assigns a workflow: whether to do it. Another one is left to the next agent: the first is over.
    pub(super) fn takes(&self, uid: Uuid) -> bool {
        let Some(watched) = &self.0 else { return true };
        let mut story = watched.story();
        let new = || Story { uid, own: None, has_failed: false, said: None, is_over: false };
        let known = story.get_or_insert_with(new);
        known.is_over |= known.uid != uid;
        !known.is_over
    }

    /// A runner ended. A failure stays one, whatever the steps after it come to; a run that lost its lease may come again.
    pub(super) fn ended(&self, uid: Uuid, outcome: &Outcome) {
        let Some(watched) = &self.0 else { return };
        let mut story = watched.story();
        let Some(known) = story.as_mut().filter(|known| known.uid == uid) else { return };
        let (own, stays) = match outcome {
            Outcome::Done | Outcome::Reboot | Outcome::PowerOff | Outcome::Kexec => (Verdict::Succeeded, false),
            Outcome::Failed(problem) => (Verdict::Failed(problem.to_string()), true),
            Outcome::Stopped(problem) => (Verdict::Failed(problem.to_string()), problem.code == ErrorCode::Cancelled),
            Outcome::Untold => return,
        };
        if !known.has_failed {
            (known.own, known.has_failed) = (Some(own), stays);
        }
    }

    /// The coordinator says how a workflow ended: whether this is the one, and over, because nothing runs.
    pub(super) fn hears(&self, ended: &Ended, is_idle: bool) -> bool {
        let Some(watched) = &self.0 else { return false };
        if let Some(known) = watched.story().as_mut().filter(|known| known.uid == ended.workflow_uid) {
            known.said = Some(ended.problem.clone().map_or(Verdict::Succeeded, Verdict::Failed));
        }
        self.rests(is_idle)
    }

    /// A runner has ended, or nothing ran: whether the workflow is over.
    pub(super) fn rests(&self, is_idle: bool) -> bool {
        let Some(watched) = &self.0 else { return false };
        let mut story = watched.story();
        let Some(known) = story.as_mut().filter(|known| is_idle && known.said.is_some()) else { return false };
        known.is_over = true;
        true
    }

    /// Whether the one workflow is still to come.
    pub(super) fn waits(&self) -> bool {
        self.0.as_ref().is_some_and(|watched| watched.story().is_none())
    }

    /// Whether it is over.
    pub(super) fn is_over(&self) -> bool {
        self.0.as_ref().is_some_and(|watched| watched.story().as_ref().is_some_and(|known| known.is_over))
    }

    /// It is over, and every report of it has been sent.
    pub(super) fn tell(&self) {
        if let Some(watched) = &self.0 {
            watched.over.notify_one();
        }
    }

    /// What is known of it so far; `None` where nothing is watched.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        let story = self.0.as_ref()?.story();
        let known = story.as_ref().and_then(|known| known.said.as_ref().or(known.own.as_ref()).cloned());
        Some(known.unwrap_or_else(|| Verdict::Failed("the agent does not know how it ended".to_owned())))
    }

    /// Waits until the workflow is over; pending for ever where nothing is watched.
    pub(crate) async fn over(&self) {
        match &self.0 {
            Some(watched) => watched.over.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl Watched {
    fn story(&self) -> MutexGuard<'_, Option<Story>> {
        // Every critical section leaves the story whole, so a poisoned lock is still good.
        self.story.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::Problem;

    use super::*;

    /// What happens to an agent, in order.
    enum Happens {
        /// An assignment of the workflow with this number is taken, or left.
        Assigned(u128, bool),
        Ended(Outcome),
        /// The coordinator says that the workflow with this number succeeded, or failed, while nothing runs, or something does.
        Said(u128, bool, bool),
    }

    #[test]
    fn the_coordinators_word_ends_one_workflow() {
        use Happens::{Assigned, Ended, Said};
        let problem = |code| Problem::new(code, "why");
        let failed = || Outcome::Failed(problem(ErrorCode::ProgramFailed));
        let stopped = |code| Outcome::Stopped(problem(code));
        let why = |code| Some(Verdict::Failed(problem(code).to_string()));
        let (succeeded, said) = (Some(Verdict::Succeeded), Some(Verdict::Failed("said".into())));
        let (cancelled, expired) = (ErrorCode::Cancelled, ErrorCode::LeaseExpired);
        let first = || Assigned(1, true);
        for (happens, is_over, verdict) in [
            // What another workflow came to.
            (vec![Said(7, true, true)], false, None),
            (vec![Said(7, true, true), first(), Said(7, true, true), Ended(Outcome::Done)], false, succeeded.clone()),
            (vec![first(), Ended(Outcome::Done), Said(1, true, true)], true, succeeded.clone()),
            // It is heard before the runner has ended.
            (vec![first(), Said(1, true, false)], false, succeeded.clone()),
            (vec![first(), Said(1, true, false), Ended(Outcome::Done)], true, succeeded.clone()),
            // The steps after a failure are the same workflow, whichever agent saw the failure.
            (vec![first(), Ended(failed()), first(), Ended(Outcome::Done), Said(1, false, true)], true, said.clone()),
            (vec![first(), Ended(Outcome::Done), Said(1, false, true)], true, said.clone()),
            (vec![first(), Ended(stopped(expired)), first(), Ended(Outcome::Done)], false, succeeded.clone()),
            // The machine restarts: there is no word.
            (vec![first(), Ended(Outcome::Reboot)], false, succeeded.clone()),
            (vec![first(), Ended(failed()), first(), Ended(Outcome::Reboot)], false, why(ErrorCode::ProgramFailed)),
            (vec![first(), Ended(stopped(cancelled)), first(), Ended(Outcome::Reboot)], false, why(cancelled)),
            (vec![first(), Ended(Outcome::Untold)], false, None),
            // Another workflow is left to the next agent, and so is the same one after the end.
            (vec![first(), Ended(Outcome::Done), Assigned(2, false)], true, succeeded.clone()),
            (vec![first(), Ended(Outcome::Done), Said(1, true, true), Assigned(1, false)], true, succeeded),
        ] {
            let once = Once::watched();
            for (at, step) in happens.into_iter().enumerate() {
                match step {
                    Assigned(uid, taken) => assert_eq!(once.takes(Uuid::from_u128(uid)), taken, "step {at}"),
                    Ended(outcome) => {
                        once.ended(Uuid::from_u128(1), &outcome);
                        once.rests(true);
                    }
                    Said(uid, succeeded, is_idle) => {
                        let problem = (!succeeded).then(|| "said".to_owned());
                        let ended = landfall_api::message::Ended { workflow_uid: Uuid::from_u128(uid), problem };
                        once.hears(&ended, is_idle);
                    }
                }
            }
            let unknown = || Verdict::Failed("the agent does not know how it ended".to_owned());
            assert_eq!((once.verdict(), once.is_over()), (Some(verdict.unwrap_or_else(unknown)), is_over));
        }
        let always = Once::default();
        assert!(always.takes(Uuid::from_u128(1)) && always.takes(Uuid::from_u128(2)) && !always.rests(true));
        assert!(!always.is_over() && !always.waits() && always.verdict().is_none());
    }
}
