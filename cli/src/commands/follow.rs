//! Workflows that a command starts: each is shown, and waited for if requested.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use landfall_api::{Document, ErrorCode, Kind, Problem, Workflow, WorkflowPhase};
use landfall_client::{Client, Scope};
use serde_json::Value;
use tokio::sync::{Notify, mpsc};

use super::each;
use super::watch::Display;
use crate::args::{Follow, Several};
use crate::failure::Failure;
use crate::live::{Feed, Fleet, MOST_NAMED, News, Shown};
use crate::output::Out;
use crate::text::set_in;
use crate::{human, output, show};

/// A wait without a limit ends by the workflows' own deadlines.
const LONGEST: Duration = Duration::from_secs(7 * 86_400);

/// Starts a workflow for each name with `start`, and waits for their ends if requested.
///
/// # Errors
/// As [`each::each`]; a workflow that does not succeed is a failure of its machine.
pub(crate) async fn each<F: Future<Output = Result<Value, Failure>>>(
    names: Vec<String>, (several, args): (&Several, &Follow), start: impl Fn(String) -> F, client: &Client,
    out: &mut Out,
) -> Result<(), Failure> {
    if args.wait {
        return wait(names, (several, args), start, client, out).await;
    }
    let (mut first, one) = (None, names.len() == 1);
    let started = each::each(names, several, start, |_, answer| {
        if !args.output.is_table() {
            return args.output.one_of(one, &answer, out);
        }
        let run = landfall_client::workflow(answer)?;
        first.get_or_insert(run.spec.machine);
        Ok(out.line(&format!("workflow/{} created", run.metadata.name))?)
    });
    let outcome = started.await;
    if let Some(machine) = first {
        let follow = if one { format!("landfall watch {machine}") } else { "landfall watch".into() };
        output::to_stderr(&format!("A machine takes its workflow when it next netboots; follow it with: {follow}"));
    }
    outcome
}

async fn wait<F: Future<Output = Result<Value, Failure>>>(
    names: Vec<String>, (several, args): (&Several, &Follow), start: impl Fn(String) -> F, client: &Client,
    out: &mut Out,
) -> Result<(), Failure> {
    let of = names.len();
    // They may run one after another.
    let longest = LONGEST.saturating_mul(u32::try_from(of).unwrap_or(u32::MAX));
    let limit = args.timeout.map_or(longest, landfall_api::DurationSpec::get);
    let (waited, news) = Waited::begin(of, args, client, out).await?;
    let one = |name: String| {
        let (waited, starting) = (&waited, start(name.clone()));
        async move {
            match waited.end_of(starting).await {
                Err(failure) if of > 1 && !failure.may_pass() && !matches!(failure, Failure::Closed) => {
                    waited.above(|| each::show(&name, &failure));
                    Err(Failure::NotSucceeded)
                }
                ended => ended,
            }
        }
    };
    tokio::select! {
        outcome = each::each(names, several, one, |_, ()| Ok(())) => outcome,
        failure = waited.show(news) => Err(failure),
        () = tokio::time::sleep(limit) => Err(waited.timed_out(limit)),
    }
}

/// Workflows that the command waits for.
struct Waited<'a> {
    args: &'a Follow,
    out: RefCell<&'a mut Out>,
    feed: Feed,
    fleet: RefCell<Fleet>,
    display: RefCell<Display>,
    /// How many have begun.
    begun: Cell<usize>,
    /// How many of them have not ended.
    open: Cell<usize>,
    /// How many machines the command is about.
    of: usize,
    changed: Notify,
}

impl<'a> Waited<'a> {
    /// Where there are too many to follow each by its name, all documents are followed, and have arrived afterwards: a list from
    /// before a workflow's creation would look like its deletion.
    async fn begin(
        of: usize, args: &'a Follow, client: &Client, out: &'a mut Out,
    ) -> Result<(Self, mpsc::Receiver<News>), Failure> {
        let (feed, mut news) = Feed::new(client);
        let mut fleet = Fleet::default();
        if of > MOST_NAMED {
            for kind in [Kind::Machine, Kind::Workflow] {
                feed.follow(Scope::of(kind, None));
            }
            let mut lists = 0;
            while lists < 2 {
                match news.recv().await {
                    Some(News::Ended(failure)) => return Err(failure),
                    Some(news) => {
                        lists += usize::from(matches!(news, News::All(..)));
                        fleet.take(news);
                    }
                    None => return Err(Failure::NotSucceeded),
                }
            }
        }
        let display = RefCell::new(Display::new(out, Shown::Runs(BTreeMap::new())));
        let (out, fleet, begun, open) = (RefCell::new(out), RefCell::new(fleet), Cell::new(0), Cell::new(0));
        Ok((Self { args, out, feed, fleet, display, begun, open, of, changed: Notify::new() }, news))
    }

