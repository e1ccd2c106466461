//! Words of `landfall power`, and of other commands for several machines.

use clap::Args;
use landfall_api::PowerAction;

use super::{Format, Labels};

#[derive(Debug, Args)]
#[command(after_help = "\
Through the machine's BMC (spec.bmc in its document). The answer is what was read there afterwards. While a workflow waits for the
machine or runs on it, its power is the coordinator's: cancel the workflow first, or say --force.

Examples:
  landfall power status -l rack=r7                 Read it now
  landfall power off node-1                        At once; shutdown asks the system
  landfall power cycle node-1 node-2 --force")]
pub(crate) struct Power {
    /// status, on, off, shutdown (asks the system), or cycle (off, then on).
    #[arg(value_parser = action)]
    pub(crate) action: PowerAction,
    #[command(flatten)]
    pub(crate) machines: Machines,
    /// Also while a workflow waits for the machine or runs on it.
    #[arg(long)]
    pub(crate) force: bool,
    /// Output format (json: one machine per line).
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

fn action(text: &str) -> Result<PowerAction, String> {
    let all = PowerAction::ALL.map(PowerAction::as_str).join(", ");
    PowerAction::named(text).ok_or_else(|| format!("it is none of {all}"))
}

/// Machines by name or label, and how many at once.
#[derive(Debug, Args)]
pub(crate) struct Machines {
    /// Machines.
    #[arg(value_name = "MACHINE")]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) labels: Labels,
    /// How many machines are dealt with at once.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256), value_name = "NUMBER")]
    pub(crate) max_parallel: u16,
    /// After so many failures no other machine is begun. Default: all are.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) max_failures: Option<usize>,
}
