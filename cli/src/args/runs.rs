//! Flags of the commands about runs and what becomes of machines.

use clap::Args;

use super::{Format, Labels, Output};

#[derive(Debug, Args)]
#[command(after_help = "\
Starting a run by name is what allows a disk that is not blank to be written; who asked is recorded. The machine takes
the run when it next netboots.

A parameter's value is read as JSON where it is JSON (42, true, [\"a\",\"b\"]), else as text; to pass text that looks like
a number quote it twice: --param 'release=\"12\"'.

Examples:
  landfall provision node-1 --template debian
  landfall provision node-1 -t debian --param release=12 --param 'users=[\"ann\"]'
  landfall provision node-1 -t debian --wait --timeout 30m
  landfall provision node-1 -t debian --force      Whatever receipt an earlier install left on the disk")]
pub(crate) struct Provision {
    /// The machine's name.
    pub(crate) machine: String,
    /// The template's name.
    #[arg(short, long)]
    pub(crate) template: String,
    /// A value for one of the template's parameters. May be repeated.
    #[arg(short, long = "param", value_name = "NAME=VALUE")]
    pub(crate) params: Vec<String>,
    /// Write the disk whatever receipt is found on it.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) follow: Follow,
}

/// Whether and how a run that was started is waited for.
#[derive(Debug, Args)]
pub(crate) struct Follow {
    /// Show progress, and end with the workflow: exit code 0 if it succeeded, 1 if not.
    #[arg(short, long)]
    pub(crate) wait: bool,
    /// With --wait: how long at most (such as 30m); exit code 6 when it is over. The workflow itself goes on.
    #[arg(long, requires = "wait", value_name = "DURATION")]
    pub(crate) timeout: Option<landfall_api::DurationSpec>,
    /// How the workflow is shown. See: landfall help output.
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Clears what makes the machine's disks bootable, and the receipts on them; afterwards it is available for another install.
The data between is not overwritten.

Examples:
  landfall deprovision node-1
  landfall deprovision node-1 --wait
  landfall deprovision node-1 --force              Whatever receipt is on the disks")]
pub(crate) struct Deprovision {
    /// The machine's name.
    pub(crate) machine: String,
    /// Clear the disks whatever receipt is found on them.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) follow: Follow,
}

/// A workflow, or the newest one of a machine.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// A workflow's name, or machine/NAME for that machine's newest workflow.
    #[arg(value_name = "WORKFLOW|machine/NAME")]
    pub(crate) workflow: String,
    /// How the workflow is shown. See: landfall help output.
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(after_help = "\
What is on the machine's disk stays as it is at that moment: old, unbootable, or whole.

Examples:
  landfall cancel node-1-debian-x7k2p
  landfall cancel machine/node-1                   The machine's newest workflow")]
pub(crate) struct Cancel {
    #[command(flatten)]
    pub(crate) run: Run,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The action under way is finished; no other begins until the workflow is resumed.

Examples:
  landfall pause node-1-debian-x7k2p
  landfall resume node-1-debian-x7k2p")]
pub(crate) struct Pause {
    #[command(flatten)]
    pub(crate) run: Run,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Goes on after a pause, or past an action that holds.

Examples:
  landfall resume node-1-debian-x7k2p
  landfall resume machine/node-1")]
pub(crate) struct Resume {
    #[command(flatten)]
    pub(crate) run: Run,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Makes a new workflow that takes over what was done and begins with the action that failed. Who asked is recorded.

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
On a terminal one line per machine is redrawn in place; elsewhere a line is printed at each change. Shown are the action
under way, how far it is, its rate, the time to go, and the stage that the others wait for. A lost connection is taken up
again.

Examples:
  landfall watch
  landfall watch node-1 node-2
  landfall watch -l rack=r7
  landfall watch | tee install.log")]
pub(crate) struct Watch {
    /// Only these machines.
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
    /// Go on with what happens: of a workflow until it ends, of a machine until interrupted.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// How they are shown (json: one event a line).
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
    /// Go on with new lines until the workflow ends.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only lines of this action.
    #[arg(long, value_name = "NAME")]
    pub(crate) action: Option<String>,
    /// Of the lines there are already only the newest so many.
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<u64>,
    /// Only lines of so long ago at most (such as 10m), by the agent's clock.
    #[arg(long, value_name = "DURATION")]
    pub(crate) since: Option<landfall_api::DurationSpec>,
    /// How they are shown (json: one line a line).
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}
