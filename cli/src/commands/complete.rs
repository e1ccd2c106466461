//! `landfall __complete`: what a shell offers as completion. It prints no errors, because a shell cannot show them.

use std::time::Duration;

use clap::{CommandFactory, Parser};
use landfall_api::Kind;

use crate::args::{Cli, Complete};
use crate::complete;
use crate::complete::Names;
use crate::contexts::Contexts;
use crate::endpoint::Endpoint;
use crate::failure::Failure;
use crate::output::Out;

/// The longest time that a person waits for names.
const LIMIT: Duration = Duration::from_secs(2);
/// More candidates do not fit on a screen.
const MOST: usize = 500;

pub(crate) async fn run(args: &Complete, out: &mut Out) -> Result<(), Failure> {
    let mut command = Cli::command();
    command.build();
    let mut offer = complete::offer(&command, &args.words);
    if let Some(names) = offer.names {
        let found = tokio::time::timeout(LIMIT, names_of(names, &offer.connection)).await;
        offer.words.extend(found.ok().flatten().unwrap_or_default());
    }
    if offer.files && offer.words.is_empty() {
        return Ok(out.line(":files")?);
    }
    // bash completes the part after a `=` itself; other shells need the whole word.
    let split = args.words.len() > 1 && args.words.iter().rev().take(2).any(|word| word == "=");
    let before = if split { "" } else { offer.before.as_str() };
    for (word, about) in offer.words.iter().filter(|(word, _)| word.starts_with(&offer.typed)).take(MOST) {
        out.line(&format!("{before}{word}\t{about}"))?;
    }
    Ok(())
}

async fn names_of(names: Names, connection: &[(String, String)]) -> Option<Vec<(String, String)>> {
    let kinds: &[(Kind, &str)] = match names {
        Names::Contexts => {
            let contexts = Contexts::read(&Contexts::file()?).ok()?;
            return Some(contexts.contexts.into_iter().map(|(name, entry)| (name, entry.server)).collect());
        }
        Names::Of(Kind::Machine) => &[(Kind::Machine, "")],
        Names::Of(Kind::Template) => &[(Kind::Template, "")],
        Names::Of(Kind::Workflow) => &[(Kind::Workflow, "")],
        Names::Of(Kind::Secret) => &[(Kind::Secret, "")],
        Names::Of(Kind::EnrolmentRule) => &[(Kind::EnrolmentRule, "")],
        Names::Of(Kind::Pool) => &[(Kind::Pool, "")],
        Names::Runs => &[(Kind::Workflow, ""), (Kind::Machine, "machine/")],
        Names::Subjects => &[(Kind::Workflow, ""), (Kind::Machine, "")],
    };
    // A token command on the line may be incomplete, so completion must not run it.
    if connection.iter().any(|(name, _)| name == "token_command") {
        return None;
    }
    // The flags typed so far, parsed as on execution.
    let mut line = vec!["landfall".to_owned()];
    for (name, value) in connection {
        line.push(format!("--{}={value}", name.replace('_', "-")));
    }
    line.extend(["version".to_owned(), "--client".to_owned()]);
    let flags = Cli::try_parse_from(line).ok()?.connection;
    // Completion must never ask the person a question.
    let endpoint = Endpoint { may_ask: false, ..Endpoint::find(&flags).ok()? };
    let client = endpoint.client().await.ok()?;
    let mut out = Vec::new();
    for (kind, before) in kinds {
        let found = client.names(*kind).await.ok()?;
        out.extend(found.into_iter().map(|name| (format!("{before}{name}"), kind.singular().to_owned())));
    }
    Some(out)
}
