//! `landfall edit`: a document in the person's own editor. No text of the person is lost, and no change of another
//! person is overwritten unseen.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, SystemTime};

use landfall_api::{ApplyOutcome, ApplyResponse, Document, ErrorCode, Kind, Problem};
use landfall_client::Client;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Edit, Selection};
use crate::failure::Failure;
use crate::output::Out;
use crate::{changes, output};

/// Lines of the buffer that begin so are the command's own, and are taken out before each opening.
const NOTE: &str = "#! ";

/// How often to apply again without a question if only the status changed: a connected machine's heartbeat alone
/// changes the version. Only a faulty coordinator refuses so often in a row.
const MOST_RENEWALS: usize = 5;

pub(crate) async fn run(args: &Edit, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let (kind, name) = match args.which.selection()? {
        Selection::Named(mut named) if named.len() == 1 => named.remove(0),
        _ => return Err(Failure::Usage("exactly one document is needed: KIND NAME, or KIND/NAME".into())),
    };
    if kind == Kind::Workflow {
        return Err(Problem::new(ErrorCode::Forbidden, "a workflow is a record of a request and cannot be edited")
            .hint("use landfall provision, cancel, pause, resume or retry")
            .into());
    }
    let document = client.get(kind, &name).await?;
    let mut buffer = Buffer::new(&document)?;
    let mut base = document;
    let (mut refused, mut conflict) = (None, false);
    loop {
        let before = buffer.text.clone();
        let saved = buffer.open().await?;
        if buffer.is_empty() {
            // The person emptied the file, so it is not kept.
            return Err(refused.unwrap_or_else(|| Failure::local("the edit was abandoned", "the file is empty", "")));
        }
        // The other person's changes have been shown: saving the text again unchanged confirms it.
        if buffer.text == before && !(conflict && saved) {
            let Some(failure) = refused else {
                output::to_stderr("Nothing was changed.");
                return Ok(());
            };
            buffer.keep();
            return Err(failure);
        }
        conflict = false;
        let edited = match buffer.read(kind, &name) {
            Ok(edited) => edited,
            Err(failure) => {
                buffer.note(&failure, &[]);
                refused = Some(failure);
                continue;
            }
        };
        let answer = tokio::select! {
            answer = applied(&edited, &mut buffer, &mut base, client) => answer,
            // The wait for the editor replaced the default effect of Ctrl-C.
            () = interrupted() => Err((Failure::local("the edit was abandoned", "interrupted", ""), Vec::new())),
        };
        match answer {
            Ok(applied) => {
                let said = if applied.outcome == ApplyOutcome::Unchanged { "unchanged" } else { "edited" };
                return Ok(out.line(&format!("{}/{name} {said}", kind.singular()))?);
            }
            Err((failure @ (Failure::Problem(_) | Failure::Refused(_)), differences)) => {
                buffer.note(&failure, &differences);
                conflict = is_conflict(&failure);
                refused = Some(failure);
            }
            Err((failure, _)) => {
                buffer.keep();
                return Err(failure);
            }
        }
    }
}

/// Applies it, also on newer versions if the document itself was not changed. On failure: the changes of other persons.
async fn applied(
    edited: &Document, buffer: &mut Buffer, base: &mut Document, client: &Client,
) -> Result<ApplyResponse<Value>, (Failure, Vec<String>)> {
    let mut edited = edited.clone();
    let only = |failure| (failure, Vec::new());
    let mut tried = 0;
    loop {
        let failure = match client.apply(&edited, false).await.map_err(Failure::from) {
            Err(failure) if is_conflict(&failure) => failure,
            answer => return answer.map_err(only),
        };
        let newest =
            client.get(edited.kind(), &edited.metadata().name).await.map_err(|error| match Failure::from(error) {
                // The document was deleted, so it cannot be edited again.
                Failure::Problem(problem) => {
                    only(Failure::local("cannot read the document again", problem, "landfall apply creates a new one"))
                }
                other => only(other),
            })?;
        let differences = changes::between(&tree(base).map_err(only)?, &tree(&newest).map_err(only)?);
        let version = newest.metadata().resource_version;
        buffer.take_version(version);
        edited.metadata_mut().resource_version = version;
        *base = newest;
        if !differences.is_empty() || tried == MOST_RENEWALS {
            return Err((failure, differences));
        }
        tried += 1;
    }
}

