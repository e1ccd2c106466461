//! `landfall version`.

use serde_json::json;

use crate::args::{Connection, Format, Version};
use crate::endpoint::Endpoint;
use crate::failure::Failure;
use crate::output::Out;

pub(crate) async fn run(args: &Version, flags: &Connection, out: &mut Out) -> Result<(), Failure> {
    let own = env!("CARGO_PKG_VERSION");
    let people = matches!(args.output, Format::Table | Format::Wide);
    if people {
        // Printed before the request, so that it appears even without an answer.
        out.line(&format!("landfall     {own}"))?;
    }
    let mut answer = json!({ "client": own });
    if !args.client {
        let version = Endpoint::find(flags)?.client().await?.version().await?;
        if people {
            out.line(&format!("coordinator  {version}"))?;
        } else if let Some(map) = answer.as_object_mut() {
            map.insert("server".into(), version.into());
        }
    }
    match args.output {
        Format::Json => out.json(&answer)?,
        Format::Yaml => out.yaml(&answer)?,
        Format::Table | Format::Wide => {}
    }
    Ok(())
}
