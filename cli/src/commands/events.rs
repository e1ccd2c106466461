//! `landfall events`.

use futures::StreamExt;
use landfall_api::{ErrorCode, EventRecord, Kind};

use crate::{
    args::{Events, Format, Target},
    client::Client,
    failure::Failure,
    human,
    output::{self, Out},
    table::{Columns, or_dash},
};

pub(crate) async fn run(args: &Events, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let records = read(client, &args.subject).await?;
    match args.output {
        Format::Json => records.iter().try_for_each(|r| out.json_line(r))?,
        Format::Yaml => out.yaml(&records)?,
        Format::Table | Format::Wide if records.is_empty() => output::to_stderr("Nothing happened yet."),
        Format::Table | Format::Wide => {
            for line in columns(&records).lines(out, true) {
                out.line(&line)?;
            }
        }
    }
    Ok(())
}

/// Events of `workflow/NAME`, `machine/NAME`, or of the workflow, else the machine, of that name.
async fn read(client: &Client, subject: &str) -> Result<Vec<EventRecord>, Failure> {
    let either = match subject.contains('/') {
        true => match subject.parse::<Target>().map_err(Failure::Usage)? {
            Target { kind: kind @ (Kind::Machine | Kind::Workflow), name: Some(name) } => {
                return of(client, kind, &name).await;
            }
            _ => return Err(Failure::Usage("events are of a machine/NAME or a workflow/NAME".into())),
        },
        false => of(client, Kind::Workflow, subject).await,
    };
    match either {
        Err(Failure::Problem(problem)) if problem.code == ErrorCode::NotFound => {
            of(client, Kind::Machine, subject).await.map_err(|failure| match failure {
                Failure::Problem(mut problem) if problem.code == ErrorCode::NotFound => {
                    problem.message = format!("there is no workflow and no machine \"{subject}\"");
                    problem.hint = "landfall get workflows lists the runs".into();
                    Failure::Problem(problem)
                }
                other => other,
            })
        }
        other => other,
    }
}

pub(crate) async fn of(client: &Client, kind: Kind, name: &str) -> Result<Vec<EventRecord>, Failure> {
    let mut lines = client.events(kind, name).await?;
    let mut records = Vec::new();
    while let Some(record) = lines.next().await {
        records.push(record?);
    }
    Ok(records)
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
