//! `landfall token`: bearer tokens for people and programs without a certificate.

use landfall_api::{DurationSpec, Role, TokenRequest};
use landfall_client::Client;
use serde_json::{Value, json};

use crate::args::{Format, TokenCommand};
use crate::failure::Failure;
use crate::jsonpath::plain;
use crate::output::Out;
use crate::table::{Columns, or_dash};
use crate::{human, output};

pub(crate) async fn run(what: &TokenCommand, client: &Client, out: &mut Out) -> Result<(), Failure> {
    match what {
        TokenCommand::Create { name, role, ttl, output } => create(client, name, *role, *ttl, *output, out).await,
        TokenCommand::List { output } => list(client, *output, out).await,
        TokenCommand::Delete { name } => {
            client.delete_token(name).await?;
            Ok(out.line(&format!("token/{name} deleted"))?)
        }
    }
}

async fn create(
    client: &Client, name: &str, role: Role, ttl: Option<DurationSpec>, output: Format, out: &mut Out,
) -> Result<(), Failure> {
    let issued = client.create_token(&TokenRequest { name: name.to_owned(), role, ttl }).await?;
    match output {
        Format::Json => out.json(&issued)?,
        Format::Yaml => out.yaml(&issued)?,
        Format::Table | Format::Wide => {
            let until = issued.pointer("/token/expires").map(|at| human::moment_of(&plain(at))).unwrap_or_default();
            output::to_stderr(&format!(
                "token/{name} created, valid until {until} UTC; its value is shown only this time"
            ));
            let value = issued.get("value").and_then(Value::as_str).unwrap_or_default();
            out.line(value)?;
        }
    }
    Ok(())
}

async fn list(client: &Client, output: Format, out: &mut Out) -> Result<(), Failure> {
    let rows = client.rows("tokens").await?;
    match output {
        Format::Json => out.json(&json!({ "items": rows }))?,
        Format::Yaml => out.yaml(&rows)?,
        Format::Table | Format::Wide if rows.is_empty() => {
            output::to_stderr("There are no tokens; create one with landfall token create.");
        }
        Format::Table | Format::Wide => {
            let mut columns = Columns::new(&["NAME", "ROLE", "MADE BY", "MADE", "ENDS", "LAST USED"]);
            for row in &rows {
                let text = |name: &str| row.get(name).map(plain).unwrap_or_default();
                let time = |name: &str| or_dash(human::moment_of(&text(name)));
                let (name, role, by) = (text("name"), text("role"), text("createdBy"));
                columns.row(vec![name, role, or_dash(by), time("created"), time("expires"), time("lastUsed")]);
            }
            columns.print(out, true)?;
        }
    }
    Ok(())
}
