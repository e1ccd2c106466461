//! `landfall apply`: everything is validated before anything is changed.

use std::future::Future;

use landfall_api::{ApplyOutcome, ErrorCode, Sourced};
use landfall_client::Client;
use serde_json::{Value, json};

use crate::args::{Apply, Output};
use crate::failure::Failure;
use crate::output::Out;
use crate::{files, output};

pub(crate) async fn run<F: Future<Output = Result<Client, Failure>>>(
    args: &Apply, connect: impl FnOnce() -> F, out: &mut Out,
) -> Result<(), Failure> {
    // Before connecting: faults in files are reported without a coordinator.
    let documents = files::read(&args.filename, args.recursive)?;
    let client = connect().await?;
    let expected = validate(&client, &documents).await?;
    let mut shown = Vec::new();
    for (i, sourced) in documents.iter().enumerate() {
        let rest = i + 1 < documents.len() && !args.dry_run;
        let cut_off = |error: std::io::Error| if rest { Failure::from(error).cut_off() } else { error.into() };
        let (outcome, object) = if args.dry_run {
            expected[i].clone()
        } else {
            match client.apply(&sourced.document, false).await {
                Ok(applied) => (applied.outcome, applied.object),
                Err(failure) => {
                    let rest: Vec<String> = documents[i..].iter().map(|s| s.document.reference()).collect();
                    output::to_stderr(&format!("not applied: {}", rest.join(", ")));
                    return Err(at(sourced, failure.into()));
                }
            }
        };
        match &args.output {
            Output::Table | Output::Wide => {
                let dry = if args.dry_run { " (dry run)" } else { "" };
                out.line(&format!("{} {outcome}{dry}", sourced.document.reference())).map_err(cut_off)?;
            }
            Output::Name => out.line(&sourced.document.reference()).map_err(cut_off)?,
            _ => shown.push(json!({ "outcome": outcome, "object": object })),
        }
    }
    match &args.output {
        Output::Name => Ok(()),
        other => other.value(&Value::Array(shown), out),
    }
}

/// The outcome for each document, from a dry run of the coordinator.
async fn validate(client: &Client, documents: &[Sourced]) -> Result<Vec<(ApplyOutcome, Value)>, Failure> {
    let (mut out, mut problems) = (Vec::new(), Vec::new());
    for sourced in documents {
        match client.apply(&sourced.document, true).await {
            Ok(would) => out.push((would.outcome, would.object)),
            Err(failure) => match at(sourced, failure.into()) {
                Failure::Problem(problem) if problem.code != ErrorCode::Internal => problems.push(*problem),
                other => return Err(other),
            },
        }
    }
    if problems.is_empty() { Ok(out) } else { Err(Failure::Refused(problems)) }
}

/// Adds the place in the files to the coordinator's refusal.
fn at(sourced: &Sourced, failure: Failure) -> Failure {
    let Failure::Problem(mut problem) = failure else { return failure };
    // The coordinator says `Machine/node-1: spec.identity.macs`, or the field alone.
    let field = problem.subject.rsplit(": ").next().unwrap_or_default();
    let place = if field.starts_with("spec") || field.starts_with("metadata") {
        sourced.origin.place(field)
    } else {
        if !problem.subject.is_empty() {
            problem.causes.insert(0, format!("at {}", problem.subject));
        }
        sourced.origin.place("")
    };
    problem.subject = format!("{place} ({})", sourced.document.reference());
    Failure::Problem(problem)
}
