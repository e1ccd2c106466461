//! Flags of `landfall import`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

const HELP: &str = "\
Standard output gets the documents, standard error the findings (file:line: what is so; what to do), a table of what was mapped,
and the commands to provision. What the file does not say, such as an image's digest, is {{ todo.… }} in the document, and an
action without a counterpart is an item with the field todo: landfall template validate refuses both until you have replaced them.
A coordinator is not asked. docs/import.md lists what becomes what.

Exit code 0 if everything has a counterpart, 7 if a finding asks for something, 4 if a file is not YAML.

Examples:
  landfall import tinkerbell hardware.yaml template.yaml workflow.yaml > site.yaml
  landfall import tinkerbell --output documents tinkerbell/*.yaml
  landfall import curtin node.yaml > node-template.yaml && landfall template validate node-template.yaml";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Import {
    #[command(subcommand)]
    pub(crate) from: ImportFrom,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImportFrom {
    /// Hardware, Template and Workflow become machines, templates and the commands to provision.
    #[command(after_help = HELP)]
    Tinkerbell {
        /// Files, or - for standard input. State all that belong together: a Workflow tells which Hardware a Template is for.
        #[arg(required = true, value_name = "FILE|-")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        to: ImportTo,
    },
    /// A configuration of curtin becomes a template.
    #[command(after_help = HELP)]
    Curtin {
        /// The file, or - for standard input. The template gets its name.
        #[arg(value_name = "FILE|-")]
        file: PathBuf,
        #[command(flatten)]
        to: ImportTo,
    },
}

/// Where the documents go.
#[derive(Debug, Args)]
pub(crate) struct ImportTo {
    /// A directory, which is made: each document becomes a file in it. A file that exists is never replaced.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}
