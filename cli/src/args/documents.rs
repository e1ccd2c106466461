//! Flags of the commands about documents.

use std::path::PathBuf;

use clap::Args;

use super::{Format, Labels, Output, Which};
use crate::{commands::wait::For, jsonpath::Expression};

#[derive(Debug, Args)]
#[command(after_help = "\
Every document of every file is validated before any change, first by its schema here, then by the coordinator.
If one document is refused, none is applied. Several documents in a file are separated by ---.

Examples:
  landfall apply -f machine.yaml
  landfall apply -f machines/ -f templates/debian.yaml
  cat site.yaml | landfall apply -f -
  landfall apply -f site.yaml --dry-run            Only show what would happen")]
pub(crate) struct Apply {
    /// A file, a directory (its *.yaml, *.yml and *.json), or - for standard input. May be repeated.
    #[arg(short, long = "filename", required = true, value_name = "FILE|DIR|-")]
    pub(crate) filename: Vec<PathBuf>,
    /// Also read subdirectories.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Validate and show what would happen; change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Output format: lines, or a list of {outcome, object} for programs. See: landfall help output.
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  landfall get machines                            All machines
  landfall get machine node-1 -o yaml              One, as a file for apply
  landfall get m/node-1 wf/node-1-debian-x7k2p     Of several kinds
  landfall get machines -l rack=r7,env!=prod       By labels
  landfall get all
  landfall get sightings                           Machines that netbooted and were not served, with the reason
  landfall get workflows -w                        All, then every change
  landfall get m -o 'jsonpath={.items[?(@.status.phase==\"Failed\")].metadata.name}'
  landfall get m -o custom-columns=NAME:.metadata.name,MAC:.spec.identity.macs[0] --sort-by .metadata.name")]
pub(crate) struct Get {
    #[command(flatten)]
    pub(crate) which: Which,
    #[command(flatten)]
    pub(crate) labels: Labels,
    /// table, wide, json, yaml, name, jsonpath=TEMPLATE or custom-columns=NAME:PATH,… See: landfall help output.
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    pub(crate) output: Output,
    /// Keep running and show every change (json: one document per line).
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Sort by this field of each document, such as .metadata.creationTimestamp.
    #[arg(long, value_name = "PATH", conflicts_with = "watch")]
    pub(crate) sort_by: Option<Expression>,
    /// Show tables without a header.
    #[arg(long)]
    pub(crate) no_headers: bool,
    /// Show a column with labels.
    #[arg(long)]
    pub(crate) show_labels: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  landfall describe machine node-1
  landfall describe workflow/node-1-debian-x7k2p
  landfall describe machines -l rack=r7")]
pub(crate) struct Describe {
    #[command(flatten)]
    pub(crate) which: Which,
    #[command(flatten)]
    pub(crate) labels: Labels,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A machine may be deleted at any time. A document that still has work to end stays, with a deletion time, until that work
has ended; --wait waits for it.

Examples:
  landfall delete machine node-1
  landfall delete templates debian mini
  landfall delete -f site.yaml
  landfall delete workflows -l batch=7
  landfall delete workflows --all")]
pub(crate) struct Delete {
    /// Kinds and names, as for get.
    #[arg(required_unless_present = "filename", conflicts_with = "filename", value_name = "KIND[/NAME]|NAME")]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) labels: Labels,
    /// The documents in these files.
    #[arg(short, long, value_name = "FILE|DIR|-")]
    pub(crate) filename: Vec<PathBuf>,
    /// Every document of that kind.
    #[arg(long, conflicts_with_all = ["selector", "filename"])]
    pub(crate) all: bool,
    /// Do not fail if a document does not exist.
    #[arg(long)]
    pub(crate) ignore_not_found: bool,
    /// Wait until the documents are gone.
    #[arg(long)]
    pub(crate) wait: bool,
    /// With --wait: the longest time to wait.
    #[arg(long, requires = "wait", default_value = "5m", value_name = "DURATION")]
    pub(crate) timeout: landfall_api::DurationSpec,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The editor is $VISUAL, else $EDITOR, else vi. If the coordinator refuses the change, the editor opens again with the
reason at the top. If another person changed the document meanwhile, you see those changes before you overwrite them.
Text that is not applied is kept in a file, and the command prints its name.

Examples:
  landfall edit machine node-1
  EDITOR=nano landfall edit template/debian")]
pub(crate) struct Edit {
    #[command(flatten)]
    pub(crate) which: Which,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The command watches the documents and reconnects after a lost connection. It fails at once if a workflow ends in another
phase, or if a machine or workflow is deleted, unless it waits for that.

Examples:
  landfall wait machine/node-1 --for=condition=Connected
  landfall wait machine node-1 --for=condition=Connected=False --timeout 5m
  landfall wait workflow/node-1-debian-x7k2p --for=phase=Succeeded --timeout 1h
  landfall wait machines -l rack=r7 --for=phase=Provisioned --timeout 1h
  landfall wait machine/node-1 --for=delete")]
pub(crate) struct Wait {
    #[command(flatten)]
    pub(crate) which: Which,
    #[command(flatten)]
    pub(crate) labels: Labels,
    /// Every document of that kind.
    #[arg(long, conflicts_with = "selector")]
    pub(crate) all: bool,
    /// The event to wait for: condition=TYPE[=True|False|Unknown], phase=PHASE, create or delete.
    #[arg(long = "for", value_name = "WHAT")]
    pub(crate) what: For,
    /// The longest time to wait, for all documents together. Exit code 6 after it.
    #[arg(long, default_value = "30s", value_name = "DURATION")]
    pub(crate) timeout: landfall_api::DurationSpec,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  landfall history machine node-1                  Who changed what, when
  landfall history template/debian -o json         With every change as a JSON merge patch, one a line")]
pub(crate) struct History {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Output format (json: one change per line).
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "\
This command needs no coordinator.

Examples:
  landfall explain machine
  landfall explain template.spec.actions.writeImage
  landfall explain template --recursive
  landfall explain machine -o json                 The JSON Schema itself, for editors")]
pub(crate) struct Explain {
    /// A kind, and the path of a field: KIND.FIELD.FIELD
    #[arg(value_name = "KIND[.FIELD…]")]
    pub(crate) path: String,
    /// Show all fields below, as a tree.
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t, hide_possible_values = true, value_name = "table|json|yaml")]
    pub(crate) output: Format,
}
