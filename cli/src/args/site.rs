//! Flags of the commands about machines' standing, the site, and this command itself.

use std::path::PathBuf;

use clap::{
    Args, Subcommand, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};
use landfall_api::Role;

use super::{Format, Output};

#[derive(Debug, Args)]
#[command(after_help = "\
The machine's console shows the fingerprint of its key. Given here, it is compared with the key that asks; without it, a
person on a terminal is shown the one that asks and says whether it is the same.

Examples:
  landfall approve node-1 --fingerprint 3f:9a:…
  landfall approve discovered-525400000001")]
pub(crate) struct Approve {
    /// The machine's name.
    pub(crate) machine: String,
    /// The fingerprint that the machine's console shows; colons, spaces and the case of letters do not matter.
    #[arg(long, value_name = "FINGERPRINT")]
    pub(crate) fingerprint: Option<String>,
    /// How the machine is shown. See: landfall help output.
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
    /// How the machine is shown. See: landfall help output.
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Who asked for what, from where, and what became of it, oldest first. For admins.

Examples:
  landfall audit                                   The newest entries
  landfall audit --after 1200 --limit 500
  landfall audit -f                                Go on with what happens
  landfall audit -o json")]
pub(crate) struct Audit {
    /// Only entries after this position.
    #[arg(long, value_name = "POSITION")]
    pub(crate) after: Option<u64>,
    /// How many at most; without --after the newest.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    /// Go on with new entries.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// How they are shown (json: one entry a line).
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A token stands for a person or program over the network, without a certificate. Its value is shown once, at its creation.

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
    /// Make a token; its value goes to standard output.
    Create {
        /// Its name: what the audit log calls its holder.
        name: String,
        /// What its holder may do.
        #[arg(long, value_parser = PossibleValuesParser::new(Role::ALL.map(Role::as_str)).try_map(|role| role.parse::<Role>()))]
        role: Role,
        /// How long it is good for (such as 12h or 30d). Default: as the coordinator has it.
        #[arg(long, value_name = "DURATION")]
        ttl: Option<landfall_api::DurationSpec>,
        /// How it is shown: its value alone, or with what is kept of it.
        #[arg(short, long, value_enum, default_value_t, hide_possible_values = true, value_name = "table|json|yaml")]
        output: Format,
    },
    /// Show the tokens there are, never their values.
    List {
        /// How they are shown.
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Withdraw a token at once.
    Delete {
        /// Its name.
        name: String,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Taken while the coordinator runs. The file appears only when it is whole, and only you may read it: with it goes
everything the coordinator knows. For admins.

Examples:
  landfall backup -o landfall-2026-01-31.backup
  landfall backup -o - | age -r … > landfall.backup.age")]
pub(crate) struct Backup {
    /// The file to write, or - for standard output.
    #[arg(short, long, value_name = "FILE|-")]
    pub(crate) output: PathBuf,
    /// Replace the file if it is there.
    #[arg(long)]
    pub(crate) overwrite: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A context is one coordinator and who you are to it. They are kept in $XDG_CONFIG_HOME/landfall/config.yaml (else
~/.config/landfall/config.yaml), which holds names of files and commands, never a key or a token itself.

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
    /// Show the contexts there are.
    List {
        /// How they are shown.
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Use a context from now on.
    Use {
        /// Its name.
        name: String,
    },
    /// Make or replace a context from --server, --ca or --ca-pin, and --cert with --key, --token-file or --token-command.
    Set {
        /// Its name.
        name: String,
        /// Use it from now on; the first one is used anyhow.
        #[arg(long = "use")]
        use_it: bool,
    },
    /// Forget a context.
    Delete {
        /// Its name.
        name: String,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Names of machines, workflows, templates and the like are asked of the coordinator while you type, for two seconds at most.

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

/// What a shell asks while somebody types.
#[derive(Debug, Args)]
pub(crate) struct Complete {
    /// The words so far; the last one is being typed.
    #[arg(last = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  landfall man --out /usr/local/share/man/man1
  landfall man --out man && man -l man/landfall-get.1")]
pub(crate) struct Man {
    /// The directory to write to; made if it is not there.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  landfall version
  landfall version --client -o json")]
pub(crate) struct Version {
    /// Of this command only; asks no coordinator.
    #[arg(long)]
    pub(crate) client: bool,
    /// How they are shown.
    #[arg(short, long, value_enum, default_value_t, hide_possible_values = true, value_name = "table|json|yaml")]
    pub(crate) output: Format,
}
