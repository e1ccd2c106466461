//! Flags of the commands about access, the site, and this command itself.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use landfall_api::Role;

use super::{Format, Output};

#[derive(Debug, Args)]
#[command(after_help = "\
The machine's console shows the fingerprint of its key. With --fingerprint the command compares it with the key that
requested enrolment; without it, it shows that key's fingerprint on the terminal and asks you to compare them.

Examples:
  landfall approve node-1 --fingerprint 3f:9a:…
  landfall approve discovered-525400000001")]
pub(crate) struct Approve {
    /// The machine's name.
    pub(crate) machine: String,
    /// The fingerprint on the machine's console; colons, spaces and case do not matter.
    #[arg(long, value_name = "FINGERPRINT")]
    pub(crate) fingerprint: Option<String>,
    /// Output format of the machine. See: landfall help output.
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  landfall adopt node-1                            It is installed already; take it over as it is
  landfall detach node-1                           Stop managing it; its disks stay as they are
  landfall revoke node-1                           Its credentials are refused from now on
  landfall revoke operator/ann                     So are a person's certificates made until now")]
pub(crate) struct OneMachine {
    /// The machine's name; for revoke also operator/NAME.
    pub(crate) machine: String,
    /// Output format of the machine. See: landfall help output.
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Shows who made which request, from where, and its result, oldest first. For admins.

Examples:
  landfall audit                                   The newest entries
  landfall audit --after 1200 --limit 500
  landfall audit -f                                Go on with what happens
  landfall audit -o json")]
pub(crate) struct Audit {
    /// Show only entries after this position.
    #[arg(long, value_name = "POSITION")]
    pub(crate) after: Option<u64>,
    /// The largest number of entries; without --after the newest.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    /// Keep running and show new entries.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Output format (json: one entry per line).
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A token authenticates a person or program over the network, without a certificate. Its value is shown once, at its
creation.

Examples:
  landfall token create ci --role operator --ttl 30d > ci.token
  landfall token list
  landfall token delete ci")]
pub(crate) struct Token {
    #[command(subcommand)]
    pub(crate) what: TokenCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token; its value goes to standard output.
    Create {
        /// The token's name; the audit log uses it for the caller.
        name: String,
        /// The role of the token.
        #[arg(long, value_parser = PossibleValuesParser::new(Role::ALL.map(Role::as_str)).try_map(|role| role.parse::<Role>()))]
        role: Role,
        /// The token's lifetime (such as 12h or 30d). Default: set by the coordinator.
        #[arg(long, value_name = "DURATION")]
        ttl: Option<landfall_api::DurationSpec>,
        /// Output format: the value alone, or with the token's stored data.
        #[arg(short, long, value_enum, default_value_t, hide_possible_values = true, value_name = "table|json|yaml")]
        output: Format,
    },
    /// List the tokens, never their values.
    List {
        /// Output format.
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Delete a token; it is refused at once.
    Delete {
        /// Its name.
        name: String,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
The coordinator keeps running. The file appears only when it is complete, and only you may read it: it contains all data
of the coordinator, including its keys. For admins.

Examples:
  landfall backup -o landfall-2026-01-31.backup
  landfall backup -o - | age -r … > landfall.backup.age")]
pub(crate) struct Backup {
    /// The file to write, or - for standard output.
    #[arg(short, long, value_name = "FILE|-")]
    pub(crate) output: PathBuf,
    /// Replace an existing file.
    #[arg(long)]
    pub(crate) overwrite: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A context is one coordinator and your credentials for it. Contexts are stored in $XDG_CONFIG_HOME/landfall/config.yaml
(else ~/.config/landfall/config.yaml), which contains names of files and commands, never a key or a token itself.

Examples:
  landfall context set lab --server https://lab.example:7443 --ca lab/ca.pem --cert ann.pem --key ann.key
  landfall context set dc2 --server https://10.2.0.1 --ca-pin sha256:… --token-command 'pass show landfall/dc2'
  landfall context use lab
  landfall --context dc2 get machines
  landfall context list")]
pub(crate) struct Context {
    #[command(subcommand)]
    pub(crate) what: ContextCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// List the contexts.
    List {
        /// Output format.
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Make a context the current one.
    Use {
        /// Its name.
        name: String,
    },
    /// Create or replace a context from --server, --ca or --ca-pin, and --cert with --key, --token-file or
    /// --token-command.
    Set {
        /// Its name.
        name: String,
        /// Make it the current context; the first context always is.
        #[arg(long = "use")]
        use_it: bool,
    },
    /// Delete a context.
    Delete {
        /// Its name.
        name: String,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
While you type, the shell requests names of machines, workflows and so on from the coordinator, for at most two seconds.

Examples:
  landfall completion bash > /etc/bash_completion.d/landfall
  landfall completion zsh > \"${fpath[1]}/_landfall\"
  landfall completion fish > ~/.config/fish/completions/landfall.fish
  source <(landfall completion bash)               For this shell only")]
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

/// The request of a shell during completion.
#[derive(Debug, Args)]
pub(crate) struct Complete {
    /// The words so far; the last one is incomplete.
    #[arg(last = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  landfall man --out /usr/local/share/man/man1
  landfall man --out man && man -l man/landfall-get.1")]
pub(crate) struct Man {
    /// The directory to write to; created if it does not exist.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  landfall version
  landfall version --client -o json")]
pub(crate) struct Version {
    /// Show only this command's version, without a request to the coordinator.
    #[arg(long)]
    pub(crate) client: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t, hide_possible_values = true, value_name = "table|json|yaml")]
    pub(crate) output: Format,
}
