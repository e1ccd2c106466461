//! The command line: every flag with what it means, every command with examples.

mod documents;
mod runs;
mod site;
pub(crate) mod topics;
mod which;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use landfall_api::Digest;

use crate::server::Server;
pub(crate) use crate::show::Output;
pub(crate) use documents::{Apply, Delete, Describe, Edit, Explain, Get, History, Wait};
pub(crate) use runs::{Cancel, Deprovision, Events, Follow, Logs, Pause, Provision, Resume, Retry, Run, Watch};
pub(crate) use site::{
    Approve, Audit, Backup, Complete, Completion, Context, ContextCommand, Man, OneMachine, Shell, Token, TokenCommand,
    Version,
};
pub(crate) use topics::Topic;
pub(crate) use which::{Labels, Selection, Target, Which};

const OVERVIEW: &str = "\
Examples:
  landfall apply -f machine.yaml -f template.yaml     Describe machines and templates
  landfall provision node-1 --template debian --wait  Install one, and wait for the outcome
  landfall watch                                      All machines, live
  landfall describe machine node-1                    Why it stands where it stands
  landfall explain template.spec.actions              What can be written in a file

Connection:
  On the coordinator's own host nothing is needed: its Unix socket is used, as root or as its user.
  Elsewhere: --server https://HOST:7443 with --ca, --cert and --key; the first ones are in admin/ of
  the coordinator's data directory (ca.pem, admin.pem, admin.key). landfall context set keeps them.

More: landfall help exit-codes|output|selectors";

/// Landfall's operator command: describe machines, provision them, watch them come ashore.
#[derive(Debug, Parser)]
#[command(name = "landfall", version, max_term_width = 110, after_help = OVERVIEW, after_long_help = format!("{OVERVIEW}\n\n{}", topics::EXIT_CODES))]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where the coordinator is, and who calls. Each may also stand in the environment variable named, or in a context.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// Where the coordinator is: unix:///path or https://host:port [env: LANDFALL_SERVER] [default: the context's, else
    /// unix:///var/lib/landfall/api.sock].
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
    /// Wait until documents are as they should be.
    Wait(Wait),
    /// Run a template on a machine.
    Provision(Provision),
    /// Clear what an install left on a machine, and make it available again.
    Deprovision(Deprovision),
    /// Stop a workflow.
    Cancel(Cancel),
    /// Let a workflow begin no other action.
    Pause(Pause),
    /// Let a paused or holding workflow go on.
    Resume(Resume),
    /// Run a failed workflow again, from the action that failed.
    Retry(Retry),
    /// Let a machine in whose key a person has compared.
    Approve(Approve),
    /// Take over a machine that is installed already, as it is.
    Adopt(OneMachine),
    /// Stop managing a machine; its disks stay as they are.
    Detach(OneMachine),
    /// Refuse a machine's, or an operator's, credentials from now on.
    Revoke(OneMachine),
    /// Show all machines live, one line each.
    Watch(Watch),
    /// Show what happened to a workflow or a machine, oldest first.
    Events(Events),
    /// Show a workflow's log lines.
    Logs(Logs),
    /// Show who changed a document, when and how.
    History(History),
    /// Explain what can be written in a document.
    Explain(Explain),
    /// Show who did what.
    Audit(Audit),
    /// Make, show and withdraw tokens.
    Token(Token),
    /// Take a copy of everything the coordinator knows.
    Backup(Backup),
    /// Keep and choose between several coordinators.
    Context(Context),
    /// Print a completion script for a shell.
    Completion(Completion),
    /// Write manual pages.
    Man(Man),
    /// Show the versions of this command and of the coordinator.
    Version(Version),
    /// What the exit codes mean.
    #[command(hide = true, after_help = topics::EXIT_CODES)]
    ExitCodes(Topic),
    /// The forms of output.
    #[command(hide = true, after_help = topics::OUTPUT)]
    Output(Topic),
    /// How documents are chosen.
    #[command(hide = true, after_help = topics::SELECTORS)]
    Selectors(Topic),
    #[command(name = "__complete", hide = true)]
    Complete(Complete),
}

/// How things other than documents are shown.
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
