//! `landfall context`: several coordinators.

use std::path::PathBuf;

use serde_json::json;

use crate::args::{Connection, ContextCommand, Format};
use crate::contexts::{Contexts, Entry};
use crate::failure::Failure;
use crate::output;
use crate::output::Out;
use crate::settings::Settings;
use crate::table::{Columns, or_dash};

pub(crate) fn run(what: &ContextCommand, flags: &Connection, out: &mut Out) -> Result<(), Failure> {
    let file = Contexts::file()
        .ok_or_else(|| Failure::Usage("cannot find the file of contexts: set XDG_CONFIG_HOME or HOME".into()))?;
    let mut contexts = Contexts::read(&file)?;
    match what {
        ContextCommand::List { output } => return list(&contexts, &file, *output, out),
        ContextCommand::Use { name } => {
            contexts.get(name, &file)?;
            contexts.current = Some(name.clone());
            contexts.write(&file)?;
            out.line(&format!("context/{name} is now the current context"))?;
        }
        ContextCommand::Set { name, use_it } => {
            if name.is_empty() || name.len() > 253 || name.contains(|c: char| c.is_whitespace() || c.is_control()) {
                return Err(Failure::Usage(format!(
                    "\"{name}\" is not a valid context name: use a word without spaces"
                )));
            }
            let entry = Entry::new(Settings::of_flags(flags)?)?;
            let was = contexts.contexts.insert(name.clone(), entry);
            if *use_it || contexts.current.is_none() {
                contexts.current = Some(name.clone());
            }
            contexts.write(&file)?;
            out.line(&format!("context/{name} {}", if was.is_some() { "configured" } else { "created" }))?;
        }
        ContextCommand::Delete { name } => {
            contexts.get(name, &file)?;
            contexts.contexts.remove(name);
            if contexts.current.as_ref() == Some(name) {
                contexts.current = None;
                output::to_stderr("It was the current context; choose another with landfall context use.");
            }
            contexts.write(&file)?;
            out.line(&format!("context/{name} deleted"))?;
        }
    }
    Ok(())
}

fn list(contexts: &Contexts, file: &PathBuf, format: Format, out: &mut Out) -> Result<(), Failure> {
    match format {
        Format::Json => {
            out.json(&json!({ "file": file, "current": contexts.current, "contexts": contexts.contexts }))?
        }
        Format::Yaml => out.yaml(contexts)?,
        Format::Table | Format::Wide if contexts.contexts.is_empty() => {
            output::to_stderr(&format!(
                "There are no contexts in {}; create one with landfall context set.",
                file.display()
            ));
        }
        Format::Table | Format::Wide => {
            let mut columns = Columns::new(&["CURRENT", "NAME", "SERVER", "KNOWN BY", "AS"]);
            for (name, entry) in &contexts.contexts {
                let mark = if contexts.current.as_ref() == Some(name) { "*" } else { "" };
                let cells = [mark, name, &entry.server, &or_dash(entry.known_by()), &entry.who()];
                columns.row(cells.into_iter().map(str::to_owned).collect());
            }
            columns.print(out, true)?;
        }
    }
    Ok(())
}
