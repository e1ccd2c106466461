//! `landfall logs`.

use std::collections::{BTreeSet, VecDeque};

use futures::StreamExt;
use jiff::Timestamp;
use landfall_api::{Document, ErrorCode, Kind, LogRecord};
use landfall_client::{Client, ClientError, Lines};
use tokio::time::{Instant, sleep};

use crate::args::{Format, Logs};
use crate::failure::Failure;
use crate::live::{FIRST_WAIT, GIVE_UP};
use crate::output::Out;
use crate::text::{Text, set_in};
use crate::{human, output};

/// So many lines are remembered.
const REMEMBERED: usize = 256;

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
    let (mut seen, mut follows) = (Seen::default(), args.follow);
    loop {
        let broken = show(&mut lines, &mut seen, args, out).await;
        if !follows {
            return broken;
        }
        // The workflow has ended, or its coordinator has, or another one has the agent now.
        match onward(client, &name, &mut seen, &query, broken.err()).await? {
            Some((others, is_last)) => (lines, follows) = (others, !is_last),
            None => return Ok(()),
        }
    }
}

/// Lines that were shown, the newest: what is asked for again begins among them.
#[derive(Default)]
struct Seen {
    newest: VecDeque<LogRecord>,
    /// Of these, those that the answer has not repeated yet.
    again: Vec<LogRecord>,
    /// What a coordinator itself had to say; each answer may repeat it.
    warnings: BTreeSet<String>,
}

impl Seen {
    /// Whether a line is new.
    fn takes(&mut self, record: &LogRecord) -> bool {
        if let Some(at) = self.again.iter().position(|seen| seen == record) {
            self.again.swap_remove(at);
            return false;
        }
        // A line without an attempt is a coordinator's own, by its clock.
        if record.attempt == 0 {
            return self.warnings.insert(record.message.clone());
        }
        self.newest.push_back(record.clone());
        if self.newest.len() > REMEMBERED {
            self.newest.pop_front();
        }
        true
    }

    /// The same question, from the oldest of these lines on.
    fn onward(&mut self, query: &Query) -> Query {
        self.again = self.newest.iter().cloned().collect();
        let Some(since) = self.newest.iter().map(|seen| seen.time).min() else { return query.clone() };
        let kept = query.iter().filter(|(name, _)| !["tail", "since"].contains(name)).cloned();
        kept.chain([("since", since.to_string())]).collect()
    }
}

async fn show(lines: &mut Lines<LogRecord>, seen: &mut Seen, args: &Logs, out: &mut Out) -> Result<(), Failure> {
    while let Some(record) = lines.next().await {
        let record = record?;
        if !seen.takes(&record) {
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

/// The lines from here on, and whether they are the last; none where the workflow is gone. Where no coordinator answers, they are asked
/// until one does.
async fn onward(
    client: &Client, name: &str, seen: &mut Seen, query: &Query, mut broken: Option<Failure>,
) -> Result<Option<(Lines<LogRecord>, bool)>, Failure> {
    let (begun, was_whole) = (Instant::now(), broken.is_none());
    if let Some(failure) = broken.as_ref().filter(|failure| failure.may_pass()) {
        output::to_stderr(&format!("{}; asking again", failure.lines().join("; ")));
    }
    loop {
        if let Some(failure) = broken
            && (!failure.may_pass() || begun.elapsed() > GIVE_UP)
        {
            return Err(failure);
        }
        sleep(FIRST_WAIT).await;
        let mut query = seen.onward(query);
        let asked = async {
            let is_last = match client.get(Kind::Workflow, name).await? {
                Document::Workflow(run) => run.status.as_ref().is_some_and(|status| status.phase.is_terminal()),
                _ => false,
            };
            if is_last {
                // What came between the former answer and the end.
                query.iter_mut().filter(|(name, _)| *name == "follow").for_each(|(_, follow)| *follow = "false".into());
            }
            Ok((client.logs(name, &query).await?, is_last))
        };
        match asked.await.map_err(|error: ClientError| Failure::from(error)) {
            Ok(lines) => return Ok(Some(lines)),
            // It ended, and was deleted.
            Err(Failure::Problem(problem)) if problem.code == ErrorCode::NotFound && was_whole => return Ok(None),
            Err(failure) => broken = Some(failure),
        }
    }
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
