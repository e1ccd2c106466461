//! Watches the coordinator's documents: a feed that reconnects, and one line per machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use landfall_api::{
    ActionState, ActionStatus, ConditionStatus, ConditionType, Document, ErrorCode, Kind, LabelSelector, Machine,
    Metadata, Shared, WatchType, Workflow,
};
use landfall_client::{Change, Client, Scope};
use tokio::{sync::mpsc, time::Instant};

use crate::{args::Selection, failure::Failure, human, table, text::visible};

/// Waits between attempts to reach the coordinator again: from the first, doubling, to the longest.
pub(crate) const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// A coordinator away for longer than this ends the command.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(600);

/// So many documents are followed by a connection each; where there are more, their kinds are.
pub(crate) const MOST_NAMED: usize = 8;

/// An item of a feed.
pub(crate) enum News {
    /// All documents of a scope, as they were at that revision.
    All(Scope, Vec<Document>, u64),
    /// One document is new or changed.
    Changed(Document),
    /// One document was deleted.
    Gone(Document),
    /// The connection is lost; the next attempt follows after this time.
    Lost(Failure, Duration),
    /// The feed has failed for good.
    Ended(Failure),
}

/// Follows documents of these scopes, as a [`Feed`] does.
pub(crate) fn feed(client: &Client, scopes: Vec<Scope>) -> mpsc::Receiver<News> {
    let (feed, news) = Feed::new(client);
    scopes.into_iter().for_each(|scope| feed.follow(scope));
    news
}

/// Follows documents. The first connection of a scope must succeed at once; later ones are retried. With a selector, only
/// documents of that kind with matching labels are reported.
pub(crate) struct Feed {
    client: Client,
    news: mpsc::Sender<News>,
}

impl Feed {
    pub(crate) fn new(client: &Client) -> (Self, mpsc::Receiver<News>) {
        let (news, receiver) = mpsc::channel(64);
        (Self { client: client.clone(), news }, receiver)
    }

    /// Follows one scope more.
    pub(crate) fn follow(&self, scope: Scope) {
        tokio::spawn(follow(self.client.clone(), scope, self.news.clone(), false));
    }

    /// The same, of a coordinator that has answered before: it is asked again also where the first connection fails.
    pub(crate) fn follow_on(&self, scope: Scope) {
        tokio::spawn(follow(self.client.clone(), scope, self.news.clone(), true));
    }
}

/// What to follow for these documents: each by its name, or the whole kind where there are too many to ask one by one.
pub(crate) fn scopes(selection: &Selection, labels: Option<&LabelSelector>) -> Vec<Scope> {
    match selection {
        Selection::Named(named) if named.len() <= MOST_NAMED => {
            let named: BTreeSet<_> = named.iter().collect();
            named.into_iter().map(|(kind, name)| Scope::one(*kind, name)).collect()
        }
        _ => selection.kinds().into_iter().map(|kind| Scope::of(kind, labels)).collect(),
    }
}

