//! Words of `landfall power` and `landfall console`.

use clap::Args;
use landfall_api::PowerAction;

use super::{Format, Machines};

#[derive(Debug, Args)]
#[command(after_help = "\
Through the machine's BMC (spec.bmc in its document), or Wake-on-LAN (spec.power). The answer is what was read there afterwards. While a workflow waits for the
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

#[derive(Debug, Args)]
#[command(after_help = "\
Through the machine's BMC (IPMI Serial over LAN): spec.bmc.address, or spec.bmc.console of a machine with Redfish. One person reads a
console at a time. ~. after Enter ends it, ~B sends a break, ~? lists the keys. Where input or output is no terminal, it only
prints, until Ctrl-C.

Examples:
  landfall console node-1                          At this terminal
  landfall console node-1 --take-over              End the one that another person, or another program, has open
  landfall console node-1 > boot.log               Write down what the machine says")]
pub(crate) struct Console {
    /// The machine's name.
    pub(crate) machine: String,
    /// Also if the console is open elsewhere: that one ends.
    #[arg(long)]
    pub(crate) take_over: bool,
}