    /// Waits for the end of the workflow that `starting` starts, and shows it.
    async fn end_of(&self, starting: impl Future<Output = Result<Value, Failure>>) -> Result<(), Failure> {
        let run = landfall_client::workflow(starting.await?)?;
        let (name, machine) = (run.metadata.name.clone(), run.spec.machine.clone());
        if self.of == 1 && self.args.output.is_table() {
            self.out
                .borrow_mut()
                .line(&format!("workflow/{name} created"))
                .map_err(|error| Failure::from(error).cut_off())?;
        }
        self.fleet.borrow_mut().put(Document::Workflow(run.into()));
        self.display.borrow_mut().add(&machine, &name);
        if self.of <= MOST_NAMED {
            self.feed.follow_on(Scope::one(Kind::Machine, &machine));
            self.feed.follow_on(Scope::one(Kind::Workflow, &name));
        }
        self.begun.set(self.begun.get() + 1);
        self.open.set(self.open.get() + 1);
        let ended = self.ended(&name).await;
        self.open.set(self.open.get() - 1);
        if self.of == 1 {
            self.display.borrow_mut().clear();
        }
        let ended = ended?;
        self.above(|| finish(self.args, self.of == 1, &ended, &mut self.out.borrow_mut()))
    }

    async fn ended(&self, name: &str) -> Result<Workflow, Failure> {
        loop {
            // Before the look: a change in between is not missed.
            let changed = self.changed.notified();
            match self.fleet.borrow().run(name) {
                Some(run) if run.status.as_ref().is_some_and(|status| status.phase.is_terminal()) => {
                    return Ok(run.clone());
                }
                Some(_) => {}
                None => return Err(Problem::new(ErrorCode::NotFound, format!("workflow {name} was deleted")).into()),
            }
            changed.await;
        }
    }

    /// Takes what comes, and shows it. Returns why it cannot go on.
    async fn show(&self, mut feed: mpsc::Receiver<News>) -> Failure {
        let quiet = !self.args.output.is_table();
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                news = feed.recv() => match news {
                    Some(News::Ended(failure)) => return failure,
                    Some(News::Lost(failure, wait)) => if !quiet { self.display.borrow_mut().lost(&failure, wait) },
                    Some(news) => {
                        self.fleet.borrow_mut().take(news);
                        self.changed.notify_waiters();
                    }
                    None => return Failure::NotSucceeded,
                },
                _ = tick.tick() => {}
            }
            if !quiet
                && let Err(failure) = self.display.borrow_mut().show(&self.fleet.borrow(), &mut self.out.borrow_mut())
            {
                return failure.cut_off();
            }
        }
    }

    /// Prints above the lines that are redrawn in place.
    fn above<T>(&self, print: impl FnOnce() -> T) -> T {
        self.display.borrow().above(print)
    }

    fn timed_out(&self, limit: Duration) -> Failure {
        let (open, begun, limit) = (self.open.get(), self.begun.get(), limit.as_secs());
        let what = match self.of - begun {
            _ if self.of == 1 => format!("the workflow has not ended within {limit} s"),
            0 => format!("{open} of {begun} workflows have not ended within {limit} s"),
            left => format!("{open} of {begun} workflows have not ended within {limit} s, and {left} were not begun"),
        };
        Failure::TimedOut { what, hint: "what was started continues; landfall get workflows shows its state".into() }
    }
}

/// Shows how a workflow ended.
fn finish(args: &Follow, one: bool, run: &Workflow, out: &mut Out) -> Result<(), Failure> {
    let printed = summary(args, one, run, out);
    let Some(status) = &run.status else { return Err(Failure::NotSucceeded) };
    let name = &run.metadata.name;
    if status.phase == WorkflowPhase::Succeeded {
        return printed;
    }
    if let Some(problem) = &status.problem {
        // Printed like every refusal, but the exit code is that of a failed workflow.
        Failure::from(problem.clone()).print();
        for line in &problem.last_log_lines {
            output::to_stderr(&format!("  | {}", set_in(line, "  | ")));
        }
        output::to_stderr(&format!("  landfall describe workflow {name} shows all details"));
    }
    Err(Failure::NotSucceeded)
}

fn summary(args: &Follow, one: bool, run: &Workflow, out: &mut Out) -> Result<(), Failure> {
    let Some(status) = &run.status else { return Ok(()) };
    let name = &run.metadata.name;
    if args.output.is_table() {
        let took = human::between(run.metadata.creation_timestamp, status.ended_at, jiff::Timestamp::now());
        let took = took.map(|t| format!(" after {t}")).unwrap_or_default();
        match status.phase {
            WorkflowPhase::Succeeded => out.line(&format!("workflow/{name} succeeded{took}"))?,
            phase => out.line(&format!("workflow/{name} {}{took}", format!("{phase:?}").to_lowercase()))?,
        }
    } else {
        args.output.one_of(one, &serde_json::to_value(run).map_err(show::unseen)?, out)?;
    }
    Ok(())
}
