//! `landfall confirm`: a person's word on what the coordinator alone cannot judge.

use landfall_api::{ConditionStatus, ConditionType, Document, Kind, Machine, Reason};
use landfall_client::{Client, Scope};

use super::runs::named;
use crate::{args::Confirm, failure::Failure, output::Out};

/// Confirms one after another. What was refused does not prevent the others; the first refusal is the command's outcome.
pub(crate) async fn run(args: &Confirm, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let names = if args.all_held { held(client).await? } else { args.names.clone() };
    if names.is_empty() {
        return Ok(out.line("no workflow waits for a confirmation")?);
    }
    let mut outcome = Ok(());
    for name in names {
        match one(args.identity, &name, client).await {
            Ok(said) => out.line(&said)?,
            Err(failure) if outcome.is_ok() => outcome = Err(failure),
            Err(failure) => failure.print(),
        }
    }
    outcome
}

async fn one(identity: bool, subject: &str, client: &Client) -> Result<String, Failure> {
    let (kind, name) = if identity {
        (Kind::Machine, subject.strip_prefix("machine/").unwrap_or(subject).to_owned())
    } else {
        (Kind::Workflow, named(client, subject).await?)
    };
    client.act(kind, &name, "confirm", None).await?;
    Ok(format!("{}/{name} confirmed", kind.singular()))
}

/// The workflows that wait for a confirmation.
async fn held(client: &Client) -> Result<Vec<String>, Failure> {
    let (machines, _) = client.list(&Scope::of(Kind::Machine, None)).await?;
    let workflow = |document| match document {
        Document::Machine(machine) => waits(&machine),
        _ => None,
    };
    Ok(machines.into_iter().filter_map(workflow).collect())
}

fn waits(machine: &Machine) -> Option<String> {
    let status = machine.status.as_ref()?;
    let asked =
        status.conditions.iter().find(|c| c.kind == ConditionType::StoreBehind && c.reason == Reason::AskedBefore)?;
    status.workflow.clone().filter(|_| asked.status == ConditionStatus::True)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_workflows_that_were_requested_before_wait() {
        let machine = |reason: &str, status: &str| {
            let document = json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Machine", "metadata": {"name": "m"},
                "spec": {"identity": {"macs": ["52:54:00:00:00:01"]}}, "status": {"phase": "Held", "workflow": "m-a", "conditions": [
                    {"type": "IdentityAmbiguous", "status": "True", "reason": "TokenReused", "message": "",
                     "since": "2026-01-01T00:00:00Z", "observedGeneration": 1},
                    {"type": "StoreBehind", "status": status, "reason": reason, "message": "",
                     "since": "2026-01-01T00:00:00Z", "observedGeneration": 1}]}});
            let Document::Machine(machine) = Document::from_value(document).unwrap() else { panic!() };
            waits(&machine)
        };
        assert_eq!(machine("AskedBefore", "True").as_deref(), Some("m-a"));
        assert_eq!(machine("AskedBefore", "False"), None);
        assert_eq!(machine("MachineRestarted", "True"), None);
    }
}
