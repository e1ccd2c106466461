//! `landfall logs`.

use futures::StreamExt;
use landfall_api::{Document, ErrorCode, Kind, LogRecord, Problem};

use crate::{
    args::{Format, Logs, Target},
    client::Client,
    failure::Failure,
    human,
    output::{self, Out},
};

pub(crate) async fn run(args: &Logs, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let name = workflow(client, &args.subject).await?;
    let mut lines = client.logs(&name, args.follow).await?;
    while let Some(record) = lines.next().await {
        let record = record?;
        match args.output {
            Format::Json => out.json_line(&record)?,
            Format::Yaml => {
                out.line("---")?;
                out.yaml(&record)?;
            }
            Format::Table | Format::Wide => out.line(&text(&record, out))?,
        }
    }
    Ok(())
}

/// The run meant: named itself, or a machine's newest.
async fn workflow(client: &Client, subject: &str) -> Result<String, Failure> {
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
        _ => Err(Failure::Usage("logs are of a workflow, or of machine/NAME".into())),
    }
}

fn text(record: &LogRecord, out: &Out) -> String {
    let level = match record.level.as_str() {
        "error" => out.paint("ERROR", output::RED),
        "warn" => out.paint(" WARN", output::YELLOW),
        other => format!("{:>5}", other.to_uppercase()),
    };
    let action = match (record.action.as_str(), record.attempt) {
        ("", _) => String::new(),
        (action, 0 | 1) => format!("{action}: "),
        (action, attempt) => format!("{action}#{attempt}: "),
    };
    format!("{} {level} {action}{}", out.paint(&human::moment(record.time), output::DIM), record.message)
}
