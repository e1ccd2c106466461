//! `landfall power`: reads and changes machines' power through their BMCs.

use landfall_api::{Kind, PowerReport, PowerRequest};
use landfall_client::Client;
use serde_json::json;

use super::each::{each, named};
use crate::args::{Format, Power};
use crate::failure::Failure;
use crate::output::Out;
use crate::show;

pub(crate) async fn run(args: &Power, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let names = named(&args.machines, client).await?;
    let request = PowerRequest { action: args.action, force: args.force };
    let body = serde_json::to_value(request).map_err(show::unseen)?;
    let ask = |name: String| {
        let body = body.clone();
        async move {
            let answer = client.act(Kind::Machine, &name, "power", Some(&body)).await?;
            serde_json::from_value::<PowerReport>(answer).map_err(show::unseen)
        }
    };
    each(names, &args.machines.several, ask, |name, report| {
        let power = report.power.map_or("unknown", |power| power.as_str());
        match args.output {
            Format::Json => out.json_line(&json!({ "machine": name, "power": report.power, "at": report.at }))?,
            Format::Yaml => out.yaml(&json!([{ "machine": name, "power": report.power, "at": report.at }]))?,
            Format::Table | Format::Wide => out.line(&format!("machine/{name} {power}"))?,
        }
        Ok(())
    })
    .await
}
