//! `landfall provision`, `deprovision` and `retry`: they start a workflow and may wait for it.

use std::time::Duration;

use landfall_api::{
    DeprovisionRequest, ErrorCode, Kind, MachineCheck, PreviewRequest, Problem, ProvisionRequest, RenderedList,
    Workflow, WorkflowPhase,
};
use landfall_client::{Client, Scope};
use serde_json::Value;

use super::{preview, stated, template, watch::Display};
use crate::args::{Deprovision, Follow, Provision, Retry};
use crate::failure::Failure;
use crate::live::{Fleet, News};
use crate::output::Out;
use crate::text::set_in;
use crate::{human, live, output, show};

pub(crate) async fn run(args: &Provision, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let parameters = stated::of_template(&args.params, &args.template, client).await?;
    let asked = PreviewRequest {
        template: Some(args.template.clone()),
        parameters: parameters.clone(),
        ..PreviewRequest::default()
    };
    let mut request =
        ProvisionRequest { template: args.template.clone(), parameters, force: args.force, expects: None };
    if args.dry_run {
        let body = serde_json::to_value(&request).map_err(show::unseen)?;
        let answer = client.act(Kind::Machine, &args.machine, "dry-run", Some(&body)).await?;
        let list: RenderedList = serde_json::from_value(answer.clone()).map_err(show::unseen)?;
        template::list(answer, &args.follow.output, out)?;
        return match list.machine_check {
            Some(MachineCheck::Failed(problem)) => Err(problem.into()),
            Some(MachineCheck::NotMade(why)) => {
                output::to_stderr(&format!("The list was not checked on the machine: {why}"));
                Ok(())
            }
            Some(MachineCheck::Passed) | None => Ok(()),
        };
    }
    request.expects = preview::agree(&args.machine, &asked, (args.force, args.yes), client).await?;
    let body = serde_json::to_value(&request).map_err(show::unseen)?;
    let answer = client.act(Kind::Machine, &args.machine, "provision", Some(&body)).await?;
    follow(answer, &args.follow, client, out).await
}

pub(crate) async fn deprovision(args: &Deprovision, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let (disks, level, fallback) = (args.disks.clone(), args.level, args.fallback.clone());
    let asked = PreviewRequest { disks: disks.clone(), level, fallback: fallback.clone(), ..PreviewRequest::default() };
    let expects = preview::agree(&args.machine, &asked, (true, args.yes), client).await?;
    let request = DeprovisionRequest { force: args.force, disks, level, fallback, expects };
    let body = serde_json::to_value(&request).map_err(show::unseen)?;
    let answer = client.act(Kind::Machine, &args.machine, "deprovision", Some(&body)).await?;
    follow(answer, &args.follow, client, out).await
}

pub(crate) async fn retry(args: &Retry, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let name = super::runs::named(client, &args.workflow).await?;
    let answer = client.act(Kind::Workflow, &name, "retry", None).await?;
    follow(answer, &args.follow, client, out).await
}

/// Shows a started workflow, and waits for it if requested.
async fn follow(answer: Value, args: &Follow, client: &Client, out: &mut Out) -> Result<(), Failure> {
    if !args.wait && !args.output.is_table() {
        return args.output.value(&answer, out);
    }
    let run = landfall_client::workflow(answer)?;
    let (name, machine) = (run.metadata.name, run.spec.machine);
    let quiet = !args.output.is_table();
    if !quiet {
        let printed = out.line(&format!("workflow/{name} created")).map_err(Failure::from);
        printed.map_err(|failure| if args.wait { failure.cut_off() } else { failure })?;
    }
    if !args.wait {
        let next = format!("The machine takes it when it next netboots; follow it with: landfall watch {machine}");
        output::to_stderr(&next);
        return Ok(());
    }
    let waiting = wait(client, &machine, &name, out, quiet);
    // A wait without a limit ends by the workflow's own deadlines.
    let limit = args.timeout.map_or(Duration::from_secs(7 * 86_400), landfall_api::DurationSpec::get);
    let ended = tokio::time::timeout(limit, waiting).await.map_err(|_| Failure::TimedOut {
        what: format!("workflow {name} has not ended within {} s", limit.as_secs()),
        hint: format!("it continues; landfall describe workflow {name} shows its state"),
    })??;
    finish(args, &ended, out)
}

fn finish(args: &Follow, run: &Workflow, out: &mut Out) -> Result<(), Failure> {
    let printed = tell(args, run, out);
    let Some(status) = &run.status else { return Err(Failure::NotSucceeded) };
    let name = &run.metadata.name;
    if status.phase == WorkflowPhase::Succeeded {
        return printed;
    }
    if let Some(problem) = &status.problem {
        // Printed like every refusal, but the exit code is that of a failed workflow.
        Failure::from(problem.clone()).print();
        for line in &problem.last_log_lines {
            output::to_stderr(&format!("  | {}", set_in(line, "  | ")));
        }
        output::to_stderr(&format!("  landfall describe workflow {name} shows all details"));
    }
    Err(Failure::NotSucceeded)
}

fn tell(args: &Follow, run: &Workflow, out: &mut Out) -> Result<(), Failure> {
    let Some(status) = &run.status else { return Ok(()) };
    let name = &run.metadata.name;
    if args.output.is_table() {
        let took = human::between(run.metadata.creation_timestamp, status.ended_at, jiff::Timestamp::now());
        let took = took.map(|t| format!(" after {t}")).unwrap_or_default();
        match status.phase {
            WorkflowPhase::Succeeded => out.line(&format!("workflow/{name} succeeded{took}"))?,
            phase => out.line(&format!("workflow/{name} {}{took}", format!("{phase:?}").to_lowercase()))?,
        }
    } else {
        args.output.value(&serde_json::to_value(run).map_err(show::unseen)?, out)?;
    }
    Ok(())
}

async fn wait(client: &Client, machine: &str, name: &str, out: &mut Out, quiet: bool) -> Result<Workflow, Failure> {
    let mut feed = live::feed(client, vec![Scope::one(Kind::Machine, machine), Scope::one(Kind::Workflow, name)]);
    let mut fleet = Fleet::default();
    let mut display = Display::new(out, vec![machine.to_owned()], Some(name.to_owned()));
    let mut listed = false;
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            news = feed.recv() => match news {
                Some(News::Ended(failure)) => return Err(failure),
                Some(News::Lost(failure, wait)) => if !quiet { display.lost(&failure, wait) },
                Some(news) => {
                    listed |= matches!(&news, News::All(scope, _) if scope.kind == Kind::Workflow);
                    fleet.take(news);
                }
                None => return Err(Failure::NotSucceeded),
            },
            _ = tick.tick() => {}
        }
        if !quiet {
            display.show(&fleet, out).map_err(Failure::cut_off)?;
        }
        match fleet.run(name) {
            Some(run) if run.status.as_ref().is_some_and(|s| s.phase.is_terminal()) => {
                display.clear();
                return Ok(Workflow::clone(run));
            }
            None if listed => {
                display.clear();
                return Err(Problem::new(ErrorCode::NotFound, format!("workflow {name} was deleted")).into());
            }
            _ => {}
        }
    }
}
