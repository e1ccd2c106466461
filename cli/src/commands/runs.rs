//! `landfall cancel`, `pause` and `resume`: they control a running workflow.

use landfall_api::{Document, ErrorCode, Kind, Problem, WorkflowPhase};
use landfall_client::Client;

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
    let name = named(client, &args.workflow).await?;
    let route = match verb {
        Verb::Cancel => "cancel",
        Verb::Pause => "pause",
        Verb::Resume => "resume",
    };
    let answer = client.act(Kind::Workflow, &name, route, None).await?;
    if !args.output.is_table() {
        return args.output.value(&answer, out);
    }
    let run = landfall_client::workflow(answer)?;
    let phase = run.status.as_ref().map(|s| s.phase);
    let said = match verb {
        Verb::Cancel if phase == Some(WorkflowPhase::Cancelled) => "cancelled",
        Verb::Cancel => "cancelling",
        Verb::Pause => "pausing: the current action ends first",
        Verb::Resume => "resumed",
    };
    Ok(out.line(&format!("workflow/{} {said}", run.metadata.name))?)
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
