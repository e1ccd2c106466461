//! Running Debian's programs.

use std::process;

use super::commands::Command;
use crate::{Failure, Reporter, program};

/// Where the tools layer has them.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs programs.
pub(super) trait Tools {
    /// Runs it and waits for its end. `each` gets each line that it prints, on whichever output.
    ///
    /// # Errors
    /// It is not there, or its exit code is not 0.
    fn read(&self, command: &Command, each: &mut dyn FnMut(&str)) -> Result<(), Failure>;

    /// The same, where only its exit code matters.
    ///
    /// # Errors
    /// As of [`Self::read`].
    fn run(&self, command: &Command) -> Result<(), Failure> {
        self.read(command, &mut |_| {})
    }
}

impl<T: Tools + ?Sized> Tools for &T {
    fn read(&self, command: &Command, each: &mut dyn FnMut(&str)) -> Result<(), Failure> {
        (**self).read(command, each)
    }
}

/// Those of the tools layer.
pub(super) struct Installed<'a> {
    pub(super) report: &'a Reporter,
}

impl Tools for Installed<'_> {
    fn read(&self, command: &Command, each: &mut dyn FnMut(&str)) -> Result<(), Failure> {
        let mut child = process::Command::new(command.program);
        child.args(&command.arguments).env_clear().env("PATH", PATH).env("LC_ALL", "C");
        let missing = "make a new tools layer with landfall-image tools, and configure it";
        program::run(self.report, command.program, &mut child, command.input.as_ref(), missing, each)
    }
}
