//! The command line: every flag with what it means, every command with examples.

mod documents;
mod facts;
mod import;
mod power;
mod runs;
mod site;
mod templates;
pub(crate) mod topics;
mod which;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use landfall_api::Digest;

pub(crate) use crate::show::Output;
pub(crate) use documents::{Apply, Delete, Describe, Edit, Explain, Get, History, Wait};
pub(crate) use facts::{Facts, FactsCommand, Inspect};
pub(crate) use import::{Import, ImportFrom};
use landfall_client::Server;
pub(crate) use power::{Console, Power};
pub(crate) use runs::{
    Cancel, Confirm, Deprovision, Events, Follow, Logs, Pause, Provision, Release, Resume, Retry, Run, Watch,
};
pub(crate) use site::{
    Approve, Audit, Backup, Complete, Completion, Context, ContextCommand, Man, OneMachine, Shell, Token, TokenCommand,
    Version,
};
pub(crate) use templates::{Render, TemplateArgs, TemplateCommand, Validate};
pub(crate) use topics::Topic;
pub(crate) use which::{Labels, Machines, Selection, Several, Target, Which};

const OVERVIEW: &str = "\
Examples:
  landfall apply -f machine.yaml -f template.yaml     Describe machines and templates
  landfall provision node-1 --template debian --wait  Install one, and wait for the outcome
  landfall watch                                      All machines, live
  landfall describe machine node-1                    Why it is in its state
  landfall explain template.spec.actions              Which fields a file may have

Connection:
  On the coordinator's host no option is needed: the command uses its Unix socket, as root or as its user.
  From other hosts: --server https://HOST:7443 with --ca, --cert and --key; the first set is in admin/ of
  the coordinator's data directory (ca.pem, admin.pem, admin.key). landfall context set stores them.

More: landfall help exit-codes|output|selectors";

/// Landfall's operator command: describe machines, provision them and watch them.
#[derive(Debug, Parser)]
#[command(name = "landfall", version, max_term_width = 110, after_help = OVERVIEW, after_long_help = format!("{OVERVIEW}\n\n{}", topics::EXIT_CODES))]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where the coordinator is, and who calls. Each value may also come from the named environment variable or from a
/// context.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// Where the coordinator is: unix:///path or https://host:port; where several have one store, all, with commas in between
    /// [env: LANDFALL_SERVER] [default: the context's, else unix:///var/lib/landfall/api.sock].
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) server: Option<Server>,
    /// The context to use in place of the current one [env: LANDFALL_CONTEXT].
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The coordinator's CA certificate, PEM (https only) [env: LANDFALL_CA].
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "ca_pin")]
    pub(crate) ca: Option<PathBuf>,
    /// The digest of the coordinator's CA key, sha256:…, in place of --ca [env: LANDFALL_CA_PIN].
    #[arg(long, global = true, value_name = "DIGEST")]
    pub(crate) ca_pin: Option<Digest>,
    /// Your operator's certificate, PEM (https only) [env: LANDFALL_CERT].
    #[arg(long, global = true, value_name = "FILE", conflicts_with_all = ["token_file", "token_command"])]
    pub(crate) cert: Option<PathBuf>,
    /// The certificate's private key, PEM (https only) [env: LANDFALL_KEY].
    #[arg(long, global = true, value_name = "FILE", conflicts_with_all = ["token_file", "token_command"])]
    pub(crate) key: Option<PathBuf>,
    /// A file with a token, in place of a certificate [env: LANDFALL_TOKEN_FILE, or the token itself: LANDFALL_TOKEN].
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "token_command")]
    pub(crate) token_file: Option<PathBuf>,
    /// A command that prints a token, run by sh.
    #[arg(long, global = true, value_name = "COMMAND")]
    pub(crate) token_command: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create or change documents from files.
    Apply(Apply),
    /// Show one or many documents.
    Get(Get),
    /// Show everything about a document: conditions, actions, problems, events, history.
    Describe(Describe),
    /// Change a document in your editor.
    Edit(Edit),
    /// Delete documents.
    Delete(Delete),
    /// Wait until documents reach a condition or phase.
    Wait(Wait),
    /// Run a template on a machine.
    Provision(Provision),
    /// Check templates, and show the list that one makes for a machine.
    Template(TemplateArgs),
    /// Turn files of Tinkerbell or curtin, or a table of machines and their BMCs, into documents.
    Import(Import),
    /// Clear what an install left on a machine, and make it available again.
    Deprovision(Deprovision),
    /// Take machines out of their pools: they are cleared, and then free.
    Release(Release),
    /// Stop workflows.
    Cancel(Cancel),
    /// Pause a workflow: the current action ends, no other begins.
    Pause(Pause),
    /// Resume a paused or holding workflow.
    Resume(Resume),
    /// Let held workflows begin after a long absence of the coordinator, or clear an identity alarm.
    Confirm(Confirm),
    /// Run a failed workflow again, from the action that failed.
    Retry(Retry),
    /// Approve a machine after a person compared its key fingerprint.
    Approve(Approve),
    /// Take over a machine that is already installed, without a change.
    Adopt(OneMachine),
    /// Stop managing a machine; its disks stay unchanged.
    Detach(OneMachine),
    /// Revoke the credentials of a machine or an operator.
    Revoke(OneMachine),
    /// Show all machines live, one line each.
    Watch(Watch),
    /// Show what happened to a workflow or a machine, oldest first.
    Events(Events),
    /// Show a workflow's log lines.
    Logs(Logs),
    /// Show who changed a document, when and how.
    History(History),
    /// Read machines' power, or change it.
    Power(Power),
    /// Open a machine's serial console.
    Console(Console),
    /// Look at a machine again, and show which facts changed.
    Inspect(Inspect),
    /// Compare the hardware of machines.
    Facts(Facts),
    /// Explain the fields of a document.
    Explain(Explain),
    /// Show the audit log.
    Audit(Audit),
    /// Create, list and delete tokens.
    Token(Token),
    /// Back up all data of the coordinator.
    Backup(Backup),
    /// Configure several coordinators and choose one.
    Context(Context),
    /// Print a completion script for a shell.
    Completion(Completion),
    /// Write manual pages.
    Man(Man),
    /// Show the versions of this command and of the coordinator.
    Version(Version),
    /// Explain the exit codes.
    #[command(hide = true, after_help = topics::EXIT_CODES)]
    ExitCodes(Topic),
    /// Explain the output formats.
    #[command(hide = true, after_help = topics::OUTPUT)]
    Output(Topic),
    /// Explain how to select documents.
    #[command(hide = true, after_help = topics::SELECTORS)]
    Selectors(Topic),
    #[command(name = "__complete", hide = true)]
    Complete(Complete),
}

/// Output format of data other than documents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// For people with wide terminals.
    Wide,
    /// For programs.
    Json,
    /// For programs.
    Yaml,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
