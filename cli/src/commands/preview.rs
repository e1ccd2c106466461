//! Before a request that destroys data: what it destroys, and a question where a person can answer.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, BufRead, IsTerminal};

use futures::StreamExt as _;
use jiff::Timestamp;
use landfall_api::{DiskFacts, Kind, Preview, PreviewRequest, PreviewedAction, ReceiptState};
use landfall_client::Client;

use crate::failure::Failure;
use crate::output::Out;
use crate::text::one_line;
use crate::{contents, human, output, show};

/// What a person agreed to, a digest for each machine; or why a machine's preview could not be made.
pub(crate) struct Agreed(RefCell<BTreeMap<String, Result<Option<String>, Failure>>>);

impl Agreed {
    /// The digest of what the person agreed to; `None` where nothing was asked, or where the coordinator states none. To be asked
    /// once for a machine.
    ///
    /// # Errors
    /// The coordinator's, when it made the preview.
    pub(crate) fn of(&self, machine: &str) -> Result<Option<String>, Failure> {
        self.0.borrow_mut().remove(machine).unwrap_or(Ok(None))
    }
}

/// So many previews are requested at once.
const AT_ONCE: usize = 16;

/// Shows on standard error what the request would destroy, and asks on a terminal unless `yes`: once for all machines. Silent
/// where the disks are known to be blank and `force` is not set.
///
/// # Errors
/// [`Failure::Local`] if the answer is not yes.
pub(crate) async fn agree(
    machines: &[String], asked: &PreviewRequest, (force, yes): (bool, bool), client: &Client,
) -> Result<Agreed, Failure> {
    let body = serde_json::to_value(asked).map_err(show::unseen)?;
    let previews = futures::stream::iter(machines).map(|machine| one(machine, &body, client)).buffered(AT_ONCE);
    let previews: Vec<_> = machines.iter().zip(previews.collect::<Vec<_>>().await).collect();
    let destroys = |preview: &&Preview| !preview.actions.is_empty() && (force || preview.may_destroy());
    let mut count = 0;
    for (machine, preview) in &previews {
        // Standard output is the workflow's.
        let shown = preview.as_ref().ok().filter(destroys).map(|preview| lines(machine, preview, Timestamp::now()));
        count += usize::from(shown.is_some());
        shown.into_iter().flatten().for_each(|line| output::to_stderr(&line));
    }
    let agrees = !yes && io::stdin().is_terminal();
    if agrees && count > 0 {
        let of = if count == 1 { String::new() } else { format!(" on {count} machines") };
        output::to_stderr(&format!("Type yes to destroy this{of}:"));
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        if line.trim() != "yes" {
            let hint = "--yes requests it without a question";
            return Err(Failure::local("nothing was requested", "the answer was not yes", hint));
        }
    }
    let digest = |preview: Preview| {
        // Also of a machine on which nothing was seen: with many, the request may follow hours later.
        let agreed = agrees && !preview.actions.is_empty();
        Some(preview.digest).filter(|digest| agreed && !digest.is_empty())
    };
    let agreed = previews.into_iter().map(|(machine, preview)| (machine.clone(), preview.map(digest)));
    Ok(Agreed(RefCell::new(agreed.collect())))
}

async fn one(machine: &str, body: &serde_json::Value, client: &Client) -> Result<Preview, Failure> {
    let answer = client.act(Kind::Machine, machine, "preview", Some(body)).await?;
    serde_json::from_value(answer).map_err(show::unseen)
}

fn lines(machine: &str, preview: &Preview, now: Timestamp) -> Vec<String> {
    if !preview.disks_known {
        return vec![format!(
            "This destroys data on machine {machine}. What is on its disks is unknown: no agent has reported them yet."
        )];
    }
    let mut out = vec![format!("This destroys data on machine {machine}, as its agent saw the disks last:")];
    for action in &preview.actions {
        out.push(String::new());
        out.push(heading(action));
        for disk in &action.disks {
            out.push(format!("    {}", identity(disk, now)));
            for on in preview.receipts.iter().filter(|on| on.disk.same_disk(&disk.id)) {
                let says = match on.receipt.state {
                    ReceiptState::Intent => "an install that began",
                    ReceiptState::Done => "an install",
                };
                let (name, at) = (one_line(&on.receipt.workflow_name), human::moment(on.receipt.written_at));
                out.push(format!("      {says}: workflow {name}, {at}"));
            }
            let table = contents::columns([disk]);
            out.extend(table.lines(&Out::stdout(), true).iter().map(|line| format!("      {}", line.as_str())));
        }
    }
    out.push(String::new());
    out
}

fn heading(action: &PreviewedAction) -> String {
    let name = &action.name;
    let keeps = match action.keep.as_slice() {
        [] => String::new(),
        keep => format!(" (partitions {} are kept)", keep.join(", ")),
    };
    let missing = match action.unmatched {
        0 => "",
        1 => ", one selector matches no disk that was reported",
        _ => ", several selectors match no disk that was reported",
    };
    let levels: Vec<&str> = action.levels.iter().map(|level| level.as_str()).collect();
    let levels = if levels.is_empty() { String::new() } else { format!(" (level {})", levels.join(", else ")) };
    let keeps = keeps + &levels;
    match action.disks.len() {
        0 => format!("  Action {name}: no disk that was reported matches"),
        1 => format!("  Action {name}{missing}:{keeps}"),
        n => format!("  Action {name}, {n} disks match{missing}:{keeps}"),
    }
}

/// What a person compares with the label on the disk.
fn identity(disk: &DiskFacts, now: Timestamp) -> String {
    let id = &disk.id;
    let mut text = format!("{}, {}", one_line(&id.name), human::bytes(id.size_bytes));
    for (label, value) in [("model", &id.model), ("serial", &id.serial), ("wwn", &id.wwn), ("path", &id.path)] {
        if !value.is_empty() {
            text.push_str(&format!(", {label} {}", one_line(value)));
        }
    }
    if let Some(health) = disk.health.as_ref().filter(|health| health.failing) {
        text.push_str(&format!(", FAILING: {}", one_line(&health.reason)));
    }
    if let Some(contents) = &disk.contents {
        text.push_str(&format!(", seen {} ago", human::age(Some(contents.seen_at), now)));
    }
    text
}
