//! `landfall events`.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use landfall_api::{Document, ErrorCode, EventRecord, Kind, Workflow};
use landfall_client::{Client, Scope};
use tokio::time::{Instant, sleep};

use crate::args::{Events, Format, Target};
use crate::failure::Failure;
use crate::live::News;
use crate::output::Out;
use crate::table::{Columns, or_dash};
use crate::{human, live, output};

pub(crate) async fn run(args: &Events, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let (kind, name, records) = subject(client, &args.subject).await?;
    if records.is_empty() && !args.follow && matches!(args.output, Format::Table | Format::Wide) {
        output::to_stderr("There are no events yet.");
        return Ok(());
    }
    show(&records, args.output, true, out)?;
    if args.follow { follow(client, kind, &name, records, args.output, out).await } else { Ok(()) }
}

fn show(records: &[EventRecord], output: Format, header: bool, out: &mut Out) -> Result<(), Failure> {
    match output {
        Format::Json => records.iter().try_for_each(|r| out.json_line(r))?,
        Format::Yaml if records.is_empty() => {}
        Format::Yaml => out.yaml(&records)?,
        Format::Table | Format::Wide => columns(records).print(out, header)?,
    }
    Ok(())
}

/// Reads the events again after each relevant change in a watch, and shows the new ones.
async fn follow(
    client: &Client, kind: Kind, name: &str, mut shown: Vec<EventRecord>, output: Format, out: &mut Out,
) -> Result<(), Failure> {
    let mut feed = live::feed(
        client,
        vec![match kind {
            Kind::Workflow => Scope::one(kind, name),
            _ => Scope::of(Kind::Workflow, None),
        }],
    );
    let mut turned = BTreeMap::new();
    while let Some(news) = feed.recv().await {
        let runs = match news {
            // A workflow that was deleted without a watch will have no more events.
            News::All(_, documents, _)
                if kind == Kind::Workflow && documents.iter().all(|d| d.metadata().name != name) =>
            {
                return Ok(());
            }
            News::All(_, documents, _) => documents,
            News::Changed(document) => vec![document],
            News::Gone(document) if kind == Kind::Workflow && document.metadata().name == name => return Ok(()),
            News::Gone(_) => continue,
            News::Lost(failure, wait) => {
                output::to_stderr(&format!("{failure}; next attempt in {:.1} s", wait.as_secs_f64()));
                continue;
            }
            News::Ended(failure) => return Err(failure),
        };
        let (mut any, mut over) = (false, false);
        for document in &runs {
            let Document::Workflow(run) = document else { continue };
            let meant = if kind == Kind::Machine { &run.spec.machine } else { &run.metadata.name };
            if meant == name {
                any |= turned.insert(run.metadata.uid, turns(run)) != Some(turns(run));
                over |= kind == Kind::Workflow && run.status.as_ref().is_some_and(|s| s.phase.is_terminal());
            }
        }
        if any {
            let asked = if over { last_of(client, kind, name).await } else { of(client, kind, name).await };
            match asked {
                Ok(all) => {
                    let new: Vec<EventRecord> = all.iter().filter(|r| !shown.contains(r)).cloned().collect();
                    show(&new, output, false, out)?;
                    shown = all;
                }
                // The watch reports when it is back; the next turn reads everything again.
                Err(failure) if failure.may_pass() && !over => turned.clear(),
                Err(failure) => return Err(failure),
            }
        }
        if over {
            return Ok(());
        }
    }
    Ok(())
}

/// All events at the end: nothing says later that there are more, so they are asked for until a coordinator answers.
async fn last_of(client: &Client, kind: Kind, name: &str) -> Result<Vec<EventRecord>, Failure> {
    let begun = Instant::now();
    loop {
        match of(client, kind, name).await {
            Err(failure) if failure.may_pass() && begun.elapsed() < live::GIVE_UP => sleep(live::FIRST_WAIT).await,
            asked => return asked,
        }
    }
}

/// Values that change when a workflow has a new event. Its progress, which changes all the time, is not included.
fn turns(run: &Workflow) -> impl PartialEq + use<> {
    let cancel = run.spec.cancel.is_some();
    let status = run.status.as_ref();
    status.map(|s| (s.applied, s.phase, s.rebooted_at, s.phoned_home_at, s.ended_at, cancel, s.conditions.len()))
}

/// Events of `workflow/NAME`, `machine/NAME`, or of the workflow, else the machine, of that name; and which that is.
async fn subject(client: &Client, subject: &str) -> Result<(Kind, String, Vec<EventRecord>), Failure> {
    if subject.contains('/') {
        return match subject.parse::<Target>().map_err(Failure::Usage)? {
            Target { kind: kind @ (Kind::Machine | Kind::Workflow), name: Some(name) } => {
                let records = of(client, kind, &name).await?;
                Ok((kind, name, records))
            }
            _ => Err(Failure::Usage("events belong to a machine/NAME or a workflow/NAME".into())),
        };
    }
    let failure = match of(client, Kind::Workflow, subject).await {
        Ok(records) => return Ok((Kind::Workflow, subject.to_owned(), records)),
        Err(Failure::Problem(problem)) if problem.code == ErrorCode::NotFound => problem,
        Err(other) => return Err(other),
    };
    match of(client, Kind::Machine, subject).await {
        Ok(records) => Ok((Kind::Machine, subject.to_owned(), records)),
        Err(Failure::Problem(mut problem)) if problem.code == ErrorCode::NotFound => {
            // The nearer name decides which of the two was probably meant.
            for hint in [&failure.hint, &problem.hint.clone()] {
                if hint.starts_with("did you mean") {
                    problem.hint.clone_from(hint);
                }
            }
            problem.message = format!("there is no workflow and no machine \"{subject}\"");
            Err(Failure::Problem(problem))
        }
        Err(other) => Err(other),
    }
}

pub(crate) async fn of(client: &Client, kind: Kind, name: &str) -> Result<Vec<EventRecord>, Failure> {
    Ok(client.events(kind, name).await?.try_collect().await?)
}

pub(crate) fn columns(records: &[EventRecord]) -> Columns {
    let mut columns = Columns::new(&["TIME", "WORKFLOW", "ACTION", "ATTEMPT", "REASON", "MESSAGE"]);
    for record in records {
        let attempt = if record.attempt == 0 { String::new() } else { record.attempt.to_string() };
        columns.row(vec![
            human::moment(record.time),
            record.workflow.clone(),
            or_dash(record.action.clone()),
            or_dash(attempt),
            record.reason.clone(),
            record.message.clone(),
        ]);
    }
    columns
}
