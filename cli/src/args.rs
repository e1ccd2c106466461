//! The command line: every flag with what it means, every command with examples.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use landfall_api::Kind;

use crate::server::Server;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  it failed (with --wait: the workflow failed or was cancelled)
  2  the command line is wrong
  3  there is no such document
  4  refused: an invalid document, a conflict, a busy machine, no permission
  5  the coordinator cannot be reached";

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
  the coordinator's data directory (ca.pem, admin.pem, admin.key).";

/// Landfall's operator command: describe machines, provision them, watch them come ashore.
#[derive(Debug, Parser)]
#[command(name = "landfall", version, max_term_width = 110, after_help = OVERVIEW, after_long_help = format!("{OVERVIEW}\n\n{EXIT_CODES}"))]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where the coordinator is, and who calls.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// Where the coordinator is: unix:///path or https://host:port.
    #[arg(
        long,
        global = true,
        env = "LANDFALL_SERVER",
        default_value = "unix:///var/lib/landfall/api.sock",
        value_name = "URL"
    )]
    pub(crate) server: Server,
    /// The coordinator's CA certificate, PEM (https only).
    #[arg(long, global = true, env = "LANDFALL_CA", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Your operator's certificate, PEM (https only).
    #[arg(long, global = true, env = "LANDFALL_CERT", value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,
    /// The certificate's private key, PEM (https only).
    #[arg(long, global = true, env = "LANDFALL_KEY", value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create or change documents from files.
    Apply(Apply),
    /// Show one or many documents.
    Get(Get),
    /// Show everything about one document: conditions, actions, problems, events.
    Describe(Describe),
    /// Delete documents.
    Delete(Delete),
    /// Run a template on a machine.
    Provision(Provision),
    /// Stop a workflow.
    Cancel(Cancel),
    /// Show all machines live, one line each.
    Watch(Watch),
    /// Show what happened to a workflow or a machine, oldest first.
    Events(Events),
    /// Show a workflow's log lines.
    Logs(Logs),
    /// Explain what can be written in a document.
    Explain(Explain),
    /// Print a completion script for a shell.
    Completion(Completion),
}

/// How documents are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// For people with wide terminals.
    Wide,
    /// For programs.
    Json,
    /// For programs, and for `landfall apply` again.
    Yaml,
}

/// A kind as people write it: machine, machines, Machine, m.
fn kind(word: &str) -> Result<Kind, String> {
    Kind::from_word(word).ok_or_else(|| {
        let known: Vec<&str> = Kind::ALL.iter().flat_map(|k| [k.singular(), k.plural()]).collect();
        let nearest = landfall_api::nearest(word, &known).map(|n| format!("did you mean {n}? ")).unwrap_or_default();
        format!("{nearest}the kinds are machines, templates and workflows")
    })
}

/// A kind, or KIND/NAME.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) name: Option<String>,
}

impl std::str::FromStr for Target {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((_, "")) => Err("a name belongs after the /".into()),
            Some((word, name)) => Ok(Self { kind: kind(word)?, name: Some(name.to_owned()) }),
            None => Ok(Self { kind: kind(text)?, name: None }),
        }
    }
}

/// KIND [NAME…], or KIND/NAME.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// machines, templates or workflows (or m, t, w), or KIND/NAME.
    #[arg(value_name = "KIND[/NAME]")]
    pub(crate) target: Target,
    /// Names.
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
}

