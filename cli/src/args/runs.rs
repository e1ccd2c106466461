//! Flags of the commands that start and control workflows.

use clap::Args;
use landfall_api::{DiskSelector, WipeLevel};

use super::{Format, Labels, Machines, Output, Several};

#[derive(Debug, Args)]
#[command(after_help = "\
Only this request of a person allows the machine to write a disk that is not blank; the request is recorded with your
name. The machine takes the workflow when it next netboots.

If the agent saw anything on the disks that the template writes, and always with --force, the command first shows what is
on them; on a terminal it asks before it goes on, once for all machines.

A parameter's value is read by the type that the template declares: text and enum as they stand, integer, boolean, list
as JSON or with commas, secret as SECRET.KEY. Without a declared type it is read as JSON if it is JSON (42, true,
[\"a\",\"b\"]), else as text; to pass text that looks like a number, quote it twice: --param 'release=\"12\"'.

Examples:
  landfall provision node-1 --template debian
  landfall provision node-1 -t debian --param release=12 --param 'users=[\"ann\"]'
  landfall provision node-1 -t debian --dry-run    Only print the list
  landfall provision node-1 -t debian --wait --timeout 30m
  landfall provision node-1 -t debian --force      Accept the receipt of any earlier install
  landfall provision -l rack=r7 -t debian          On every machine of a rack
  landfall provision -l rack=r7 -t debian --wait --max-parallel 4 --max-failures 1
                                                   Four at a time; begin no other after the first failure")]
pub(crate) struct Provision {
    #[command(flatten)]
    pub(crate) machines: Machines,
    /// The template's name.
    #[arg(short, long)]
    pub(crate) template: String,
    /// A value for one of the template's parameters. May be repeated.
    #[arg(short, long = "param", value_name = "NAME=VALUE")]
    pub(crate) params: Vec<String>,
    /// Write the disk even if it carries the receipt of another install.
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask before data is destroyed.
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Check everything, ask for the images, print the list, and start nothing.
    #[arg(long, conflicts_with = "wait")]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) follow: Follow,
}

/// Whether and how to wait for a started workflow.
#[derive(Debug, Args)]
pub(crate) struct Follow {
    /// Show progress until the workflow ends: exit code 0 if it succeeded, 1 if not.
    #[arg(short, long)]
    pub(crate) wait: bool,
    /// With --wait: the longest time to wait for all (such as 30m); exit code 6 after it. What was started continues.
    #[arg(long, requires = "wait", value_name = "DURATION")]
    pub(crate) timeout: Option<landfall_api::DurationSpec>,
    /// Output format of the workflow. See: landfall help output.
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Wipes the machine's disks, and the receipts on them. Then the machine is available for another install. Level signatures clears
what makes a disk bootable and known, and no other data. The command first shows what is on the disks; on a terminal it asks
before it goes on.

Examples:
  landfall deprovision node-1
  landfall deprovision node-1 --wait
  landfall deprovision -l rack=r7 --power-off      All machines of a rack; they are turned off afterwards
  landfall deprovision node-1 --level secure --fallback zero
                                                   Erase all data, by the disks' own commands if they have any
  landfall deprovision node-1 --disk serial=S4EVNX0R --level zero
                                                   Erase that disk, whatever is known of it
  landfall deprovision node-1 --force              Accept any receipt on the disks")]
pub(crate) struct Deprovision {
    #[command(flatten)]
    pub(crate) machines: Machines,
    /// A disk to wipe, by a field of a selector; may be repeated. Without it: every disk that carries a receipt of the machine.
    #[arg(long = "disk", value_parser = selector, value_name = "FIELD=VALUE")]
    pub(crate) disks: Vec<DiskSelector>,
    /// How thoroughly the disks are wiped: signatures, discard, zero, secure or cryptographic.
    #[arg(long, value_parser = level, default_value = "signatures")]
    pub(crate) level: WipeLevel,
    /// Levels that will do for a disk that does not support --level, best first.
    #[arg(long, value_parser = level, value_delimiter = ',', value_name = "LEVEL,...")]
    pub(crate) fallback: Vec<WipeLevel>,
    /// Wipe the disks even if they carry the receipt of another install.
    #[arg(long)]
    pub(crate) force: bool,
    /// Turn the machine off afterwards, in place of a restart.
    #[arg(long)]
    pub(crate) power_off: bool,
    /// Do not ask before data is destroyed.
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) follow: Follow,
}

fn selector(text: &str) -> Result<DiskSelector, String> {
    let (field, value) = text.split_once('=').ok_or("write FIELD=VALUE, such as serial=S4EVNX0R")?;
    let disk: DiskSelector =
        serde_json::from_value(serde_json::json!({ field: value })).map_err(|error| error.to_string())?;
    disk.validate().map_err(|error| error.to_string())?;
    Ok(disk)
}

fn level(text: &str) -> Result<WipeLevel, String> {
    let levels = WipeLevel::ALL.map(WipeLevel::as_str).join(", ");
    WipeLevel::named(text).ok_or_else(|| format!("it is none of {levels}"))
}

#[derive(Debug, Args)]
#[command(after_help = "\
The disks are wiped as the pool's spec.release says. The pool then claims another machine if it has too few; to keep it from claiming
the same one again, take the pool's label from the machine's document first. The command first shows what is on the disks; on a terminal it
asks before it goes on.

Examples:
  landfall release node-1                          Replace a machine that is not well
  landfall release -l state=broken --yes           Several, without a question")]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) machines: Machines,
    /// Do not ask before data is destroyed.
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Output format of the machines. See: landfall help output.
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// Workflows, by their names or their machines.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Workflows' names, or machine/NAME for that machine's newest workflow.
    #[arg(value_name = "WORKFLOW|machine/NAME")]
    pub(crate) workflows: Vec<String>,
    /// The workflows of machines with these labels that have not ended; for resume those that are paused.
    #[arg(short = 'l', long = "selector", value_name = "LABELS")]
    pub(crate) selector: Option<landfall_api::LabelSelector>,
    #[command(flatten)]
    pub(crate) several: Several,
    /// Output format of the workflow. See: landfall help output.
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The machine's disk stays in its current state: old, unbootable, or complete.

Examples:
  landfall cancel node-1-debian-x7k2p
  landfall cancel machine/node-1                   The machine's newest workflow
  landfall cancel -l rack=r7                       All that wait or run on the machines of a rack")]
pub(crate) struct Cancel {
    #[command(flatten)]
    pub(crate) run: Run,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The current action ends; no other begins until the workflow is resumed.

Examples:
  landfall pause node-1-debian-x7k2p
  landfall resume node-1-debian-x7k2p")]
pub(crate) struct Pause {
    #[command(flatten)]
    pub(crate) run: Run,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Continues a workflow after a pause, or after an action that holds.

Examples:
  landfall resume node-1-debian-x7k2p
  landfall resume machine/node-1")]
pub(crate) struct Resume {
    #[command(flatten)]
    pub(crate) run: Run,
}

#[derive(Debug, Args)]
#[command(after_help = "\
After more than an hour without the coordinator, and after a restore, workflows that have not begun wait for a person.
A confirmation lets them begin and forces nothing: a disk with an unknown receipt is still refused. With --identity it
clears the alarm of a machine whose identity or token another computer used. Each request is recorded with your name.

Examples:
  landfall confirm node-1-debian-x7k2p machine/node-2
  landfall confirm --all-held
  landfall confirm --identity node-1")]
pub(crate) struct Confirm {
    /// Workflows' names, or machine/NAME for that machine's newest workflow; with --identity machines' names.
    #[arg(value_name = "WORKFLOW|MACHINE", required_unless_present = "all_held")]
    pub(crate) names: Vec<String>,
    /// Confirm every workflow that waits for a confirmation.
    #[arg(long, conflicts_with_all = ["names", "identity"])]
    pub(crate) all_held: bool,
    /// Clear the identity alarms of these machines.
    #[arg(long)]
    pub(crate) identity: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Creates a new workflow that keeps the completed actions and begins with the failed one. The request is recorded with your
name.

Examples:
  landfall retry node-1-debian-x7k2p
  landfall retry machine/node-1 --wait")]
pub(crate) struct Retry {
    /// A workflow's name, or machine/NAME for that machine's newest workflow.
    #[arg(value_name = "WORKFLOW|machine/NAME")]
    pub(crate) workflow: String,
    #[command(flatten)]
    pub(crate) follow: Follow,
}

#[derive(Debug, Args)]
#[command(after_help = "\
On a terminal one line per machine is redrawn in place; elsewhere each change prints a line. A line shows the current
action, its progress, its rate, the remaining time, and the slowest stage. The command reconnects after a lost connection.

Examples:
  landfall watch
  landfall watch node-1 node-2
  landfall watch -l rack=r7
  landfall watch | tee install.log")]
pub(crate) struct Watch {
    /// Show only these machines.
    #[arg(value_name = "MACHINE", conflicts_with = "selector")]
    pub(crate) machines: Vec<String>,
    #[command(flatten)]
    pub(crate) labels: Labels,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  landfall events node-1                           Of a machine: its last runs
  landfall events node-1-debian-x7k2p              Of one run
  landfall events node-1 -f                        Go on with what happens
  landfall events machine/node-1 -o json")]
pub(crate) struct Events {
    /// A workflow's or a machine's name, or workflow/NAME, or machine/NAME.
    #[arg(value_name = "WORKFLOW|MACHINE")]
    pub(crate) subject: String,
    /// Keep running and show new events: of a workflow until it ends, of a machine until interrupted.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Output format (json: one event per line).
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  landfall logs node-1-debian-x7k2p
  landfall logs node-1-debian-x7k2p -f             Go on until it ends
  landfall logs machine/node-1                     Of the machine's newest run
  landfall logs machine/node-1 -f --action write --tail 20
  landfall logs machine/node-1 --since 10m")]
pub(crate) struct Logs {
    /// A workflow's name, or machine/NAME for that machine's newest workflow.
    #[arg(value_name = "WORKFLOW|machine/NAME")]
    pub(crate) subject: String,
    /// Keep running and show new lines until the workflow ends.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Show only lines of this action.
    #[arg(long, value_name = "NAME")]
    pub(crate) action: Option<String>,
    /// Of the existing lines, show only the newest N.
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<u64>,
    /// Show only lines newer than this (such as 10m), by the agent's clock.
    #[arg(long, value_name = "DURATION")]
    pub(crate) since: Option<landfall_api::DurationSpec>,
    /// Output format (json: one log line per line).
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}
