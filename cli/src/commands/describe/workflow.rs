//! The page of a workflow: its state, each action, and why it failed, with the log lines of the action.

use landfall_api::{ActionState, ActionStatus, Problem, Progress, Workflow};

use super::Page;
use crate::failure::Failure;
use crate::table::{Columns, or_dash};
use crate::text::set_in;
use crate::{human, output, table};

impl Page<'_> {
    pub(super) fn workflow(&mut self, run: &Workflow) -> Result<(), Failure> {
        self.metadata(&run.metadata)?;
        self.phase(&table::workflow_phase(run))?;
        self.field("Machine", &run.spec.machine)?;
        self.field("Template", &run.spec.template)?;
        for (name, value) in &run.spec.parameters {
            self.field("Parameter", &format!("{name} = {value}"))?;
        }
        for item in run.status.iter().flat_map(|status| &status.left_out) {
            self.field("Left out", &format!("{}, because this does not hold: {}", item.name, item.when))?;
        }
        if let Some(asked) = &run.spec.authority {
            let force = if asked.force { ", with --force" } else { "" };
            self.field("Asked by", &format!("{} at {}{force}", asked.person, human::moment(asked.at)))?;
        }
        if let Some(cancel) = &run.spec.cancel {
            self.field("Cancelled by", &format!("{} at {}", cancel.person, human::moment(cancel.at)))?;
        }
        let Some(status) = &run.status else { return Ok(()) };
        for (name, at) in [
            ("Started", status.started_at),
            ("Rebooted", status.rebooted_at),
            ("Phoned home", status.phoned_home_at),
            ("Ended", status.ended_at),
        ] {
            if at.is_some() {
                let text = self.moment(at);
                self.field(name, &text)?;
            }
        }
        if let Some(took) = human::between(status.started_at, status.ended_at, self.now) {
            self.field("Took", &took)?;
        }
        if let Some(deadline) = status.deadline.filter(|_| !status.phase.is_terminal()) {
            let left = human::span(deadline.as_second() - self.now.as_second());
            self.field("Deadline", &format!("{} (in {left})", human::moment(deadline)))?;
        }
        self.conditions(&status.conditions)?;
        self.actions(run)?;
        self.failure(run)
    }

    /// Why it failed, with the last log lines of the action that did.
    pub(super) fn failure(&mut self, run: &Workflow) -> Result<(), Failure> {
        let Some(status) = &run.status else { return Ok(()) };
        self.problem(status.problem.as_ref())?;
        if status.problem.as_ref().is_some_and(|problem| !problem.last_log_lines.is_empty()) {
            return Ok(());
        }
        let failed =
            status.actions.iter().filter(|a| a.state == ActionState::Failed || a.state == ActionState::Running);
        for action in failed {
            let lines = &action.log_tail;
            if !lines.is_empty() {
                let attempt =
                    if action.failures > 1 { format!(", failure {}", action.failures) } else { String::new() };
                self.out.line(&format!("  Last log lines of {}{attempt}:", action.action.name))?;
                lines.iter().try_for_each(|line| self.out.line(&quoted(line)))?;
            }
        }
        Ok(())
    }

    pub(super) fn actions(&mut self, run: &Workflow) -> Result<(), Failure> {
        let Some(status) = &run.status else { return Ok(()) };
        self.heading("Actions")?;
        let mut columns =
            Columns::new(&["NAME", "DOES", "STATE", "ATTEMPT", "TOOK", "READ", "IMAGE", "WRITTEN", "RATE"]);
        let silence = human::silence(status, self.now);
        for action in &status.actions {
            columns.row(self.action_cells(action, silence.as_deref()));
        }
        self.columns(&columns)?;
        for action in &status.actions {
            if let Some(when) = &action.action.when {
                let what = if action.is_left_out() { "left out, because this did not hold" } else { "done only if" };
                self.out.line(&format!("  {}: {what}: {when}", action.action.name))?;
            }
            // The workflow's own problem is shown below; these are the problems of earlier attempts.
            if let Some(problem) = &action.problem
                && status.problem.as_ref() != Some(problem)
            {
                let tried =
                    if action.state == ActionState::Succeeded { "an earlier attempt" } else { "the last attempt" };
                let problem = set_in(&problem.to_string(), "    ");
                self.out.line(&format!("  {}: {tried} failed: {problem}", action.action.name))?;
            }
        }
        Ok(())
    }

    /// `silence`: for how long its agent has been silent.
    fn action_cells(&self, action: &ActionStatus, silence: Option<&str>) -> Vec<String> {
        let progress = action.progress.as_ref();
        let running = progress.filter(|_| action.state == ActionState::Running);
        let rate = running.map(|progress| silence.map_or_else(|| going(progress), str::to_owned));
        let of = |done: u64, total: u64| match (done, total) {
            (0, 0) => "-".into(),
            (done, 0) => human::bytes(done),
            (done, total) if done == total => human::bytes(done),
            (done, total) => format!("{}/{}", human::bytes(done), human::bytes(total)),
        };
        vec![
            action.action.name.clone(),
            action.action.spec.key().into(),
            format!("{:?}", action.state),
            or_dash(if action.attempt == 0 { String::new() } else { action.attempt.to_string() }),
            or_dash(human::between(action.started_at, action.ended_at, self.now).unwrap_or_default()),
            progress.map_or("-".into(), |p| of(p.stored_bytes, p.stored_total)),
            progress.map_or("-".into(), |p| of(p.raw_bytes, p.raw_total)),
            progress.map_or("-".into(), |p| of(p.written_bytes, 0)),
            or_dash(rate.unwrap_or_default()),
        ]
    }

    pub(super) fn problem(&mut self, problem: Option<&Problem>) -> Result<(), Failure> {
        let Some(problem) = problem else { return Ok(()) };
        self.heading("Problem")?;
        let code = self.out.paint(problem.code.as_str(), output::RED);
        self.put("  Code", code)?;
        self.field("  What", &problem.message)?;
        if !problem.subject.is_empty() {
            self.field("  Where", &problem.subject)?;
        }
        for cause in &problem.causes {
            self.field("  Because", cause)?;
        }
        if !problem.hint.is_empty() {
            self.field("  What to do", &problem.hint)?;
        }
        if !problem.last_log_lines.is_empty() {
            self.out.line("  Last log lines:")?;
            for line in &problem.last_log_lines {
                self.out.line(&quoted(line))?;
            }
        }
        Ok(())
    }
}

/// A log line; each of its lines is marked as such.
fn quoted(line: &str) -> String {
    format!("    | {}", set_in(line, "    | "))
}

/// `85.0 MiB/s, write-bound, ETA 12s`.
fn going(progress: &Progress) -> String {
    let rate = (progress.bytes_per_second > 0).then(|| format!("{}/s", human::bytes(progress.bytes_per_second)));
    [rate, human::bound_by(progress), human::to_go(progress)].into_iter().flatten().collect::<Vec<_>>().join(", ")
}
