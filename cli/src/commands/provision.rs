//! `landfall provision`, `deprovision` and `retry`, which start workflows and may wait for them, and `release`.

use landfall_api::{DeprovisionRequest, Kind, MachineCheck, PreviewRequest, ProvisionRequest, RenderedList};
use landfall_client::Client;
use serde::Serialize;
use serde_json::Value;

use super::each::{each, named};
use super::preview;
use super::{follow, stated, template};
use crate::args::{Deprovision, Provision, Release, Retry, Several};
use crate::failure::Failure;
use crate::output::Out;
use crate::{output, show};

pub(crate) async fn run(args: &Provision, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let names = named(&args.machines, client).await?;
    let parameters = stated::of_template(&args.params, &args.template, client).await?;
    let asked = PreviewRequest {
        template: Some(args.template.clone()),
        parameters: parameters.clone(),
        ..PreviewRequest::default()
    };
    let request = |expects| ProvisionRequest {
        template: args.template.clone(),
        parameters: parameters.clone(),
        force: args.force,
        expects,
    };
    if args.dry_run {
        return dry_run(args, names, &request(None), client, out).await;
    }
    let agreed = preview::agree(&names, &asked, (args.force, args.yes), client).await?;
    let start = |name: String| start(client, "provision", agreed.of(&name).map(request), name);
    follow::each(names, (&args.machines.several, &args.follow), start, client, out).await
}

async fn dry_run(
    args: &Provision, names: Vec<String>, request: &ProvisionRequest, client: &Client, out: &mut Out,
) -> Result<(), Failure> {
    let body = serde_json::to_value(request).map_err(show::unseen)?;
    let several = names.len() > 1;
    let ask = |name: String| {
        let body = body.clone();
        async move { Ok(client.act(Kind::Machine, &name, "dry-run", Some(&body)).await?) }
    };
    let mut refused = Vec::new();
    let shown = each(names, &args.machines.several, ask, |name, answer: Value| {
        if several && args.follow.output.is_table() {
            out.line(&format!("machine/{name}:"))?;
        }
        let list: RenderedList = serde_json::from_value(answer.clone()).map_err(show::unseen)?;
        template::list(answer, &args.follow.output, out)?;
        match list.machine_check {
            Some(MachineCheck::Failed(problem)) => refused.push((name.to_owned(), problem)),
            Some(MachineCheck::NotMade(why)) => {
                let of = if several { format!(" {name}") } else { String::new() };
                output::to_stderr(&format!("The list was not checked on the machine{of}: {why}"));
            }
            Some(MachineCheck::Passed) | None => {}
        }
        Ok(())
    });
    shown.await?;
    let of = refused.len();
    match refused.pop() {
        None => Ok(()),
        Some((_, problem)) if !several => Err(problem.into()),
        Some(last) => {
            refused.push(last);
            refused.into_iter().for_each(|(name, problem)| super::each::show(&name, &problem.into()));
            Err(Failure::Partly { failed: of, left: 0, of })
        }
    }
}

pub(crate) async fn deprovision(args: &Deprovision, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let names = named(&args.machines, client).await?;
    let (disks, level, fallback) = (args.disks.clone(), args.level, args.fallback.clone());
    let asked = PreviewRequest { disks: disks.clone(), level, fallback: fallback.clone(), ..PreviewRequest::default() };
    let agreed = preview::agree(&names, &asked, (true, args.yes), client).await?;
    let request = |expects| DeprovisionRequest {
        force: args.force,
        disks: disks.clone(),
        level,
        fallback: fallback.clone(),
        power_off: args.power_off,
        expects,
    };
    let start = |name: String| start(client, "deprovision", agreed.of(&name).map(request), name);
    follow::each(names, (&args.machines.several, &args.follow), start, client, out).await
}

pub(crate) async fn release(args: &Release, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let names = named(&args.machines, client).await?;
    let agreed = preview::agree(&names, &PreviewRequest::default(), (true, args.yes), client).await?;
    let ask = |name: String| {
        let agreed = agreed.of(&name);
        async move {
            agreed?;
            Ok(client.act(Kind::Machine, &name, "release", None).await?)
        }
    };
    each(names, &args.machines.several, ask, |name, answer| match args.output.is_table() {
        true => Ok(out.line(&format!("machine/{name} released: it is cleared, and then free"))?),
        false => args.output.value(&answer, out),
    })
    .await
}

/// Requests a workflow for a machine whose preview was agreed to.
async fn start(
    client: &Client, verb: &str, request: Result<impl Serialize, Failure>, machine: String,
) -> Result<Value, Failure> {
    let body = serde_json::to_value(request?).map_err(show::unseen)?;
    Ok(client.act(Kind::Machine, &machine, verb, Some(&body)).await?)
}

pub(crate) async fn retry(args: &Retry, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let name = super::runs::named(client, &args.workflow).await?;
    let start = |name: String| async move { Ok(client.act(Kind::Workflow, &name, "retry", None).await?) };
    follow::each(vec![name], (&Several::ONE, &args.follow), start, client, out).await
}
