//! `landfall get`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use landfall_api::{Document, Kind};
use serde_json::json;

use crate::{
    args::{Format, Get},
    client::Client,
    failure::Failure,
    live::{self, News},
    output::{self, Out},
    table,
};

pub(crate) async fn run(args: &Get, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let kind = args.which.target.kind;
    let names = args.which.names();
    if args.watch {
        return watch(args, client, out, kind, &names).await;
    }
    let mut documents = Vec::new();
    let (mut revision, mut failed) = (0, None);
    if names.is_empty() {
        (documents, revision) = client.list(kind).await?;
    }
    for name in &names {
        match client.get(kind, name).await {
            Ok(document) => documents.push(document),
            // What is there is still shown; each failure is said, the last one decides the exit code.
            Err(failure) => {
                if let Some(earlier) = failed.replace(failure) {
                    Failure::print(&earlier);
                }
            }
        }
    }
    if let Some(failure) = failed.take_if(|_| documents.is_empty()) {
        return Err(failure);
    }
    match args.output {
        Format::Table | Format::Wide => {
            if documents.is_empty() {
                output::to_stderr(&format!("There are no {}.", kind.plural()));
            } else {
                let columns = table::documents(kind, &documents, args.output == Format::Wide, Timestamp::now());
                for line in columns.lines(out, true) {
                    out.line(&line)?;
                }
            }
        }
        Format::Json => match (documents.as_slice(), names.len()) {
            ([one], 1) => out.json(one)?,
            _ => out.json(&json!({ "items": documents, "metadata": { "resourceVersion": revision } }))?,
        },
        Format::Yaml => yaml(&documents, out)?,
    }
    failed.map_or(Ok(()), Err)
}

/// Documents separated by `---`: what `apply` takes.
fn yaml(documents: &[Document], out: &mut Out) -> Result<(), Failure> {
    for (i, document) in documents.iter().enumerate() {
        if i > 0 {
            out.line("---")?;
        }
        out.yaml(document)?;
    }
    Ok(())
}

async fn watch(args: &Get, client: &Client, out: &mut Out, kind: Kind, names: &[String]) -> Result<(), Failure> {
    let mut feed = live::feed(client, &[kind]);
    let wanted = |d: &Document| names.is_empty() || names.contains(&d.metadata().name);
    let mut shown = BTreeMap::new();
    let mut first = true;
    while let Some(news) = feed.recv().await {
        let documents = match news {
            News::All(_, documents) => documents,
            News::Changed(document) => vec![document],
            News::Gone(document) => {
                if wanted(&document) && matches!(args.output, Format::Table | Format::Wide) {
                    output::to_stderr(&format!("{} deleted", document.reference()));
                }
                continue;
            }
            News::Lost(failure, wait) => {
                output::to_stderr(&format!("{failure}; trying again in {:.1} s", wait.as_secs_f64()));
                continue;
            }
            News::Ended(failure) => return Err(failure),
        };
        // After a reconnect everything is listed again: only what changed is shown.
        let new = |d: &Document| shown.get(&d.metadata().name) != Some(&d.metadata().resource_version);
        let documents: Vec<Document> = documents.into_iter().filter(|d| wanted(d) && new(d)).collect();
        for document in &documents {
            shown.insert(document.metadata().name.clone(), document.metadata().resource_version);
        }
        match args.output {
            Format::Table | Format::Wide => {
                let columns = table::documents(kind, &documents, args.output == Format::Wide, Timestamp::now());
                for line in columns.lines(out, first) {
                    out.line(&line)?;
                }
            }
            Format::Json => documents.iter().try_for_each(|d| out.json_line(d))?,
            Format::Yaml => {
                if !first && !documents.is_empty() {
                    out.line("---")?;
                }
                yaml(&documents, out)?;
            }
        }
        first = false;
    }
    Ok(())
}
