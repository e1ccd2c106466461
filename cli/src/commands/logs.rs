//! `landfall logs`.

use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use landfall_api::{Document, ErrorCode, Kind, LogRecord};
use landfall_client::{Client, Lines};
use tokio::time::{Instant, sleep};

use crate::args::{Format, Logs};
use crate::failure::Failure;
use crate::live::GIVE_UP;
use crate::output::Out;
use crate::text::{Text, set_in};
use crate::{human, output};

/// Between two questions for the lines that follow.
const PAUSE: Duration = Duration::from_millis(500);

type Query = Vec<(&'static str, String)>;

pub(crate) async fn run(args: &Logs, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let mut name = super::runs::named(client, &args.subject).await?;
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
                Ok(newest) => name = newest,
                Err(_) => return Err(Failure::Problem(problem)),
            }
            client.logs(&name, &query).await?
        }
        other => other?,
    };
    let mut seen = Seen::default();
    loop {
        let broken = show(&mut lines, &mut seen, args, out).await;
        if !args.follow {
            return broken;
        }
        // The workflow has ended, or its coordinator has, or another one has the agent now.
        match onward(client, &name, &seen.onward(&query), broken.err()).await? {
            Some(others) => lines = others,
            None => return Ok(()),
        }
    }
}

/// The newest lines that were shown, of one moment: what is asked for again begins with them.
#[derive(Default)]
struct Seen(Vec<LogRecord>);

impl Seen {
    /// Whether a line is new.
    fn takes(&mut self, record: &LogRecord) -> bool {
        if self.0.contains(record) {
            return false;
        }
        if self.0.first().is_some_and(|newest| newest.time != record.time) {
            self.0.clear();
        }
        self.0.push(record.clone());
        true
    }

    /// The same question, from the newest line on.
    fn onward(&self, query: &Query) -> Query {
        let Some(newest) = self.0.first() else { return query.clone() };
        let kept = query.iter().filter(|(name, _)| !["tail", "since"].contains(name)).cloned();
        kept.chain([("since", newest.time.to_string())]).collect()
    }
}

async fn show(lines: &mut Lines<LogRecord>, seen: &mut Seen, args: &Logs, out: &mut Out) -> Result<(), Failure> {
    while let Some(record) = lines.next().await {
        let record = record?;
        if args.follow && !seen.takes(&record) {
            continue;
        }
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

/// The lines from here on; none where the workflow has ended. Where no coordinator answers, they are asked until one does.
async fn onward(
    client: &Client, name: &str, query: &Query, mut broken: Option<Failure>,
) -> Result<Option<Lines<LogRecord>>, Failure> {
    let begun = Instant::now();
    loop {
        if let Some(failure) = broken
            && (!may_pass(&failure) || begun.elapsed() > GIVE_UP)
        {
            return Err(failure);
        }
        let asked = async {
            if let Document::Workflow(run) = client.get(Kind::Workflow, name).await?
                && run.status.as_ref().is_some_and(|status| status.phase.is_terminal())
            {
                return Ok(None);
            }
            sleep(PAUSE).await;
            client.logs(name, query).await.map(Some)
        };
        match asked.await.map_err(Failure::from) {
            Ok(lines) => return Ok(lines),
            Err(failure) => broken = Some(failure),
        }
        sleep(PAUSE).await;
    }
}

/// Of a coordinator that is gone, or that asks one which is.
fn may_pass(failure: &Failure) -> bool {
    failure.is_unreachable()
        || matches!(failure, Failure::Problem(problem) if problem.code == ErrorCode::StoreUnavailable)
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
