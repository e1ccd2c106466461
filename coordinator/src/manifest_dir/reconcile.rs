//! Bringing the store in line with what the files say.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use landfall_api::{
    ApplyOutcome, AuditOutcome, Document, ErrorCode, Kind, ManifestFile, ManifestReport, Problem, Sourced,
};
use sha2::{Digest as _, Sha256};

use super::Scan;
use crate::engine::Engine;
use landfall_store::{Store, actor, audit::Note};

/// The label that names the file a document came from. An apply without it takes the document over.
pub(crate) const OWNER: &str = "landfall.dev/manifest";
/// What was applied is remembered for so long; renewed with every change of the file. Forgetting it costs one more apply.
const REMEMBERED: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// By document (`machine/node-1`), the digest of what was applied last.
type Applied = BTreeMap<String, String>;

/// The one that applies, with what it remembers of the files.
pub(super) struct Reconciler {
    engine: Engine,
    store: Store,
    /// As stored; read once a file.
    applied: HashMap<String, Applied>,
    /// What was logged for each file: the same fault is not logged every minute.
    reported: HashMap<String, Vec<Problem>>,
}

/// Under which name the store remembers what was applied of a file.
fn memory(file: &str) -> String {
    format!("manifest/{file}")
}

impl Reconciler {
    pub(super) fn new(engine: Engine, store: Store) -> Self {
        Self { engine, store, applied: HashMap::new(), reported: HashMap::new() }
    }

    /// Applies what is new in the files; with `prune`, deletes what has gone from them.
    pub(super) async fn apply(&mut self, directory: &Path, scan: Scan, prune: bool) -> ManifestReport {
        let mut report = ManifestReport {
            directory: directory.display().to_string(),
            scanned_at: Some(Timestamp::now()),
            ..ManifestReport::default()
        };
        report.problems.extend(scan.problem);
        let unreadable = !report.problems.is_empty();
        let mut owners: HashMap<String, String> = HashMap::new();
        let mut wanted = Vec::new();
        for (name, read) in scan.files {
            let mut file = ManifestFile { file: name.clone(), ..ManifestFile::default() };
            match read {
                Ok(documents) => {
                    file.documents = documents.len() as u64;
                    for sourced in documents {
                        let place = sourced.origin.place("");
                        let reference = sourced.document.reference();
                        match owners.get(&reference) {
                            Some(first) => file.problems.push(
                                Problem::new(ErrorCode::AlreadyExists, format!("{reference} is also in {first}"))
                                    .at(place)
                                    .hint("remove one of the two; the first by file name applies"),
                            ),
                            None => {
                                owners.insert(reference, place);
                                wanted.push((report.files.len(), name.clone(), sourced));
                            }
                        }
                    }
                }
                Err(problems) => file.problems = problems,
            }
            report.files.push(file);
        }
        // Whatever others refer to comes first, whichever file it stands in.
        wanted.sort_by_key(|(_, _, sourced)| Kind::ALL.iter().position(|kind| *kind == sourced.document.kind()));
        let mut now_applied: HashMap<String, Applied> = HashMap::new();
        for (index, name, sourced) in wanted {
            let reference = sourced.document.reference();
            let outcome = self.bring(&name, &sourced).await;
            let Some(file) = report.files.get_mut(index) else { continue };
            match outcome {
                Ok((digest, note)) => {
                    file.applied += 1;
                    file.notes.extend(note);
                    now_applied.entry(name).or_default().insert(reference, digest);
                }
                Err(problem) => file.problems.push(problem),
            }
        }
        for file in &report.files {
            // A file that does not parse says nothing about its documents: what was applied of it stays remembered.
            if file.documents > 0 || file.problems.is_empty() {
                let applied = now_applied.remove(&file.file).unwrap_or_default();
                report.problems.extend(self.remember(&file.file, applied).await.err());
            }
        }
        if prune && !unreadable {
            let pruned = self.prune(&report, &owners).await;
            report.problems.extend(pruned);
        }
        self.tell(&report);
        report
    }

    /// Applies one document if its file says something new about it. Answers its digest, and what a person should know.
    async fn bring(&mut self, file: &str, sourced: &Sourced) -> Result<(String, Option<String>), Problem> {
        let mut document = sourced.document.clone();
        let metadata = document.metadata_mut();
        // A file is no reader of versions: what it says counts from the moment it says it.
        metadata.resource_version = 0;
        metadata.labels.insert(OWNER.to_owned(), file.to_owned());
        let located = |problem: Problem| located(problem, sourced);
        let digest = digest(&document).map_err(located)?;
        let (kind, name, reference) = (document.kind(), document.metadata().name.clone(), document.reference());
        let known = self.applied_of(file).await.map_err(located)?.get(&reference) == Some(&digest);
        if known {
            let there = self.store.documents().get(kind, &name).await.map_err(|e| located(e.into()))?;
            let note = there.is_none().then(|| {
                format!("{reference} was deleted since it was applied; it is created again when its file changes")
            });
            return Ok((digest, note));
        }
        if !self.engine.fleet().leads() {
            return Err(located(does_not_lead()));
        }
        let who = by(file);
        let (_, outcome) =
            actor::acting(&who, self.engine.documents().apply_file(document, &who)).await.map_err(located)?;
        tracing::info!(file, document = reference, %outcome, "a manifest was applied");
        if outcome != ApplyOutcome::Unchanged {
            self.audit(file, "Apply", &reference, outcome.to_string()).await;
        }
        Ok((digest, None))
    }

