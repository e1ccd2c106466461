//! Programs of this host, for tests that make images.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

/// A path as a program's argument.
pub(super) fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Runs a program to its end; it must succeed.
pub(super) fn run(tool: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new(tool).args(arguments).output().with_context(|| format!("cannot run {tool}"))?;
    ensure!(output.status.success(), "{tool} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
