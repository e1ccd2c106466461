//! `landfall cancel`, `pause` and `resume`: what shall become of a run under way.

use landfall_api::{Document, ErrorCode, Kind, Problem, WorkflowPhase};

use crate::{
    args::{Run, Target},
    client::{self, Client},
    failure::Failure,
    output::Out,
};

/// What is asked of a run.
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
    let run = client::workflow(answer)?;
    let phase = run.status.as_ref().map(|s| s.phase);
    let said = match verb {
        Verb::Cancel if phase == Some(WorkflowPhase::Cancelled) => "cancelled",
        Verb::Cancel => "cancelling",
        Verb::Pause => "pausing: the action under way is finished first",
        Verb::Resume => "resumed",
    };
    Ok(out.line(&format!("workflow/{} {said}", run.metadata.name))?)
}

/// The run meant: named itself, or a machine's newest.
pub(crate) async fn named(client: &Client, subject: &str) -> Result<String, Failure> {
    if !subject.contains('/') {
        return Ok(subject.to_owned());
    }
    match subject.parse::<Target>().map_err(Failure::Usage)? {
        Target { kind: Kind::Workflow, name: Some(name) } => Ok(name),
        Target { kind: Kind::Machine, name: Some(name) } => {
            let Document::Machine(machine) = client.get(Kind::Machine, &name).await? else {
                return Err(Problem::new(ErrorCode::Internal, "the coordinator answered another kind").into());
            };
            machine.status.and_then(|s| s.workflow).ok_or_else(|| {
                Problem::new(ErrorCode::NotFound, format!("machine {name} has no workflow yet"))
                    .hint(format!("landfall provision {name} --template TEMPLATE starts one"))
                    .into()
            })
        }
        _ => Err(Failure::Usage("say which workflow, or machine/NAME for its newest".into())),
    }
}
