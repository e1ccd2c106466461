//! `landfall completion`: a script that lets the shell complete commands and flags.

use clap::CommandFactory;
use clap_complete::shells;

use crate::{
    args::{Cli, Completion, Shell},
    failure::Failure,
    output::Out,
};

pub(crate) fn run(args: &Completion, out: &mut Out) -> Result<(), Failure> {
    let mut command = Cli::command();
    let mut script = Vec::new();
    match args.shell {
        Shell::Bash => clap_complete::generate(shells::Bash, &mut command, "landfall", &mut script),
        Shell::Zsh => clap_complete::generate(shells::Zsh, &mut command, "landfall", &mut script),
        Shell::Fish => clap_complete::generate(shells::Fish, &mut command, "landfall", &mut script),
    }
    out.line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(())
}
