//! Flags of `landfall import`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

const HELP: &str = "\
Standard output gets the documents, standard error the findings (file:line: what is so; what to do), a table of what was mapped,
and the commands to provision. What the file does not say, such as an image's digest, is {{ todo.… }} in the document, and an
action without a counterpart is an item with the field todo: landfall template validate refuses both until you have replaced them.
A coordinator is not asked. docs/import.md lists what becomes what.

Exit code 0 if everything has a counterpart, 7 if a finding asks for something, 4 if a file is not YAML, or a table is invalid.

Examples:
  landfall import tinkerbell hardware.yaml template.yaml workflow.yaml > site.yaml
  landfall import tinkerbell --output documents tinkerbell/*.yaml
  landfall import curtin node.yaml > node-template.yaml && landfall template validate node-template.yaml
  landfall import bmc --credentials bmc-r7 rack-7.csv > rack-7.yaml";

const BMC_HELP: &str = "\
The first row names the columns, in any order and any case:
  name                     the machine's name; required
  macs                     the ports that it netboots from, between spaces or semicolons; required
  bmc                      the BMC's address; 192.0.2.7 means redfish+https://192.0.2.7
  credentials              the Secret with the BMC's account, where it is not that of --credentials
  certificate              the BMC's: what openssl x509 -fingerprint -sha256 prints
  serial, uuid             of SMBIOS; what is stated must match what the machine reports
  ip                       what the coordinator's DHCP server gives to the first port
  management, maintenance  managed or external; true or false
  label.KEY                a label, such as label.rack
  username, password       not taken: documents of machines have no passwords
Blank lines and lines that begin with # are passed over. Semicolons and tabs may separate cells too: what the first row has most of.
docs/import.md says more.

Standard output gets a document for each row, standard error the findings. Every fault of every file is an error with file, line and \
column, and with one of them no document is written. A coordinator is not asked.

Exit code 0 if every value is in a document, 7 if an account is not, 4 if a header or a row is invalid.

Examples:
  landfall import bmc --credentials bmc-r7 rack-7.csv > rack-7.yaml && landfall apply -f rack-7.yaml
  landfall import bmc --output machines racks/*.csv";

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
    /// A table of machines and their BMCs (CSV) becomes a machine for each row.
    #[command(after_help = BMC_HELP)]
    Bmc {
        /// Files, or - for standard input.
        #[arg(required = true, value_name = "FILE|-")]
        files: Vec<PathBuf>,
        /// The Secret with the account of every BMC whose row names none: most racks share one.
        #[arg(long, value_name = "SECRET", value_parser = secret)]
        credentials: Option<String>,
        #[command(flatten)]
        to: ImportTo,
    },
}

/// The name of a Secret.
fn secret(text: &str) -> Result<String, String> {
    let hint =
        "it is not a secret's name; use 1 to 63 lower-case letters, digits and \"-\", with no \"-\" at either end";
    if landfall_api::is_dns_label(text) { Ok(text.to_owned()) } else { Err(hint.to_owned()) }
}

/// Where the documents go.
#[derive(Debug, Args)]
pub(crate) struct ImportTo {
    /// A directory, which is made: each document becomes a file in it. A file that exists is never replaced.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}
