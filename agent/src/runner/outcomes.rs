//! What the actions of a list came to, and what that decides of those after them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use landfall_api::message::{ActionKind, Assignment};
use landfall_api::{ActionOutcome, HoldSpec, When, WhenFault, results_scope};

/// Of one list; its branches share it.
#[derive(Clone)]
pub(super) struct Outcomes {
    run: Arc<Assignment>,
    known: Arc<Mutex<BTreeMap<u32, ActionOutcome>>>,
}

impl Outcomes {
    /// What the coordinator has said of actions that ended before.
    pub(super) fn new(run: Arc<Assignment>) -> Self {
        let known = run.results.iter().map(|known| (known.index, known.outcome.clone())).collect();
        Self { run, known: Arc::new(Mutex::new(known)) }
    }

    /// An action has ended.
    pub(super) fn note(&self, index: u32, outcome: ActionOutcome) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(index, outcome);
    }

    /// Whether a condition holds now.
    ///
    /// # Errors
    /// [`WhenFault`] where it names what an action did not come to, or what is not known any more.
    pub(super) fn holds(&self, when: &When) -> Result<bool, WhenFault> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let named = |(index, outcome): (&u32, _)| Some((self.run.actions.get(*index as usize)?.name.as_str(), outcome));
        when.holds(&results_scope(known.iter().filter_map(named)))
    }

    /// The list as it was done so far. What was left out is a `hold`: no action that comes later takes it for a layout or an image
    /// that is there.
    pub(super) fn as_done(&self) -> Arc<Assignment> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let left_out = known.iter().filter(|(_, outcome)| !outcome.succeeded).map(|(index, _)| *index as usize);
        let left_out: Vec<usize> = left_out.collect();
        if left_out.is_empty() {
            return self.run.clone();
        }
        let mut run = Assignment::clone(&self.run);
        for index in left_out {
            if let Some(action) = run.actions.get_mut(index) {
                action.kind = ActionKind::Hold(HoldSpec { message: String::new() });
            }
        }
        Arc::new(run)
    }
}
