//! `landfall wait`: waits until documents reach a condition or phase, by a watch.

mod what;

use std::{collections::BTreeSet, time::Duration};

use landfall_api::{Document, ErrorCode, Kind, LabelSelector, Problem, WorkflowPhase};

use landfall_client::{Client, Scope};
pub(crate) use what::For;

use crate::args::{Selection, Wait};
use crate::failure::Failure;
use crate::live::News;
use crate::output::Out;
use crate::{live, output};

pub(crate) async fn run(args: &Wait, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let selection = args.which.selection()?;
    args.labels.with(&selection)?;
    if let (Selection::Kinds(kinds), None, false) = (&selection, &args.labels.selector, args.all) {
        let words = kinds.iter().map(|k| k.plural()).collect::<Vec<_>>().join(", ");
        return Err(Failure::Usage(format!("no {words} selected; use names, --selector, or --all")));
    }
    let mut on_met = |reference: &str| Ok(out.line(&format!("{reference} {}", args.what.said()))?);
    until(client, selection, args.labels.selector.as_ref(), &args.what, args.timeout.get(), &mut on_met).await
}

/// Waits, and reports each document that has reached the goal.
///
/// # Errors [`Failure::TimedOut`] after `limit`; if it can no longer reach the goal, why.
pub(crate) async fn until(
    client: &Client, selection: Selection, labels: Option<&LabelSelector>, what: &For, limit: Duration,
    on_met: &mut impl FnMut(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    // Without the labels: a feed by labels reports a document that lost its labels as deleted.
    let scopes = live::scopes(&selection, None);
    let mut waiting = Waiting::new(selection, &scopes, labels.cloned(), what.clone());
    let mut feed = live::feed(client, scopes);
    let clock = tokio::time::sleep(limit);
    tokio::pin!(clock);
    while !waiting.is_over() {
        let news = tokio::select! {
            news = feed.recv() => news,
            () = &mut clock => {
                let open = waiting.open().join(", ");
                let what = format!("timed out after {} s while waiting for {what}; not yet: {open}", limit.as_secs());
                let hint = "read its state with landfall describe; wait longer with --timeout".into();
                return Err(Failure::TimedOut { what, hint });
            }
        };
        match news {
            Some(News::Lost(failure, wait)) => {
                output::to_stderr(&format!("{failure}; next attempt in {:.1} s", wait.as_secs_f64()));
            }
            Some(News::Ended(failure)) => return Err(failure),
            Some(news) => {
                if let Some((kind, name)) = waiting.misses(&news) {
                    // This is only a hint: if it is not available, that is not a failure.
                    let names = client.names(kind).await.unwrap_or_default();
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    return Err(Failure::missing(kind, &name, &names, "; use --for=create to wait for one"));
                }
                let met = waiting.take(news)?;
                for left in std::mem::take(&mut waiting.left) {
                    output::to_stderr(&format!("{left} now has other labels; the command no longer waits for it"));
                }
                for met in met {
                    on_met(&met).map_err(|failure| if waiting.is_over() { failure } else { failure.cut_off() })?;
                }
            }
            None => return Err(Failure::NotSucceeded),
        }
    }
    if waiting.none_came() {
        let hint = "check the labels, or name the documents";
        return Err(Failure::local(format!("no document reached {what}"), "all documents now have other labels", hint));
    }
    Ok(())
}

/// The state of each document in a wait. Pure: news in, the documents that reached the goal out.
struct Waiting {
    selection: Selection,
    /// The names of a kind; empty: all its documents.
    labels: LabelSelector,
    what: For,
    /// What has not been listed yet.
    unlisted: Vec<Scope>,
    /// The documents that have not reached the goal; for kinds, known only after they have been listed.
    open: BTreeSet<(Kind, String)>,
    /// Documents that no longer match, because their labels changed; kept until they are reported.
    left: Vec<String>,
    came: usize,
    went: usize,
}

impl Waiting {
    fn new(selection: Selection, scopes: &[Scope], labels: Option<LabelSelector>, what: For) -> Self {
        let open = match &selection {
            Selection::Named(named) => named.iter().cloned().collect(),
            Selection::Kinds(_) => BTreeSet::new(),
        };
        let (unlisted, labels) = (scopes.to_vec(), labels.unwrap_or_default());
        Self { selection, labels, what, unlisted, open, left: Vec::new(), came: 0, went: 0 }
    }

    /// Whether all documents have gone instead.
    fn none_came(&self) -> bool {
        self.came == 0 && self.went > 0
    }

    fn is_over(&self) -> bool {
        self.unlisted.is_empty() && self.open.is_empty()
    }

    fn open(&self) -> Vec<String> {
        let mut open: Vec<String> =
            self.open.iter().map(|(kind, name)| format!("{}/{name}", kind.singular())).collect();
        open.extend(self.unlisted.iter().map(|scope| scope.kind.plural().to_owned()).filter(|_| self.open.is_empty()));
        open
    }

    /// Which documents reached the goal with these news.
    fn take(&mut self, news: News) -> Result<Vec<String>, Failure> {
        match news {
            News::All(scope, documents, _) => self.listed(&scope, documents),
            News::Changed(document) => Ok(self.seen(&document)?.into_iter().collect()),
            News::Gone(document) => {
                let key = (document.kind(), document.metadata().name.clone());
                if !self.open.contains(&key) {
                    return Ok(Vec::new());
                }
                match self.what {
                    For::Delete => Ok(self.close(&key)),
                    // It may be created again.
                    For::Create => Ok(Vec::new()),
                    _ => Err(gone(&key)),
                }
            }
            News::Lost(..) | News::Ended(_) => Ok(Vec::new()),
        }
    }

    /// A document that is waited for, is not there, and is not to come or to go.
    fn misses(&self, news: &News) -> Option<(Kind, String)> {
        let News::All(scope, documents, _) = news else { return None };
        if matches!(self.what, For::Create | For::Delete) || !self.unlisted.contains(scope) {
            return None;
        }
        let there: BTreeSet<&str> = documents.iter().map(|d| d.metadata().name.as_str()).collect();
        self.open.iter().find(|(kind, name)| scope.has(*kind, name) && !there.contains(name.as_str())).cloned()
    }

    fn listed(&mut self, scope: &Scope, documents: Vec<Document>) -> Result<Vec<String>, Failure> {
        let kind = scope.kind;
        let first = self.unlisted.contains(scope);
        self.unlisted.retain(|other| other != scope);
        let there: BTreeSet<String> = documents.iter().map(|d| d.metadata().name.clone()).collect();
        if first && matches!(self.selection, Selection::Kinds(_)) {
            let meant = |d: &&Document| self.labels.matches(&d.metadata().labels);
            let meant: Vec<_> = documents.iter().filter(meant).map(|d| (kind, d.metadata().name.clone())).collect();
            if meant.is_empty() && self.what != For::Delete {
                let what = format!("there are no {} to wait for", kind.plural());
                return Err(Problem::new(ErrorCode::NotFound, what)
                    .hint("check the labels, or name the documents")
                    .into());
            }
            self.open.extend(meant);
        }
        let mut met = Vec::new();
        let absent: Vec<_> =
            self.open.iter().filter(|(k, name)| scope.has(*k, name) && !there.contains(name)).cloned().collect();
        for key in absent {
            match self.what {
                For::Delete => met.extend(self.close(&key)),
                For::Create => {}
                _ => return Err(gone(&key)),
            }
        }
        for document in &documents {
            met.extend(self.seen(document)?);
        }
        Ok(met)
    }

    fn seen(&mut self, document: &Document) -> Result<Option<String>, Failure> {
        let key = (document.kind(), document.metadata().name.clone());
        if !self.open.contains(&key) {
            return Ok(None);
        }
        if self.what.met(document) {
            return Ok(self.close(&key).pop());
        }
        // From now on a document to be deleted is known by its name: it may still exist.
        if self.what != For::Delete && !self.labels.matches(&document.metadata().labels) {
            self.open.remove(&key);
            self.left.push(document.reference());
            self.went += 1;
            return Ok(None);
        }
        match document {
            // Terminal states never change.
            Document::Workflow(run) if self.what != For::Delete => match &run.status {
                Some(status) if status.phase.is_terminal() => {
                    let phase =
                        if status.phase == WorkflowPhase::Succeeded { "has succeeded" } else { "did not succeed" };
                    let what = format!("workflow {} {phase}: it can no longer reach {}", key.1, self.what);
                    Err(match &status.problem {
                        Some(problem) => Failure::local(what, problem, format!("landfall describe workflow {}", key.1)),
                        None => Failure::local(what, format!("its phase is {:?}", status.phase), ""),
                    })
                }
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

    fn close(&mut self, key: &(Kind, String)) -> Vec<String> {
        self.open.remove(key);
        self.came += 1;
        vec![format!("{}/{}", key.0.singular(), key.1)]
    }
}

fn gone((kind, name): &(Kind, String)) -> Failure {
    Failure::local(format!("{} {name} was deleted during the wait", kind.singular()), "the document is gone", "")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(name: &str, phase: &str) -> Document {
        landfall_client::document(
            json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": name},
            "spec": {"machine": "node-1", "template": "mini"},
            "status": {"phase": phase, "machineGeneration": 1, "actions": [], "conditions": [
                {"type": "InTime", "status": "False", "reason": "x", "message": "", "since": "2026-01-01T00:00:00Z",
                 "observedGeneration": 1}]}}),
        )
        .unwrap()
    }

    fn waiting(names: &[&str], what: &str) -> Waiting {
        let named = names.iter().map(|name| (Kind::Workflow, (*name).to_owned())).collect();
        Waiting::new(Selection::Named(named), &[every()], None, what.parse().unwrap())
    }

    fn every() -> Scope {
        Scope::of(Kind::Workflow, None)
    }

    fn all(documents: Vec<Document>) -> News {
        News::All(every(), documents, 0)
    }

    #[test]
    fn the_wait_ends_when_all_documents_reached_the_goal() {
        let mut waiting = waiting(&["a", "b"], "phase=succeeded");
        assert_eq!(waiting.take(all(vec![run("a", "Succeeded"), run("b", "Running")])).unwrap(), ["workflow/a"]);
        assert!(!waiting.is_over());
        assert!(waiting.take(News::Changed(run("a", "Succeeded"))).unwrap().is_empty());
        assert_eq!(waiting.take(News::Changed(run("b", "Succeeded"))).unwrap(), ["workflow/b"]);
        assert!(waiting.is_over());
    }

    #[test]
    fn an_unreachable_goal_fails_at_once() {
        assert!(waiting(&["a"], "phase=Succeeded").take(all(vec![run("a", "Failed")])).is_err());
        assert!(waiting(&["a"], "condition=InTime").take(all(vec![run("a", "Cancelled")])).is_err());
        assert!(waiting(&["a"], "phase=Failed").take(all(vec![run("a", "Failed")])).is_ok());
        let code = |result: Result<Vec<String>, Failure>| result.unwrap_err().exit_code();
        let missed = |what: &str| waiting(&["none"], what).misses(&all(vec![run("nine", "Running")]));
        assert_eq!(missed("phase=Succeeded"), Some((Kind::Workflow, "none".into())));
        assert_eq!((missed("create"), missed("delete")), (None, None));
        let mut running = waiting(&["a"], "phase=Succeeded");
        running.take(all(vec![run("a", "Running")])).unwrap();
        assert_eq!(code(running.take(News::Gone(run("a", "Running")))), 1);
    }

    #[test]
    fn a_condition_is_met_with_the_requested_status() {
        let one = |what: &str| waiting(&["a"], what).take(all(vec![run("a", "Running")])).unwrap();
        assert_eq!(one("condition=InTime=False"), ["workflow/a"]);
        assert!(one("condition=InTime").is_empty());
        assert!(one("condition=Other=False").is_empty());
        for bad in ["", "phase", "phase=", "condition=", "condition=A=maybe", "gone"] {
            assert!(bad.parse::<For>().is_err(), "{bad}");
        }
    }

    #[test]
    fn waits_for_deletion_and_creation_end_correctly() {
        let mut leaving = waiting(&["a"], "delete");
        assert!(leaving.take(all(vec![run("a", "Failed")])).unwrap().is_empty());
        assert_eq!(leaving.take(News::Gone(run("a", "Failed"))).unwrap(), ["workflow/a"]);
        assert_eq!(waiting(&["a"], "delete").take(all(vec![])).unwrap(), ["workflow/a"]);
        let mut coming = waiting(&["a"], "create");
        assert!(coming.take(all(vec![])).unwrap().is_empty());
        assert_eq!(coming.take(News::Changed(run("a", "Pending"))).unwrap(), ["workflow/a"]);
        assert!(coming.is_over());
    }

    #[test]
    fn a_wait_for_a_kind_covers_its_first_documents() {
        let kind = || Selection::Kinds(vec![Kind::Workflow]);
        let mut whole = Waiting::new(kind(), &[every()], None, "phase=Succeeded".parse().unwrap());
        assert!(!whole.is_over());
        whole.take(all(vec![run("a", "Running"), run("b", "Running")])).unwrap();
        whole.take(News::Changed(run("c", "Running"))).unwrap();
        assert_eq!(whole.open(), ["workflow/a", "workflow/b"]);
        assert!(Waiting::new(kind(), &[every()], None, "phase=Succeeded".parse().unwrap()).take(all(vec![])).is_err());
    }

    fn labelled(name: &str, rack: &str) -> Document {
        let mut document = run(name, "Running");
        document.metadata_mut().labels.insert("rack".into(), rack.into());
        document
    }

    fn rack(what: &str) -> Waiting {
        let kinds = Selection::Kinds(vec![Kind::Workflow]);
        let mut waiting = Waiting::new(kinds, &[every()], Some("rack=r7".parse().unwrap()), what.parse().unwrap());
        waiting.take(all(vec![labelled("a", "r7"), labelled("b", "r7"), labelled("c", "r8")])).unwrap();
        assert_eq!(waiting.open(), ["workflow/a", "workflow/b"]);
        waiting
    }

    #[test]
    fn a_deleted_document_fails_the_wait() {
        let code = |result: Result<Vec<String>, Failure>| result.unwrap_err().exit_code();
        assert_eq!(code(rack("phase=Succeeded").take(News::Gone(labelled("a", "r7")))), 1);
        assert_eq!(code(rack("phase=Succeeded").take(all(vec![labelled("b", "r7")]))), 1);
        assert!(rack("phase=Succeeded").take(News::Gone(labelled("c", "r8"))).unwrap().is_empty());
        assert_eq!(rack("delete").take(News::Gone(labelled("a", "r7"))).unwrap(), ["workflow/a"]);
        assert_eq!(rack("delete").take(all(vec![labelled("b", "r7")])).unwrap(), ["workflow/a"]);
    }

    #[test]
    fn a_document_that_loses_its_labels_is_reported() {
        for news in [News::Changed(labelled("a", "r9")), all(vec![labelled("a", "r9"), labelled("b", "r7")])] {
            let mut waiting = rack("phase=Succeeded");
            assert!(waiting.take(news).unwrap().is_empty());
            assert_eq!(
                (waiting.open(), &*waiting.left),
                (vec!["workflow/b".to_owned()], &["workflow/a".to_owned()][..])
            );
            waiting.take(News::Changed(labelled("b", "r9"))).unwrap();
            assert!(waiting.is_over() && waiting.none_came());
        }
        let mut leaving = rack("delete");
        leaving.take(News::Changed(labelled("a", "r9"))).unwrap();
        assert!(leaving.left.is_empty() && leaving.open().contains(&"workflow/a".to_owned()));
        assert_eq!(leaving.take(News::Gone(labelled("a", "r9"))).unwrap(), ["workflow/a"]);
        assert!(!leaving.none_came());
    }
}
