//! `landfall audit`: the audit log.

use std::collections::VecDeque;

use futures::{StreamExt, TryStreamExt};
use landfall_api::API_PATH;
use landfall_client::Client;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::args::{Audit, Format};
use crate::failure::Failure;
use crate::live::{FIRST_WAIT, GIVE_UP};
use crate::output::Out;
use crate::table::{Columns, or_dash};
use crate::{human, output};

/// Entries asked for at once.
const PAGE: u32 = 1000;

pub(crate) async fn run(args: &Audit, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let rows = match args.after {
        Some(after) => read(client, after, args.limit).await?,
        None => newest(client, args.limit as usize).await?,
    };
    if rows.is_empty() && !args.follow && matches!(args.output, Format::Table | Format::Wide) {
        output::to_stderr("The audit log has no later entries.");
        return Ok(());
    }
    show(&rows, args.output, true, out)?;
    if !args.follow {
        return Ok(());
    }
    let (mut last, mut heard, mut is_lost) = (position(&rows).or(args.after).unwrap_or(0), Instant::now(), false);
    loop {
        let before = last;
        let ended = follow(args, client, &mut last, out).await;
        if last != before || ended.is_ok() {
            (heard, is_lost) = (Instant::now(), false);
        }
        // It ends with its coordinator: that one, or another, goes on.
        if let Err(failure) = ended {
            if !failure.may_pass() || heard.elapsed() > GIVE_UP {
                return Err(failure);
            }
            if !std::mem::replace(&mut is_lost, true) {
                output::to_stderr(&format!("{}; asking again", failure.lines().join("; ")));
            }
        }
        sleep(FIRST_WAIT).await;
    }
}

/// Shows the entries after `last`, until the answer ends.
async fn follow(args: &Audit, client: &Client, last: &mut u64, out: &mut Out) -> Result<(), Failure> {
    let mut lines = client.audit(*last, PAGE, true).await?;
    while let Some(row) = lines.next().await {
        let rows = [row?];
        show(&rows, args.output, false, out)?;
        *last = position(&rows).unwrap_or(*last);
    }
    Ok(())
}

fn position(rows: &[Value]) -> Option<u64> {
    rows.last().and_then(|row| row.get("position")).and_then(Value::as_u64)
}

async fn read(client: &Client, after: u64, limit: u32) -> Result<Vec<Value>, Failure> {
    Ok(client.audit(after, limit, false).await?.try_collect().await?)
}

/// The last entries. The log is read from its beginning; the coordinator bounds it, and only so many are held here.
async fn newest(client: &Client, count: usize) -> Result<Vec<Value>, Failure> {
    let (mut rows, mut after) = (VecDeque::new(), 0);
    loop {
        let page = read(client, after, PAGE).await?;
        // No entry, or no newer one: without this check a constant position would loop for ever.
        let Some(last) = position(&page).filter(|last| *last > after) else { return Ok(rows.into()) };
        let whole = page.len() >= PAGE as usize;
        rows.extend(page);
        rows.drain(..rows.len().saturating_sub(count));
        if !whole {
            return Ok(rows.into());
        }
        after = last;
    }
}

fn show(rows: &[Value], format: Format, header: bool, out: &mut Out) -> Result<(), Failure> {
    match format {
        Format::Json => rows.iter().try_for_each(|row| out.json_line(row))?,
        Format::Yaml if rows.is_empty() => {}
        Format::Yaml => out.yaml(&rows)?,
        Format::Table | Format::Wide => columns(rows, format == Format::Wide).print(out, header)?,
    }
    Ok(())
}

fn columns(rows: &[Value], wide: bool) -> Columns {
    let header = ["POSITION", "TIME", "WHO", "FROM", "ACTION", "SUBJECT", "OUTCOME", "CODE", "DETAIL"];
    let shown = if wide { header.len() } else { header.len() - 1 };
    let mut columns = Columns::new(header.get(..shown).unwrap_or(&header));
    for row in rows {
        let text = |name: &str| row.get(name).map(crate::jsonpath::plain).unwrap_or_default();
        let mut cells = vec![text("position"), human::moment_of(&text("time"))];
        // All routes share this part, so it is left out.
        let action = text("action").replacen(API_PATH, "", 1);
        cells.extend([text("who"), text("from"), action].map(or_dash));
        cells.extend(["subject", "outcome", "code", "detail"].map(|name| or_dash(text(name))));
        cells.truncate(shown);
        columns.row(cells);
    }
    columns
}
