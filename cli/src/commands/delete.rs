//! `landfall delete`.

use landfall_api::{ErrorCode, Kind};
use landfall_client::{Client, Scope};

use super::wait::{self, For};
use crate::args::{Delete, Selection, Which};
use crate::failure::Failure;
use crate::output::Out;
use crate::{files, output};

pub(crate) async fn run(args: &Delete, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let named = named(args, client).await?;
    if named.is_empty() {
        output::to_stderr("There is nothing to delete.");
    }
    let (mut failed, mut leaving) = (None, Vec::new());
    for (n, (kind, name)) in named.iter().enumerate() {
        let rest = n + 1 < named.len() || args.wait;
        let cut_off = |error: std::io::Error| if rest { Failure::from(error).cut_off() } else { error.into() };
        match client.delete(*kind, name).await.map_err(Failure::from) {
            Ok(document) => {
                let held = &document.metadata().finalizers;
                if document.metadata().deletion_timestamp.is_some() && !held.is_empty() {
                    let by = held.join(", ");
                    out.line(&format!("{} is being deleted; it still waits for {by}", document.reference()))
                        .map_err(cut_off)?;
                } else {
                    out.line(&format!("{} deleted", document.reference())).map_err(cut_off)?;
                }
                leaving.push((*kind, name.clone()));
            }
            Err(Failure::Problem(p)) if args.ignore_not_found && p.code == ErrorCode::NotFound => {}
            // The others are still deleted; each failure is printed, and the last one decides the exit code.
            Err(failure) => {
                if let Some(earlier) = failed.replace(failure) {
                    Failure::print(&earlier);
                }
            }
        }
    }
    if args.wait && !leaving.is_empty() {
        wait::until(client, Selection::Named(leaving), None, &For::Delete, args.timeout.get(), &mut |_| Ok(())).await?;
    }
    failed.map_or(Ok(()), Err)
}

/// The documents to delete, by name.
async fn named(args: &Delete, client: &Client) -> Result<Vec<(Kind, String)>, Failure> {
    if !args.filename.is_empty() {
        let documents = files::read(&args.filename, false)?;
        // Documents that depend on others are deleted first.
        return Ok(documents.iter().rev().map(|s| (s.document.kind(), s.document.metadata().name.clone())).collect());
    }
    let selection = Which { words: args.words.clone() }.selection()?;
    args.labels.with(&selection)?;
    let kinds = match selection {
        Selection::Named(_) if args.all => return Err(Failure::Usage("names and --all exclude each other".into())),
        Selection::Named(named) => return Ok(named),
        Selection::Kinds(kinds) => kinds,
    };
    if !args.all && args.labels.selector.is_none() {
        let words = kinds.iter().map(|k| k.plural()).collect::<Vec<_>>().join(", ");
        return Err(Failure::Usage(format!("no {words} selected; use names, --selector, or --all")));
    }
    let mut named = Vec::new();
    for kind in kinds {
        let (found, _) = client.list(&Scope::of(kind, args.labels.selector.as_ref())).await?;
        named.extend(found.into_iter().map(|d| (kind, d.metadata().name.clone())));
    }
    Ok(named)
}
