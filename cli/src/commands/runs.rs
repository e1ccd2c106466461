//! `landfall cancel`, `pause` and `resume`: they control a running workflow.

use std::collections::BTreeSet;

use landfall_api::{Document, ErrorCode, Kind, LabelSelector, Problem, Workflow, WorkflowPhase};
use landfall_client::{Client, Scope};

use super::each::{each, stated};
use crate::args::{Run, Target};
use crate::failure::Failure;
use crate::output::Out;

/// A request for a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Cancel,
    Pause,
    Resume,
}

pub(crate) async fn run(verb: Verb, args: &Run, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let (route, said) = match verb {
        Verb::Cancel => ("cancel", "cancelling"),
        Verb::Pause => ("pause", "pausing: the current action ends first"),
        Verb::Resume => ("resume", "resumed"),
    };
    let subjects = match (&args.selector, args.workflows.as_slice()) {
        (None, []) => return Err(Failure::Usage("no workflows selected; use names or --selector".into())),
        (Some(_), [_, ..]) => {
            return Err(Failure::Usage("names and --selector exclude each other; use one of them".into()));
        }
        (None, names) => {
            let full = |name: &String| if name.contains('/') { name.clone() } else { format!("workflow/{name}") };
            names.iter().map(full).collect::<BTreeSet<_>>().into_iter().collect()
        }
        (Some(selector), []) => open(verb, selector, client).await?,
    };
    let one = subjects.len() == 1;
    let ask = |subject: String| async move {
        let name = named(client, &subject).await?;
        Ok(client.act(Kind::Workflow, &name, route, None).await?)
    };
    each(subjects, &args.several, ask, |_, answer| {
        if !args.output.is_table() {
            return args.output.one_of(one, &answer, out);
        }
        let run = landfall_client::workflow(answer)?;
        let cancelled = run.status.as_ref().is_some_and(|status| status.phase == WorkflowPhase::Cancelled);
        let said = if cancelled && verb == Verb::Cancel { "cancelled" } else { said };
        Ok(out.line(&format!("workflow/{} {said}", run.metadata.name))?)
    })
    .await
}

/// The workflows of the machines with these labels that have not ended: those that are paused for `resume`, the others for `pause`.
async fn open(verb: Verb, selector: &LabelSelector, client: &Client) -> Result<Vec<String>, Failure> {
    stated(selector)?;
    let (machines, _) = client.list(&Scope::of(Kind::Machine, Some(selector))).await?;
    let (workflows, _) = client.list(&Scope::of(Kind::Workflow, None)).await?;
    let of = |workflow: &Workflow| machines.iter().any(|machine| machine.metadata().name == workflow.spec.machine);
    let meant = |workflow: &Workflow| {
        let (ended, paused) = workflow
            .status
            .as_ref()
            .map_or((false, false), |status| (status.phase.is_terminal(), status.paused.is_some()));
        !ended && (verb == Verb::Cancel || paused == (verb == Verb::Resume))
    };
    let open: Vec<_> = workflows
        .into_iter()
        .filter_map(|document| match document {
            Document::Workflow(workflow) if of(&workflow) && meant(&workflow) => {
                Some(format!("workflow/{}", workflow.metadata.name))
            }
            _ => None,
        })
        .collect();
    if open.is_empty() {
        let state = match verb {
            Verb::Cancel => "that has not ended",
            Verb::Pause => "that could be paused",
            Verb::Resume => "that is paused",
        };
        return Err(Failure::Usage(format!("no machine with the labels {selector} has a workflow {state}")));
    }
    Ok(open)
}

/// The workflow: named directly, or a machine's newest.
pub(crate) async fn named(client: &Client, subject: &str) -> Result<String, Failure> {
    if !subject.contains('/') {
        return Ok(subject.to_owned());
    }
    match subject.parse::<Target>().map_err(Failure::Usage)? {
        Target { kind: Kind::Workflow, name: Some(name) } => Ok(name),
        Target { kind: Kind::Machine, name: Some(name) } => {
            let Document::Machine(machine) = client.get(Kind::Machine, &name).await? else {
                return Err(Problem::new(ErrorCode::Internal, "the coordinator sent a document of another kind").into());
            };
            machine.status.as_ref().and_then(|s| s.workflow.clone()).ok_or_else(|| {
                Problem::new(ErrorCode::NotFound, format!("machine {name} has no workflow yet"))
                    .hint(format!("start one with landfall provision {name} --template TEMPLATE"))
                    .into()
            })
        }
        _ => Err(Failure::Usage(
            "a workflow is missing; name it, or use machine/NAME for the newest of a machine".into(),
        )),
    }
}