fn is_conflict(failure: &Failure) -> bool {
    matches!(failure, Failure::Problem(problem) if problem.code == ErrorCode::Conflict)
}

/// The editable part of a document, and its version.
fn tree(document: &Document) -> Result<Value, Failure> {
    let mut tree = serde_json::to_value(document).map_err(crate::show::unseen)?;
    if let Some(map) = tree.as_object_mut() {
        map.remove("status");
        if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|name, _| ["name", "labels", "resourceVersion"].contains(&name.as_str()));
        }
    }
    Ok(tree)
}

/// Which file it is and when it was written, made a little earlier: a save within the same tick of the clock shows too.
fn age(path: &Path) -> std::io::Result<(u64, SystemTime)> {
    let file = std::fs::File::options().write(true).open(path)?;
    file.set_modified(file.metadata()?.modified()? - Duration::from_secs(1))?;
    let dated = file.metadata()?;
    Ok((dated.ino(), dated.modified()?))
}

/// Waits for an editor. Ctrl-C is meant for it, as it is for git's: this command stays, and with it what was written.
async fn undisturbed(mut editor: Command) -> std::io::Result<ExitStatus> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let running = tokio::task::spawn_blocking(move || editor.status());
    tokio::pin!(running);
    loop {
        tokio::select! {
            ended = &mut running => {
                // Takes in a Ctrl-C that the editor got last and the runtime has not read yet.
                tokio::task::yield_now().await;
                break ended.map_err(std::io::Error::other)?;
            }
            _ = interrupts.recv() => {}
        }
    }
}

async fn interrupted() {
    match signal(SignalKind::interrupt()) {
        Ok(mut interrupts) => drop(interrupts.recv().await),
        Err(_) => std::future::pending().await,
    }
}

/// The file that the editor opens.
struct Buffer {
    path: PathBuf,
    /// Held as long as the file may be needed; dropping it removes the file.
    file: Option<tempfile::TempPath>,
    text: String,
}

impl Buffer {
    fn new(document: &Document) -> Result<Self, Failure> {
        let body = serde_saphyr::to_string(&tree(document)?)
            .map_err(|e| Failure::local("cannot write the document as YAML", e, ""))?;
        let reference = document.reference();
        let mut text =
            format!("{NOTE}{reference}. Save and leave to apply it; leave it as it is, or empty, to change nothing.\n");
        if document.kind() == Kind::Secret {
            text.push_str(&format!(
                "{NOTE}Values are never shown. Without spec.data they stay unchanged; with it they are replaced.\n"
            ));
        }
        text.push_str(&body);
        // Made with mode 0600: a secret's new values may come to stand in it.
        let made = tempfile::Builder::new().prefix("landfall-edit-").suffix(".yaml").tempfile();
        let file =
            made.map_err(|e| Failure::local("cannot create the file to edit", e, "check that TMPDIR is writable"))?;
        let file = file.into_temp_path();
        Ok(Self { path: file.to_path_buf(), file: Some(file), text })
    }

