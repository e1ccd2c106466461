//! What a declaration says of an action, as a table; and all of them in one.

use landfall_api::{ActionInfo, ActionSpec, Then};

use crate::{fields::Schema, sample::downloads};

/// Every action in a line, with a link to its page.
pub(crate) fn table() -> String {
    let mut out = String::from(
        "| action | what it does | default timeout | attempts | protocol | tools layer |\n|---|---|---|---|---|---|\n",
    );
    for (key, info) in ActionSpec::ALL {
        let ActionInfo { about, timeout, attempts, protocol, .. } = info;
        let tools = if info.tools { "needed" } else { "" };
        out += &format!("| [`{key}`]({key}.md) | {about} | {timeout} | {attempts} | {protocol} | {tools} |\n");
    }
    out
}

/// What the action is, and what holds for it.
pub(crate) fn declaration(key: &str, info: &ActionInfo, schema: &Schema) -> String {
    let mut out = format!("{}\n\n| of {key} | |\n|---|---|\n", schema.about(key));
    let mut row = |name: &str, value: String| out += &format!("| {name} | {value} |\n");
    row("default timeout of one attempt", info.timeout.to_string());
    row("default attempts", info.attempts.to_string());
    row("protocol revision", format!("{}: an older agent is refused before anything begins", info.protocol));
    row("may stand", places(info));
    let then = match info.then {
        Then::Next => "the next action",
        Then::SystemStarts => "the installed system starts: it is the last action",
        Then::MachineOff => "the machine is off: it is the last action",
    };
    row("after it", then.into());
    if info.means_written_disk {
        row("without `disk`", "what its list installed; there must be exactly one".into());
    }
    row("fields that may hold secrets", named(info.secrets.iter().map(ToString::to_string)));
    row("fields that name what it fetches", named(downloads(key, schema).into_iter()));
    row("tools layer", if info.tools { "needed" } else { "not for itself" }.into());
    out
}

fn places(info: &ActionInfo) -> String {
    let branch = (!info.is_last_step() && info.no_branch.is_none()).then_some("in branches");
    let after_failure = info.after_failure.then_some("in `onFailure`");
    ["in a list"].into_iter().chain(branch).chain(after_failure).collect::<Vec<_>>().join(", ")
}

fn named(fields: impl Iterator<Item = String>) -> String {
    let fields: Vec<String> = fields.map(|field| format!("`{field}`")).collect();
    if fields.is_empty() { "none".into() } else { fields.join(", ") }
}
