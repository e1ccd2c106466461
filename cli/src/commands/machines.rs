//! `landfall approve`, `adopt`, `detach` and `revoke`: whether and how a machine is managed.

use std::io::{self, IsTerminal};

use landfall_api::{Document, ErrorCode, Kind, Problem};
use landfall_client::Client;
use serde_json::{Value, json};

use crate::args::{Approve, OneMachine};
use crate::failure::Failure;
use crate::output;
use crate::output::Out;

/// Operations on one machine that need only its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Adopt,
    Detach,
    Revoke,
}

impl Verb {
    const fn route(self) -> &'static str {
        match self {
            Self::Adopt => "adopt",
            Self::Detach => "detach",
            Self::Revoke => "revoke",
        }
    }
    const fn done(self) -> &'static str {
        match self {
            Self::Adopt => "adopted",
            Self::Detach => "detached",
            Self::Revoke => "revoked",
        }
    }
}

pub(crate) async fn run(verb: Verb, args: &OneMachine, client: &Client, out: &mut Out) -> Result<(), Failure> {
    if let (Verb::Revoke, Some(operator)) = (verb, args.machine.strip_prefix("operator/")) {
        let answer = client.revoke_operator(operator).await?;
        if !args.output.is_table() {
            return args.output.value(&answer, out);
        }
        return Ok(out.line(&format!("operator/{operator} revoked"))?);
    }
    let name = name(&args.machine)?;
    let answer = client.act(Kind::Machine, name, verb.route(), None).await?;
    // The response to a detach lists what stays on the machine.
    let object = answer.get("object").unwrap_or(&answer);
    if !args.output.is_table() {
        return args.output.value(object, out);
    }
    let leaving = object.pointer("/metadata/deletionTimestamp").is_some();
    let later = if leaving { "; its document is removed when no agent of it can still act" } else { "" };
    out.line(&format!("machine/{name} {}{later}", verb.done()))?;
    for stays in answer.get("stays").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        output::to_stderr(&format!("  {stays}"));
    }
    Ok(())
}

pub(crate) async fn approve(args: &Approve, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let name = name(&args.machine)?;
    let fingerprint = match &args.fingerprint {
        Some(fingerprint) => fingerprint.clone(),
        None => ask(name, client).await?,
    };
    let answer = client.act(Kind::Machine, name, "approve", Some(&json!({ "fingerprint": fingerprint }))).await?;
    if !args.output.is_table() {
        return args.output.value(&answer, out);
    }
    Ok(out.line(&format!("machine/{name} approved"))?)
}

/// `node-1`, or `machine/node-1` as other commands print it.
pub(super) fn name(word: &str) -> Result<&str, Failure> {
    match word.split_once('/') {
        None => Ok(word),
        Some((kind, name)) if Kind::from_word(kind) == Some(Kind::Machine) => Ok(name),
        Some(_) => Err(Failure::Usage(format!("\"{word}\" is not a machine"))),
    }
}

/// Asks the person to compare the requesting key's fingerprint with the machine's console.
async fn ask(name: &str, client: &Client) -> Result<String, Failure> {
    let waiting = waiting(&client.get(Kind::Machine, name).await?)?;
    let asking = match waiting.as_slice() {
        [] => {
            return Err(Problem::new(ErrorCode::NotFound, format!("no key of machine \"{name}\" waits for approval"))
                .hint("start the machine, and use the fingerprint on its console: --fingerprint FINGERPRINT")
                .into());
        }
        [one] => one,
        several => {
            let cause = several.join(", ");
            let hint = "use the fingerprint on the machine's console: --fingerprint; the other keys belong to other \
                computers";
            return Err(Failure::local(format!("{} keys request to be machine {name}", several.len()), cause, hint));
        }
    };
    if !io::stdin().is_terminal() {
        let what = "a terminal is needed to compare the fingerprint; or use --fingerprint with the one on the console";
        return Err(Failure::Usage(what.into()));
    }
    output::to_stderr(&format!("The key that requests to be machine {name} has the fingerprint\n\n  {asking}\n"));
    output::to_stderr("If the machine's console shows the same, type yes to approve it:");
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    if line.trim() == "yes" {
        return Ok(asking.clone());
    }
    Err(Failure::local(
        "nothing was approved",
        "the answer was not yes",
        "a different fingerprint belongs to the key of another computer",
    ))
}

/// The fingerprints of the keys that wait for approval.
fn waiting(document: &Document) -> Result<Vec<String>, Failure> {
    let tree = serde_json::to_value(document).map_err(crate::show::unseen)?;
    let keys = tree.pointer("/status/enrolment/waiting").and_then(Value::as_array);
    let print = |key: &Value| key.get("fingerprint").and_then(Value::as_str).map(str::to_owned);
    Ok(keys.into_iter().flatten().filter_map(print).collect())
}
