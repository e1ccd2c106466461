//! `landfall provision`, `deprovision` and `retry`, which start workflows and may wait for them, and `release`.

use std::cell::RefCell;

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
    let (one, out) = (names.len() == 1, RefCell::new(out));
    let check = |name: String| {
        let (body, out) = (body.clone(), &out);
        async move {
            let answer = client.act(Kind::Machine, &name, "dry-run", Some(&body)).await?;
            let (form, out) = (&args.follow.output, &mut **out.borrow_mut());
            if !one && form.is_table() {
                out.line(&format!("machine/{name}:"))?;
            }
            let list: RenderedList = serde_json::from_value(answer.clone()).map_err(show::unseen)?;
            match form.is_table() {
                true => template::list(answer, form, out)?,
                false => form.one_of(one, &answer, out)?,
            }
            match list.machine_check {
                Some(MachineCheck::Failed(problem)) => return Err(problem.into()),
                Some(MachineCheck::NotMade(why)) => {
                    let of = if one { String::new() } else { format!(" {name}") };
                    output::to_stderr(&format!("The list was not checked on the machine{of}: {why}"));
                }
                Some(MachineCheck::Passed) | None => {}
            }
            Ok(())
        }
    };
    each(names, &args.machines.several, check, |_, ()| Ok(())).await
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
    let one = names.len() == 1;
    each(names, &args.machines.several, ask, |name, answer| match args.output.is_table() {
        true => Ok(out.line(&format!("machine/{name} released: it is cleared, and then free"))?),
        false => args.output.one_of(one, &answer, out),
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