    async fn applied_of(&mut self, file: &str) -> Result<&Applied, Problem> {
        if !self.applied.contains_key(file) {
            let stored = self.store.secrets().get(&memory(file), Timestamp::now()).await?;
            // What does not parse is forgotten: that costs one more apply.
            let applied = stored.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
            self.applied.insert(file.to_owned(), applied);
        }
        Ok(self.applied.entry(file.to_owned()).or_default())
    }

    async fn remember(&mut self, file: &str, applied: Applied) -> Result<(), Problem> {
        if *self.applied_of(file).await? == applied {
            return Ok(());
        }
        let now = Timestamp::now();
        let expires = now.checked_add(REMEMBERED).unwrap_or(Timestamp::MAX);
        let bytes = serde_json::to_vec(&applied).unwrap_or_default();
        // The one that leads now remembers what it has applied.
        if !self.engine.fleet().leads() {
            return Err(does_not_lead());
        }
        self.store.secrets().put(&memory(file), &bytes, expires).await?;
        self.applied.insert(file.to_owned(), applied);
        Ok(())
    }

    /// Deletes documents that came from a file and are in none now. A file with faults keeps its documents, because its
    /// content is unknown.
    async fn prune(&mut self, report: &ManifestReport, wanted: &HashMap<String, String>) -> Vec<Problem> {
        let mut gone = Vec::new();
        let faulty: BTreeSet<&str> =
            report.files.iter().filter(|f| !f.problems.is_empty()).map(|f| f.file.as_str()).collect();
        // Runs and what they refer to last: a machine is deleted before the secrets it needs.
        for kind in Kind::ALL.into_iter().rev() {
            let documents = match self.store.documents().list(kind).await {
                Ok((documents, _)) => documents,
                Err(error) => return vec![error.into()],
            };
            gone.extend(documents.into_iter().filter_map(|document| {
                let owner = document.metadata().labels.get(OWNER)?.clone();
                let stays = wanted.contains_key(&document.reference()) || faulty.contains(owner.as_str());
                (!stays).then_some((owner, document))
            }));
        }
        if gone.is_empty() {
            return Vec::new();
        }
        if report.files.is_empty() {
            let message =
                format!("all files disappeared at once; {} documents are not deleted because of that", gone.len());
            return vec![
                Problem::new(ErrorCode::Forbidden, message)
                    .at(report.directory.clone())
                    .hint("check that the directory is mounted; else delete them with: landfall delete"),
            ];
        }
        let mut problems = Vec::new();
        for (owner, document) in gone {
            if !self.engine.fleet().leads() {
                break;
            }
            let (kind, reference) = (document.kind(), document.reference());
            let name = document.metadata().name.clone();
            match actor::acting(&by(&owner), self.engine.documents().delete_idle(kind, &name, &by(&owner))).await {
                Ok(_) => {
                    tracing::info!(
                        file = owner,
                        document = reference,
                        "deleted, because it was removed from the manifests"
                    );
                    self.audit(&owner, "Delete", &reference, "it has gone from the manifests".into()).await;
                    if !report.files.iter().any(|file| file.file == owner) {
                        // Should the file come back, it is to be applied anew.
                        self.applied.remove(&owner);
                        let forgotten = self.store.secrets().consume(&memory(&owner), Timestamp::now()).await;
                        problems.extend(forgotten.err().map(Problem::from));
                    }
                }
                Err(problem) => problems.push(problem.at(format!("{reference}, removed from {owner}"))),
            }
        }
        problems
    }

    /// A change in a file's name, for the audit log.
    async fn audit(&self, file: &str, action: &str, subject: &str, detail: String) {
        let note = Note {
            who: by(file),
            from: String::new(),
            action: action.to_owned(),
            subject: subject.to_owned(),
            outcome: AuditOutcome::Done,
            code: None,
            detail,
        };
        self.store.audit().note(Timestamp::now(), note).await;
    }

    /// Each fault once, and again when it has changed.
    fn tell(&mut self, report: &ManifestReport) {
        let of_all = ("", &report.problems);
        let mut reported = HashMap::new();
        for (file, problems) in report.files.iter().map(|f| (f.file.as_str(), &f.problems)).chain([of_all]) {
            if self.reported.get(file) != Some(problems) {
                problems.iter().for_each(|problem| tracing::warn!(file, %problem, "a manifest has a fault"));
            }
            reported.insert(file.to_owned(), problems.clone());
        }
        self.reported = reported;
    }
}

fn does_not_lead() -> Problem {
    let message = "this coordinator does not lead any more, and leaves its directory to the one that does";
    Problem::new(ErrorCode::StoreUnavailable, message)
}

/// Whose name a change is in, in the history of the document.
fn by(file: &str) -> String {
    format!("manifest/{file}")
}

/// The engine speaks of fields; people want the line.
fn located(mut problem: Problem, sourced: &Sourced) -> Problem {
    let subject = std::mem::take(&mut problem.subject);
    let field = subject.rsplit(": ").next().filter(|field| field.contains('.') || *field == "kind").unwrap_or_default();
    let place = sourced.origin.place(field);
    if field.is_empty() && !subject.is_empty() {
        problem.causes.insert(0, subject);
    }
    problem.at(place)
}

fn digest(document: &Document) -> Result<String, Problem> {
    let json = serde_json::to_vec(document)
        .map_err(|error| Problem::new(ErrorCode::Internal, format!("a document does not serialise: {error}")))?;
    Ok(hex::encode(Sha256::digest(json)))
}
