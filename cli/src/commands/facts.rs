//! `landfall facts diff`: in what the hardware of two machines differs. `landfall inspect`: what changed of one.

use landfall_api::{Document, ErrorCode, Inspection, Kind, MachineFacts, Problem};
use landfall_client::Client;

use crate::args::{Facts, FactsCommand, Format, Inspect};
use crate::failure::Failure;
use crate::output;
use crate::output::Out;
use crate::table::{Columns, or_dash};

pub(crate) async fn run(args: &Facts, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let FactsCommand::Diff(args) = &args.what;
    let (one, other) = (of(&args.machine, client).await?, of(&args.other, client).await?);
    let found = one.differences(&other);
    match args.output {
        Format::Json => found.iter().try_for_each(|difference| out.json_line(difference))?,
        Format::Yaml => out.yaml(&found)?,
        Format::Table | Format::Wide if found.is_empty() => {
            output::to_stderr("The hardware of the two machines is the same.");
        }
        Format::Table | Format::Wide => {
            let mut columns = Columns::new(&["FACT", &args.machine, &args.other]);
            for difference in found {
                columns.row(vec![difference.fact, or_dash(difference.one), or_dash(difference.other)]);
            }
            columns.print(out, true)?;
        }
    }
    Ok(())
}

pub(crate) async fn inspect(args: &Inspect, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let answer = client.act(Kind::Machine, &args.machine, "inspect", None).await?;
    let found: Inspection = serde_json::from_value(answer).map_err(|error| {
        let what = format!("the coordinator's answer is not valid: {error}");
        Failure::Problem(Box::new(Problem::new(ErrorCode::VersionSkew, what)))
    })?;
    match args.output {
        Format::Json => found.changes.iter().try_for_each(|change| out.json_line(change))?,
        Format::Yaml => out.yaml(&found.changes)?,
        Format::Table | Format::Wide if found.changes.is_empty() => {
            output::to_stderr("The hardware of the machine is as it was.");
        }
        Format::Table | Format::Wide => {
            let mut columns = Columns::new(&["FACT", "WAS", "IS"]);
            for change in found.changes {
                columns.row(vec![change.fact, or_dash(change.before), or_dash(change.after)]);
            }
            columns.print(out, true)?;
        }
    }
    Ok(())
}

async fn of(machine: &str, client: &Client) -> Result<MachineFacts, Failure> {
    let Document::Machine(document) = client.get(Kind::Machine, machine).await? else {
        return Err(Failure::Usage(format!("{machine} is not a machine")));
    };
    let facts = document.status.as_ref().and_then(|status| status.facts.as_deref());
    let unseen = || {
        let problem =
            Problem::new(ErrorCode::NotFound, format!("the coordinator has no facts of machine \"{machine}\""));
        Failure::Problem(Box::new(problem.hint("the machine's agent sends them when it connects for the first time")))
    };
    facts.cloned().ok_or_else(unseen)
}