impl Which {
    /// Every name that was given, in either way.
    pub(crate) fn names(&self) -> Vec<String> {
        self.target.name.iter().chain(&self.names).cloned().collect()
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Every document of every file is validated before anything is changed, by its schema here and then by the coordinator;
if one is refused nothing is applied. Several documents in a file are separated by ---.

Examples:
  landfall apply -f machine.yaml
  landfall apply -f machines/ -f templates/debian.yaml
  cat site.yaml | landfall apply -f -
  landfall apply -f site.yaml --dry-run            Only say what would happen")]
pub(crate) struct Apply {
    /// A file, a directory (its *.yaml, *.yml and *.json), or - for standard input. May be repeated.
    #[arg(short, long = "filename", required = true, value_name = "FILE|DIR|-")]
    pub(crate) filename: Vec<PathBuf>,
    /// Descend into directories.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Validate, say what would happen, change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// How the outcome is shown: lines, or a list of {outcome, object} for programs.
    #[arg(short, long, value_enum, default_value_t, hide_possible_values = true, value_name = "table|json|yaml")]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  landfall get machines                            All machines
  landfall get machine node-1 -o yaml              One, as a file for apply
  landfall get workflows -w                        All, then every change
  landfall get m -o json | jq -r '.items[] | select(.status.phase == \"Failed\").metadata.name'")]
pub(crate) struct Get {
    #[command(flatten)]
    pub(crate) which: Which,
    /// How they are shown.
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
    /// Go on with every change (json: one document a line).
    #[arg(short, long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  landfall describe machine node-1
  landfall describe workflow/node-1-debian-x7k2p")]
pub(crate) struct Describe {
    #[command(flatten)]
    pub(crate) which: Which,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  landfall delete machine node-1
  landfall delete templates debian mini
  landfall delete workflow/node-1-debian-x7k2p")]
pub(crate) struct Delete {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Names that do not exist are no error.
    #[arg(long)]
    pub(crate) ignore_not_found: bool,
}

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
    /// Show progress, and end with the workflow: exit code 0 if it succeeded, 1 if not.
    #[arg(short, long)]
    pub(crate) wait: bool,
    /// With --wait: how long at most (such as 30m). The workflow itself goes on.
    #[arg(long, requires = "wait", value_name = "DURATION")]
    pub(crate) timeout: Option<landfall_api::DurationSpec>,
    /// How the workflow is shown.
    #[arg(short, long, value_enum, default_value_t, hide_possible_values = true, value_name = "table|json|yaml")]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "\
What is on the machine's disk stays as it is at that moment: old, unbootable, or whole.

Examples:
  landfall cancel node-1-debian-x7k2p")]
pub(crate) struct Cancel {
    /// The workflow's name.
    pub(crate) workflow: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
On a terminal one line per machine is redrawn in place; elsewhere a line is printed at each change. A lost connection is
taken up again.

Examples:
  landfall watch
  landfall watch node-1 node-2
  landfall watch | tee install.log")]
pub(crate) struct Watch {
    /// Only these machines.
    #[arg(value_name = "MACHINE")]
    pub(crate) machines: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  landfall events node-1                           Of a machine: its last runs
  landfall events node-1-debian-x7k2p              Of one run
  landfall events machine/node-1 -o json")]
pub(crate) struct Events {
    /// A workflow's or a machine's name, or workflow/NAME, or machine/NAME.
    #[arg(value_name = "WORKFLOW|MACHINE")]
    pub(crate) subject: String,
    /// How they are shown (json: one event a line).
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  landfall logs node-1-debian-x7k2p
  landfall logs node-1-debian-x7k2p -f             Go on until it ends
  landfall logs machine/node-1                     Of the machine's newest run")]
pub(crate) struct Logs {
    /// A workflow's name, or machine/NAME for that machine's newest workflow.
    #[arg(value_name = "WORKFLOW")]
    pub(crate) subject: String,
    /// Go on with new lines until the workflow ends.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// How they are shown (json: one line a line).
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Needs no coordinator.

Examples:
  landfall explain machine
  landfall explain template.spec.actions.writeImage
  landfall explain template --recursive
  landfall explain machine -o json                 The JSON Schema itself, for editors")]
pub(crate) struct Explain {
    /// machine, template or workflow, and the path of a field: KIND.FIELD.FIELD
    #[arg(value_name = "KIND[.FIELD…]")]
    pub(crate) path: String,
    /// All fields below, as a tree.
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// How it is shown.
    #[arg(short, long, value_enum, default_value_t, hide_possible_values = true, value_name = "table|json|yaml")]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  landfall completion bash > /etc/bash_completion.d/landfall
  landfall completion zsh > \"${fpath[1]}/_landfall\"
  landfall completion fish > ~/.config/fish/completions/landfall.fish")]
pub(crate) struct Completion {
    /// The shell.
    pub(crate) shell: Shell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn a_kind_is_taken_in_every_spelling_and_a_slip_is_named() {
        for word in ["machine", "machines", "Machine", "m"] {
            assert_eq!(word.parse::<Target>().unwrap(), Target { kind: Kind::Machine, name: None });
        }
        assert_eq!("wf/a".parse::<Target>().unwrap(), Target { kind: Kind::Workflow, name: Some("a".into()) });
        assert!("machnes".parse::<Target>().unwrap_err().contains("did you mean machines?"));
        assert!("machine/".parse::<Target>().is_err());
    }
}
