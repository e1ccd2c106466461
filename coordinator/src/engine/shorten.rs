//! What is left out of a workflow's status if it would become too large for its document.
//!
//! Each report of an agent has a bound, and a list has one; both together may still come to more than a document can hold.
//! The log keeps the whole reports.

use landfall_api::{ErrorCode, Problem, WorkflowStatus};

/// A message is cut here then, bytes.
const MESSAGE: usize = 512;
/// A hint, and what it is about, here.
const HINT: usize = 256;

/// How much of a status is to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// All of it.
    Whole,
    /// Without the failures' details.
    Short,
    /// Even so it is too large: the run ends where it stood.
    Nothing,
}

impl Room {
    /// The next smaller one.
    pub(super) const fn less(self) -> Self {
        match self {
            Self::Whole => Self::Short,
            Self::Short | Self::Nothing => Self::Nothing,
        }
    }
}

/// Drops what explains the failures; what failed stays.
pub(super) fn shorten(status: &mut WorkflowStatus) {
    for action in status.actions.iter_mut().chain(&mut status.on_failure) {
        action.log_tail.clear();
        action.problem.iter_mut().for_each(brief);
    }
    status.problem.iter_mut().for_each(brief);
}

fn brief(problem: &mut Problem) {
    problem.causes.clear();
    problem.last_log_lines.clear();
    cut(&mut problem.message, MESSAGE);
    cut(&mut problem.hint, HINT);
    cut(&mut problem.subject, HINT);
}

/// A failure in a few words, for a run that cannot be gone on with.
pub(super) fn given_up(what: &str, problem: &Problem) -> Problem {
    let mut shortened = Problem::new(problem.code, format!("{what}: {}", problem.message))
        .hint("read the coordinator's log; provision the machine again when that is mended");
    brief(&mut shortened);
    shortened
}

/// The same where its own status is the trouble.
pub(super) fn outgrown() -> Problem {
    Problem::new(ErrorCode::LimitReached, "the reports of this workflow are larger than its document may be")
        .hint("read the reports with landfall events, and provision the machine again")
}

/// Cuts a text at a character, to so many bytes at most.
pub(super) fn cut(text: &mut String, bytes: usize) {
    let end = (0..=bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.truncate(end);
}
