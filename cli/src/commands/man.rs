//! `landfall man`: the manual pages, with the same text as `--help`.

use clap::CommandFactory;

use crate::args::{Cli, Man};
use crate::failure::Failure;
use crate::output;
use crate::output::Out;

pub(crate) fn run(args: &Man, out: &mut Out) -> Result<(), Failure> {
    let directory = &args.out;
    let failed = |e| Failure::local(format!("cannot write manual pages to {}", directory.display()), e, "");
    std::fs::create_dir_all(directory).map_err(failed)?;
    let mut command = Cli::command();
    // Otherwise every page would list `help` as a command.
    command = command.disable_help_subcommand(true);
    clap_mangen::generate_to(command, directory).map_err(failed)?;
    let mut pages = 0;
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        pages += usize::from(name.to_string_lossy().starts_with("landfall") && name.to_string_lossy().ends_with(".1"));
    }
    output::to_stderr(&format!("{pages} pages in {}", directory.display()));
    out.line(&directory.join("landfall.1").display().to_string())?;
    Ok(())
}
