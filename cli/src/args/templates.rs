//! Flags of `landfall template`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Output;

#[derive(Debug, Args)]
pub(crate) struct TemplateArgs {
    #[command(subcommand)]
    pub(crate) what: TemplateCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TemplateCommand {
    /// Check files without a coordinator: every fault with file, line and field.
    Validate(Validate),
    /// Print the exact list that a template makes for a machine. Nothing is started.
    Render(Render),
    /// Print the JSON Schema of templates, for editors.
    Schema,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 0 if every document is valid, 4 if not.

Examples:
  landfall template validate debian.yaml templates/
  cat debian.yaml | landfall template validate -")]
pub(crate) struct Validate {
    /// A file, a directory (its *.yaml, *.yml and *.json), or - for standard input.
    #[arg(required = true, value_name = "FILE|DIR|-")]
    pub(crate) filename: Vec<PathBuf>,
    /// Also read subdirectories.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The coordinator renders, with the machine's labels and facts. A secret stays a reference. Images are not asked for; landfall
provision --dry-run does that, and checks whether the machine could begin.

Examples:
  landfall template render debian --machine node-1
  landfall template render ./debian.yaml --machine node-1 -p release=trixie
  landfall template render debian --machine node-1 -o 'jsonpath={.actions[*].name}'")]
pub(crate) struct Render {
    /// A stored template's name, or a file: a word with a dot or a slash, or - for standard input.
    #[arg(value_name = "TEMPLATE|FILE|-")]
    pub(crate) template: String,
    /// The machine's name.
    #[arg(short, long)]
    pub(crate) machine: String,
    /// A value for one of the template's parameters. May be repeated.
    #[arg(short, long = "param", value_name = "NAME=VALUE")]
    pub(crate) params: Vec<String>,
    /// yaml, json, jsonpath=TEMPLATE, … See: landfall help output.
    #[arg(short, long, default_value = "yaml", value_name = "FORMAT")]
    pub(crate) output: Output,
}
