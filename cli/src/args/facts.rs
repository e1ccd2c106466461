//! Words of `landfall facts`.

use clap::{Args, Subcommand};

use super::Format;

#[derive(Debug, Args)]
#[command(after_help = "\
The machine's agent must be connected. While a workflow runs, it does not look.

Examples:
  landfall inspect node-1                          After a disk or a cable was changed
  landfall inspect node-1 -o json                  One change a line")]
pub(crate) struct Inspect {
    /// A machine.
    pub(crate) machine: String,
    /// Output format (json: one change per line).
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Facts {
    #[command(subcommand)]
    pub(crate) what: FactsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FactsCommand {
    /// Show in what the hardware of two machines differs.
    Diff(FactsDiff),
}

#[derive(Debug, Args)]
#[command(after_help = "\
What is of one machine alone (serial numbers, addresses, neighbours) does not count, nor does what varies from boot to boot.
What became of one machine's facts is in: landfall describe machine NAME

Examples:
  landfall facts diff node-1 node-2                Why does the one behave otherwise?
  landfall facts diff node-1 node-2 -o json        One difference a line")]
pub(crate) struct FactsDiff {
    /// A machine.
    pub(crate) machine: String,
    /// The machine to compare it with.
    pub(crate) other: String,
    /// Output format (json: one difference per line).
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}