async fn follow(client: Client, scope: Scope, news: mpsc::Sender<News>, mut ever: bool) {
    let (mut wait, mut lost_at) = (FIRST_WAIT, None::<Instant>);
    let mut from = None;
    loop {
        let failure = match run(&client, &scope, &mut from, &news, &mut ever).await {
            Ok(()) => return,
            Err(Ended::Expired) => {
                from = None;
                continue;
            }
            Err(Ended::Quietly) => {
                // A restarting coordinator ends its streams: that is an error only if it then does not answer.
                (wait, lost_at) = (FIRST_WAIT, None);
                tokio::time::sleep(FIRST_WAIT).await;
                continue;
            }
            Err(Ended::Failed { failure, heard }) => {
                if heard {
                    (wait, lost_at) = (FIRST_WAIT, None);
                }
                failure
            }
        };
        let since = *lost_at.get_or_insert_with(Instant::now);
        if !ever || !failure.may_pass() || since.elapsed() > GIVE_UP {
            // The receiver may have gone; then the news are not needed.
            drop(news.send(News::Ended(failure)).await);
            return;
        }
        if news.send(News::Lost(failure, wait)).await.is_err() {
            return;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

enum Ended {
    Expired,
    Quietly,
    Failed { failure: Failure, heard: bool },
}

/// One connection. `Ok` when the receiver has gone.
async fn run(
    client: &Client, scope: &Scope, from: &mut Option<u64>, news: &mpsc::Sender<News>, ever: &mut bool,
) -> Result<(), Ended> {
    let mut heard = false;
    let ended = |failure: Failure, heard: bool| match &failure {
        Failure::Problem(problem) if problem.code == ErrorCode::Expired => Ended::Expired,
        _ => Ended::Failed { failure, heard },
    };
    let revision = match *from {
        Some(revision) => revision,
        None => {
            let (documents, revision) = client.list(scope).await.map_err(|f| ended(f.into(), false))?;
            heard = true;
            if news.send(News::All(scope.clone(), documents, revision)).await.is_err() {
                return Ok(());
            }
            revision
        }
    };
    *from = Some(revision);
    *ever = true;
    let mut changes = client.watch(scope, revision).await.map_err(|f| ended(f.into(), heard))?;
    while let Some(change) = changes.next().await {
        let Change { kind, resource_version, object, problem } = change.map_err(|f| ended(f.into(), true))?;
        *from = Some(resource_version);
        let document = |object: Option<serde_json::Value>| object.and_then(|tree| Document::from_value(tree).ok());
        let sent = match kind {
            WatchType::Bookmark => continue,
            WatchType::Error => return Err(problem.map_or(Ended::Expired, |p| ended(p.into(), true))),
            WatchType::Added | WatchType::Modified => document(object).map(News::Changed),
            WatchType::Deleted => document(object).map(News::Gone),
        };
        if let Some(sent) = sent
            && news.send(sent).await.is_err()
        {
            return Ok(());
        }
    }
    Err(Ended::Quietly)
}

/// Machines and their workflows, as last reported.
#[derive(Default)]
pub(crate) struct Fleet {
    machines: BTreeMap<String, Shared<Machine>>,
    runs: BTreeMap<String, Shared<Workflow>>,
}

impl Fleet {
    pub(crate) fn take(&mut self, news: News) {
        match news {
            News::All(scope, documents, revision) => {
                // What was put since is not in the list, and not deleted.
                let newer = |metadata: &Metadata| metadata.resource_version > revision;
                self.machines.retain(|name, found| !scope.has(Kind::Machine, name) || newer(&found.metadata));
                self.runs.retain(|name, found| !scope.has(Kind::Workflow, name) || newer(&found.metadata));
                documents.into_iter().for_each(|d| self.put(d));
            }
            News::Changed(document) => self.put(document),
            News::Gone(document) => match document {
                Document::Machine(machine) => drop(self.machines.remove(&machine.metadata.name)),
                Document::Workflow(run) => drop(self.runs.remove(&run.metadata.name)),
                Document::Template(_) | Document::Secret(_) | Document::EnrolmentRule(_) | Document::Pool(_) => {}
            },
            News::Lost(..) | News::Ended(_) => {}
        }
    }

    /// Takes in a document, unless a newer version of it is there: the answer to a request may come after the news.
    pub(crate) fn put(&mut self, document: Document) {
        let older = |there: Option<&Metadata>| {
            there.is_some_and(|there| {
                let new = document.metadata();
                there.uid == new.uid && there.resource_version > new.resource_version
            })
        };
        let name = document.metadata().name.clone();
        match &document {
            Document::Machine(_) if older(self.machines.get(&name).map(|found| &found.metadata)) => return,
            Document::Workflow(_) if older(self.runs.get(&name).map(|found| &found.metadata)) => return,
            _ => {}
        }
        match document {
            Document::Machine(machine) => drop(self.machines.insert(name, machine)),
            Document::Workflow(run) => drop(self.runs.insert(name, run)),
            Document::Template(_) | Document::Secret(_) | Document::EnrolmentRule(_) | Document::Pool(_) => {}
        }
    }

    pub(crate) fn run(&self, name: &str) -> Option<&Workflow> {
        Some(self.runs.get(name)?)
    }

    /// One line for each of these machines.
    pub(crate) fn lines(&self, shown: &Shown, now: Timestamp) -> Vec<Line> {
        let wanted = |name: &String| match shown {
            Shown::All => true,
            Shown::Machines(names) => names.contains(name),
            Shown::Runs(runs) => runs.contains_key(name),
        };
        let line = |machine: &Shared<Machine>| {
            let run = match shown {
                Shown::Runs(runs) => runs.get(&machine.metadata.name).map(String::as_str),
                Shown::All | Shown::Machines(_) => None,
            };
            let named = run.or_else(|| machine.status.as_ref().and_then(|s| s.workflow.as_deref()));
            let shown = named.and_then(|n| self.runs.get(n)).filter(|r| r.spec.machine == machine.metadata.name);
            Line::of(machine, shown.map(|run| &**run), now)
        };
        self.machines.values().filter(|m| wanted(&m.metadata.name)).map(line).collect()
    }
}

/// Which machines are shown.
pub(crate) enum Shown {
    /// All, with their newest workflows.
    All,
    /// Those with these names, with their newest workflows.
    Machines(Vec<String>),
    /// The machines of these workflows: a workflow's name by its machine's.
    Runs(BTreeMap<String, String>),
}

/// What is shown of one machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) phase: String,
    /// The action under way, with the attempt where it is not the first, and its stage.
    pub(crate) action: String,
    pub(crate) percent: Option<u64>,
    /// `512.0 MiB/1.2 GiB`.
    pub(crate) bytes: String,
    /// `85.0 MiB/s`.
    pub(crate) rate: String,
    /// `write-bound`: the stage that the others wait for.
    pub(crate) slowest: String,
    /// `ETA 12s`, or how long the workflow has taken.
    pub(crate) time: String,
    /// Why it waits or failed.
    pub(crate) note: String,
}

impl Line {
    fn of(machine: &Machine, run: Option<&Workflow>, now: Timestamp) -> Self {
        let mut line =
            Self { name: machine.metadata.name.clone(), phase: table::machine_phase(machine), ..Self::default() };
        let Some(run) = run else {
            line.note = "no workflow".into();
            return line;
        };
        let Some(status) = &run.status else { return line };
        if let Some(took) = human::between(status.started_at, status.ended_at, now) {
            line.time = took;
        }
        if status.phase.is_terminal() {
            line.action = format!("{:?}", status.phase);
            if let Some(problem) = &status.problem {
                line.note = format!("{}: {}", problem.code, problem.message);
            }
            return line;
        }
        if let Some(action) = status.actions.iter().rfind(|a| a.state == ActionState::Running) {
            line.shows(action, human::silence(status, now));
        } else {
            line.action = format!("{:?}", status.phase);
        }
        let mut said = status.conditions.iter().filter(|c| !c.message.is_empty());
        let missing = said.clone().find(|c| c.kind == ConditionType::NotSeen);
        let amiss = missing.or_else(|| said.find(|c| c.status == ConditionStatus::False));
        line.note = match amiss {
            Some(condition) => condition.message.clone(),
            None if status.started_at.is_none() => "waits for the machine to netboot".into(),
            None => String::new(),
        };
        line
    }

    fn shows(&mut self, action: &ActionStatus, silence: Option<String>) {
        self.action.clone_from(&action.action.name);
        if action.attempt > 1 {
            self.action.push_str(&format!("#{}", action.attempt));
        }
        let Some(progress) = &action.progress else { return };
        if !progress.stage.is_empty() {
            self.action.push_str(&format!(" {}", progress.stage));
        }
        let (done, total) = progress.share();
        self.percent = human::percent(done, total);
        self.bytes = match total {
            0 => human::bytes(progress.raw_bytes),
            _ => format!("{}/{}", human::bytes(done), human::bytes(total)),
        };
        if let Some(silence) = silence {
            self.rate = silence;
            return;
        }
        if progress.bytes_per_second > 0 {
            self.rate = format!("{}/s", human::bytes(progress.bytes_per_second));
            self.time = human::to_go(progress).unwrap_or_else(|| std::mem::take(&mut self.time));
        }
        self.slowest = human::bound_by(progress).unwrap_or_default();
    }

    /// What causes a new line if lines are not redrawn: every change except counters, and every tenth percent.
    pub(crate) fn milestone(&self) -> impl PartialEq + use<> {
        (self.phase.clone(), self.action.clone(), self.percent.map(|p| p / 10), self.note.clone())
    }

    /// Cells, in the order they are shown.
    pub(crate) fn cells(&self) -> [String; 8] {
        let percent = self.percent.map(|p| format!("{p:>3}%")).unwrap_or_default();
        let (action, bytes, rate) = (self.action.clone(), self.bytes.clone(), self.rate.clone());
        let (slowest, time) = (self.slowest.clone(), self.time.clone());
        // Here and not on output, because widths count visible characters.
        [self.name.clone(), self.phase.clone(), action, percent, bytes, rate, slowest, time]
            .map(|cell| visible(&cell).replace(['\n', '\t'], " "))
    }
}

/// The most important lines if not all fit: running workflows, then failed ones, then the rest; each in their order.
pub(crate) fn foremost(lines: &[Line], room: usize) -> Vec<Line> {
    if lines.len() <= room {
        return lines.to_vec();
    }
    let rank = |line: &Line| match line.phase.as_str() {
        "Provisioning" | "Deprovisioning" => 0,
        "Failed" | "Held" => 1,
        _ => 2,
    };
    let mut order: Vec<(usize, &Line)> = lines.iter().enumerate().collect();
    order.sort_by_key(|(at, line)| (rank(line), *at));
    // One row states how many are left out.
    order.truncate(room.saturating_sub(1));
    order.sort_by_key(|(at, _)| *at);
    order.into_iter().map(|(_, line)| line.clone()).collect()
}

/// Lines with their cells in columns; empty columns take no room.
pub(crate) fn columns(lines: &[Line]) -> Vec<String> {
    let mut widths = [0; 8];
    for line in lines {
        for (width, cell) in widths.iter_mut().zip(line.cells()) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let whole = |line: &Line| {
        let mut text = String::new();
        for (cell, width) in line.cells().iter().zip(widths).filter(|(_, width)| *width > 0) {
            text.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(&visible(&line.note).replace(['\n', '\t'], " "));
        text.trim_end().to_owned()
    };
    lines.iter().map(whole).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn running_workflows_are_shown_first_if_not_all_fit() {
        let line = |(name, phase): (&str, &str)| Line { name: name.into(), phase: phase.into(), ..Line::default() };
        let lines: Vec<Line> =
            [("a", "Available"), ("b", "Failed"), ("c", "Provisioning"), ("d", "Available"), ("e", "Provisioning")]
                .map(line)
                .into();
        let names = |room| foremost(&lines, room).iter().map(|l| l.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(5), ["a", "b", "c", "d", "e"]);
        assert_eq!(names(4), ["b", "c", "e"]);
        assert_eq!(names(2), ["c"]);
    }

    #[test]
    fn a_silent_agent_shows_its_age_and_no_rate() {
        let now: Timestamp = "2026-01-01T00:02:05Z".parse().unwrap();
        let machine = json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Machine", "metadata": {"name": "m"},
            "spec": {"identity": {"macs": ["52:54:00:00:00:01"]}}});
        let shown = |silent: &str| {
            let run = json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "m-a"},
                "spec": {"machine": "m", "template": "t"}, "status": {"phase": "Running", "machineGeneration": 1,
                    "startedAt": "2026-01-01T00:00:00Z", "conditions": [{"type": "Silent", "status": silent,
                        "reason": "R", "message": "", "since": "2026-01-01T00:00:00Z", "observedGeneration": 1}],
                    "actions": [{"action": {"name": "look", "hold": {"message": "x"}}, "state": "Running", "attempt": 1,
                        "progress": {"storedBytes": 0, "storedTotal": 0, "rawBytes": 100, "rawTotal": 300,
                            "writtenBytes": 100, "bytesPerSecond": 50, "stage": "write"}}]}});
            let (Document::Machine(machine), Document::Workflow(run)) =
                (Document::from_value(machine.clone()).unwrap(), Document::from_value(run).unwrap())
            else {
                panic!()
            };
            let line = Line::of(&machine, Some(&run), now);
            (line.rate, line.time)
        };
        assert_eq!(shown("False"), ("50 B/s".to_owned(), "ETA 4s".to_owned()));
        assert_eq!(shown("True"), ("silent 2m5s".to_owned(), "2m5s".to_owned()));
    }

    #[test]
    fn an_older_document_replaces_no_newer_one() {
        let run = |version: u64, phase: &str| {
            Document::from_value(json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Workflow",
                "metadata": {"name": "w", "resourceVersion": version}, "spec": {"machine": "m", "template": "t"},
                "status": {"phase": phase, "machineGeneration": 1, "conditions": [], "actions": []}}))
            .unwrap()
        };
        let every = || Scope::of(Kind::Workflow, None);
        let mut fleet = Fleet::default();
        let version = |fleet: &Fleet| fleet.run("w").map(|run| run.metadata.resource_version);
        for (put, there) in [(run(7, "Failed"), 7), (run(6, "Pending"), 7), (run(8, "Failed"), 8)] {
            fleet.put(put);
            assert_eq!(version(&fleet), Some(there));
        }
        fleet.take(News::All(every(), Vec::new(), 7));
        assert_eq!(version(&fleet), Some(8), "it is younger than the list");
        fleet.take(News::All(every(), Vec::new(), 8));
        assert_eq!(version(&fleet), None);
    }

    #[test]
    fn few_named_documents_are_followed_by_name() {
        let named = |n: usize| Selection::Named((0..n).map(|n| (Kind::Machine, format!("node-{n}"))).collect());
        assert_eq!(scopes(&named(1), None), [Scope::one(Kind::Machine, "node-0")]);
        assert_eq!(scopes(&named(MOST_NAMED), None).len(), MOST_NAMED);
        assert_eq!(scopes(&named(MOST_NAMED + 1), None), [Scope::of(Kind::Machine, None)]);
    }

    #[test]
    fn empty_columns_take_no_room() {
        let line = |name: &str, note: &str| Line {
            name: name.into(),
            phase: "Available".into(),
            note: note.into(),
            ..Line::default()
        };
        assert_eq!(columns(&[line("node-1", "x"), line("a", "")]), ["node-1  Available  x", "a       Available"]);
    }
}
