//! `landfall logs`.

use futures::StreamExt;
use jiff::Timestamp;
use landfall_api::{ErrorCode, LogRecord};
use landfall_client::Client;

use crate::args::{Format, Logs};
use crate::failure::Failure;
use crate::output::Out;
use crate::text::{Text, set_in};
use crate::{human, output};

pub(crate) async fn run(args: &Logs, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let name = super::runs::named(client, &args.subject).await?;
    let mut query = vec![("follow", args.follow.to_string())];
    query.extend(args.action.iter().map(|action| ("action", action.clone())));
    query.extend(args.tail.map(|tail| ("tail", tail.to_string())));
    if let Some(since) = args.since {
        let from = Timestamp::now().checked_sub(since.get()).unwrap_or(Timestamp::UNIX_EPOCH);
        query.push(("since", from.to_string()));
    }
    let mut lines = match client.logs(&name, &query).await.map_err(Failure::from) {
        // As events do: the name may be a machine's.
        Err(Failure::Problem(problem)) if problem.code == ErrorCode::NotFound && !args.subject.contains('/') => {
            match super::runs::named(client, &format!("machine/{name}")).await {
                Ok(newest) => client.logs(&newest, &query).await?,
                Err(_) => return Err(Failure::Problem(problem)),
            }
        }
        other => other?,
    };
    while let Some(record) = lines.next().await {
        let record = record?;
        match args.output {
            Format::Json => out.json_line(&record)?,
            Format::Yaml => {
                out.line("---")?;
                out.yaml(&record)?;
            }
            Format::Table | Format::Wide => out.text(&text(&record, out))?,
        }
    }
    Ok(())
}

fn text(record: &LogRecord, out: &Out) -> Text {
    let level = match record.level.as_str() {
        "error" => out.paint("ERROR", output::RED),
        "warn" => out.paint(" WARN", output::YELLOW),
        other => format!("{:>5}", other.to_uppercase()).into(),
    };
    let action = match (record.action.as_str(), record.attempt) {
        ("", _) => String::new(),
        (action, 0 | 1) => format!("{action}: "),
        (action, attempt) => format!("{action}#{attempt}: "),
    };
    let said = format!(" {action}{}", set_in(&record.message, "    "));
    out.paint(&human::moment(record.time), output::DIM).then(" ").then(level).then(said)
}