    /// Opens the editor and reads the result. Returns whether the person saved the file, even unchanged.
    async fn open(&mut self) -> Result<bool, Failure> {
        let failed =
            |what: &str, e: std::io::Error| Failure::local(format!("cannot {what} {}", self.path.display()), e, "");
        std::fs::write(&self.path, &self.text).map_err(|e| failed("write", e))?;
        let written = age(&self.path).map_err(|e| failed("get the time of", e))?;
        let editor = ["VISUAL", "EDITOR"].into_iter().filter_map(|name| std::env::var(name).ok());
        let editor = editor.into_iter().find(|e| !e.trim().is_empty()).unwrap_or_else(|| "vi".into());
        // By a shell, as git does: an editor may have flags of its own.
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{editor} \"$1\""), "sh"]).arg(&self.path);
        let status = undisturbed(command).await;
        let status = status.map_err(|e| Failure::local(format!("cannot run the editor {editor}"), e, ""))?;
        self.text = std::fs::read_to_string(&self.path).map_err(|e| failed("read", e))?;
        if !status.success() {
            let failure = Failure::local(
                format!("the editor {editor} failed, so nothing was applied"),
                status,
                "set VISUAL or EDITOR to an editor of your choice",
            );
            self.keep();
            return Err(failure);
        }
        let saved = std::fs::metadata(&self.path).and_then(|now| Ok((now.ino(), now.modified()?)));
        Ok(saved.map_err(|e| failed("read", e))? != written)
    }

    fn is_empty(&self) -> bool {
        self.text.lines().all(|line| line.trim().is_empty() || line.starts_with('#'))
    }

    fn read(&self, kind: Kind, name: &str) -> Result<Document, Failure> {
        let mut found =
            Document::from_yaml_str(&self.path.display().to_string(), &self.text).map_err(Failure::Refused)?;
        match (found.pop(), found.is_empty()) {
            (Some(one), true) if one.document.kind() == kind && one.document.metadata().name == name => {
                Ok(one.document)
            }
            _ => Err(Problem::new(
                ErrorCode::InvalidDocument,
                format!("this is no longer {}/{name} alone", kind.singular()),
            )
            .hint("an edit changes one document and keeps its name; use landfall apply for others")
            .into()),
        }
    }

    /// Puts a failure at the top, in place of earlier ones, with the changes of other persons.
    fn note(&mut self, failure: &Failure, differences: &[String]) {
        let mut text = String::new();
        let mut line = |said: &str| said.lines().for_each(|l| text.push_str(&format!("{NOTE}{l}\n")));
        let how = if differences.is_empty() {
            "Correct it and save; leave"
        } else {
            "Save it again, corrected or not; leave"
        };
        line(&format!("It was not applied. {how} it unsaved to abandon the edit."));
        failure.lines().iter().for_each(|said| line(said));
        if !differences.is_empty() {
            line("Another person changed meanwhile:");
            differences.iter().for_each(|difference| line(&format!("  {difference}")));
            line("If you save again, your text replaces theirs: copy what you want to keep.");
        }
        let own = self.text.lines().filter(|l| !l.starts_with(NOTE)).map(|l| format!("{l}\n"));
        self.text = text + &own.collect::<String>();
    }

    /// Bases the edit on the newest version.
    fn take_version(&mut self, version: u64) {
        let renewed = |line: &str| match line.trim_start().strip_prefix("resourceVersion:") {
            Some(_) => {
                let indent = line.len() - line.trim_start().len();
                format!("{}resourceVersion: {version}\n", " ".repeat(indent))
            }
            None => format!("{line}\n"),
        };
        self.text = self.text.lines().map(renewed).collect();
    }

    /// Keeps the file and prints its name.
    fn keep(&mut self) {
        if let Some(file) = self.file.take()
            && let Ok(path) = file.keep()
        {
            // The text in memory may be newer than the file: it has the notes.
            drop(std::fs::File::create(&path).and_then(|mut f| f.write_all(self.text.as_bytes())));
            output::to_stderr(&format!("Your text is kept in {}", path.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn buffer() -> Buffer {
        let document = landfall_client::document(json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Machine",
            "metadata": {"name": "node-1", "resourceVersion": 7, "generation": 3},
            "spec": {"identity": {"macs": ["52:54:00:00:00:01"]}}}))
        .unwrap();
        Buffer::new(&document).unwrap()
    }

    #[test]
    fn a_note_appears_once_above_the_text() {
        let mut buffer = buffer();
        buffer.text.push_str("# mine\n");
        for message in ["first\nfault", "second"] {
            buffer.note(&Problem::new(ErrorCode::Conflict, message).into(), &["spec.a: 1 -> 2".into()]);
        }
        assert!(buffer.text.starts_with(NOTE), "{}", buffer.text);
        assert!(
            !buffer.text.contains("first") && buffer.text.contains("#! error: second [Conflict]"),
            "{}",
            buffer.text
        );
        assert!(buffer.text.contains("#!   spec.a: 1 -> 2\n") && buffer.text.ends_with("# mine\n"), "{}", buffer.text);
        assert!(buffer.read(Kind::Machine, "node-1").is_ok());
        assert!(buffer.read(Kind::Machine, "node-2").is_err());
    }

    #[test]
    fn after_a_conflict_the_edit_stands_on_the_newest_version() {
        let mut buffer = buffer();
        assert_eq!(buffer.read(Kind::Machine, "node-1").unwrap().metadata().resource_version, 7);
        buffer.take_version(9);
        assert_eq!(buffer.read(Kind::Machine, "node-1").unwrap().metadata().resource_version, 9);
        assert!(!buffer.is_empty());
        buffer.text = "# only\n\n#! notes\n".into();
        assert!(buffer.is_empty());
    }
}
