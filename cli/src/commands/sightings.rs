//! `landfall get sightings`: the ports that netbooted and were not served. They are no documents: the coordinator forgets them
//! when it serves them.

use jiff::Timestamp;
use landfall_client::{Client, sightings};
use serde_json::{Value, json};

use crate::args::{Get, Output};
use crate::failure::Failure;
use crate::jsonpath::plain;
use crate::output::Out;
use crate::table::{Columns, or_dash};
use crate::{human, output};

/// What a person may call them.
pub(crate) const WORDS: [&str; 2] = ["sightings", "sighting"];

pub(crate) async fn run(args: &Get, client: &Client, out: &mut Out) -> Result<(), Failure> {
    if args.watch || args.sort_by.is_some() || args.labels.selector.is_some() {
        return Err(Failure::Usage("sightings have no labels, and cannot be watched or sorted".into()));
    }
    if matches!(args.output, Output::Name | Output::Columns(_)) {
        return Err(Failure::Usage("the formats of sightings are table, json, yaml and jsonpath".into()));
    }
    let list = sightings(client).await?;
    for url in &list.missing {
        output::to_stderr(&format!("The coordinator at {url} does not answer: what it alone has seen is missing."));
    }
    if !args.output.is_table() {
        return args.output.value(&json!(list), out);
    }
    let rows: Vec<Value> = list.items.iter().map(|sighting| json!(sighting)).collect();
    if rows.is_empty() && list.missing.is_empty() {
        output::to_stderr("There are no sightings: every port that netbooted was served.");
        return Ok(());
    }
    let now = Timestamp::now();
    let mut columns = Columns::new(&["MAC", "MACHINE", "CLIENT", "FROM", "REQUESTS", "FIRST", "LAST", "REASON"]);
    for row in &rows {
        let text = |name: &str| or_dash(row.get(name).map(plain).unwrap_or_default());
        let age = |name: &str| human::age(row.get(name).and_then(Value::as_str).and_then(|at| at.parse().ok()), now);
        let (first, last) = (age("firstSeen"), age("lastSeen"));
        let [mac, machine, client, from] = ["mac", "machine", "client", "from"].map(text);
        columns.row(vec![mac, machine, client, from, text("requests"), first, last, text("reason")]);
    }
    columns.print(out, !args.no_headers)?;
    Ok(())
}
