//! One line a machine: redrawn in place on a terminal, printed at each change elsewhere.

use std::io::{IsTerminal as _, stderr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use landfall_api::{ActionState, Workflow, WorkflowPhase};

/// Where lines are printed, progress within one action is worth one this often.
const PRINT_EVERY: Duration = Duration::from_secs(5);

/// A machine's line.
pub(super) struct Live {
    name: String,
    begun: Instant,
    bar: ProgressBar,
    /// What was printed last, without its numbers, and when; absent on a terminal.
    printed: Option<Mutex<(String, Instant)>>,
}

impl Live {
    pub(super) fn new(name: &str, bars: &MultiProgress) -> Self {
        let now = Instant::now();
        let bar = bars.add(ProgressBar::no_length());
        // The template is a constant; were it wrong, the default style would do.
        if let Ok(style) = ProgressStyle::with_template("{prefix:>4} {elapsed_precise} {wide_msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(name.to_owned());
        bar.enable_steady_tick(Duration::from_millis(250));
        let printed = (!stderr().is_terminal()).then(|| Mutex::new((String::new(), now)));
        Self { name: name.to_owned(), begun: now, bar, printed }
    }

    /// The machine is at a new point.
    pub(super) fn stage(&self, what: &str) {
        self.tell(what, "");
    }

    /// Nothing more will come.
    pub(super) fn finish(&self, what: &str) {
        self.tell(what, "");
        self.bar.abandon_with_message(what.to_owned());
    }

    /// Phase, action, bytes and rate.
    pub(super) fn workflow(&self, workflow: &Workflow) {
        let Some(status) = &workflow.status else { return };
        if status.phase == WorkflowPhase::Pending {
            return;
        }
        let mut what = format!("{:?}", status.phase);
        let mut numbers = String::new();
        if let Some(running) = status.actions.iter().find(|action| action.state == ActionState::Running) {
            what = format!("{what}  {}", running.action.name);
            if let Some(p) = &running.progress {
                let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
                what = format!("{what}  {}", p.stage);
                numbers = format!(
                    "  {:.0} of {:.0} MiB stored, {:.0} MiB raw, {:.1} MiB/s",
                    mib(p.stored_bytes),
                    mib(p.stored_total),
                    mib(p.raw_bytes),
                    mib(p.bytes_per_second)
                );
            }
        }
        self.tell(&what, &numbers);
    }

    fn tell(&self, what: &str, numbers: &str) {
        self.bar.set_message(format!("{what}{numbers}"));
        let Some(printed) = &self.printed else { return };
        let mut printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
        if printed.0 != what || !numbers.is_empty() && printed.1.elapsed() >= PRINT_EVERY {
            eprintln!("{:>4} {:6.1}s {what}{numbers}", self.name, self.begun.elapsed().as_secs_f64());
            *printed = (what.to_owned(), Instant::now());
        }
    }
}
