//! `landfall history`: who changed a document, when and how.

use landfall_api::Kind;
use landfall_client::Client;
use serde_json::Value;

use crate::args::{Format, History, Selection};
use crate::failure::Failure;
use crate::output::Out;
use crate::table::{Columns, or_dash};
use crate::{human, output};

/// Fields of a change that a table names.
const NAMED_FIELDS: usize = 4;

pub(crate) async fn run(args: &History, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let Selection::Named(named) = args.which.selection()? else {
        return Err(Failure::Usage("exactly one document is needed: KIND NAME, or KIND/NAME".into()));
    };
    for (kind, name) in &named {
        let rows = client.history(*kind, name, None).await?;
        match args.output {
            Format::Json => rows.iter().try_for_each(|row| out.json_line(row))?,
            Format::Yaml => out.yaml(&rows)?,
            Format::Table | Format::Wide => {
                if named.len() > 1 {
                    out.text(&out.paint(&format!("{}/{name}", kind.singular()), output::BOLD))?;
                }
                if rows.is_empty() {
                    output::to_stderr("There is no history of this document.");
                } else {
                    columns(&rows).print(out, true)?;
                }
            }
        }
    }
    Ok(())
}

/// The newest changes of a document; none if the coordinator keeps none, or does not allow this caller to see them.
pub(crate) async fn newest(client: &Client, kind: Kind, name: &str, count: usize) -> Option<Columns> {
    let rows = client.history(kind, name, Some(count)).await.ok().filter(|rows| !rows.is_empty())?;
    Some(columns(&rows))
}

fn columns(rows: &[Value]) -> Columns {
    let mut columns = Columns::new(&["TIME", "VERSION", "GENERATION", "WHO", "WHAT", "FIELDS"]);
    for row in rows {
        let text = |name: &str| row.get(name).map(crate::jsonpath::plain).unwrap_or_default();
        columns.row(vec![
            human::moment_of(&text("time")),
            or_dash(text("resourceVersion")),
            or_dash(text("generation")),
            or_dash(text("who")),
            or_dash(text("operation")),
            or_dash(changed(row)),
        ]);
    }
    columns
}

/// `spec.identity.macs, metadata.labels.rack`: the leaves of a merge patch.
fn changed(row: &Value) -> String {
    if row.get("operation").and_then(Value::as_str) != Some("Changed") {
        return String::new();
    }
    let mut paths = Vec::new();
    leaves(row.get("change").unwrap_or(&Value::Null), String::new(), &mut paths);
    let more = paths.len().saturating_sub(NAMED_FIELDS);
    paths.truncate(NAMED_FIELDS);
    let and = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{and}", paths.join(", "))
}

fn leaves(patch: &Value, path: String, out: &mut Vec<String>) {
    match patch {
        Value::Object(map) if !map.is_empty() => {
            for (name, value) in map {
                leaves(value, if path.is_empty() { name.clone() } else { format!("{path}.{name}") }, out);
            }
        }
        _ if path.is_empty() => {}
        _ => out.push(path),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_is_named_by_its_fields() {
        let row = |change: Value| json!({"operation": "Changed", "change": change});
        let change = json!({"spec": {"identity": {"macs": ["a"]}}, "metadata": {"labels": {"rack": null}}});
        assert_eq!(changed(&row(change)), "spec.identity.macs, metadata.labels.rack");
        assert_eq!(changed(&row(json!({"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}))), "a, b, c, d and 1 more");
        assert_eq!(changed(&row(Value::Null)), "");
        assert_eq!(changed(&json!({"operation": "Created", "change": {"a": 1}})), "");
    }
}
