//! Runs the file-system and GRUB tools for which there is no Rust crate; an error contains the tool's message.

use std::ffi::OsStr;
use std::io;
use std::process::{Command, Output};

/// Debian package of each tool, for the hint when it is missing.
const PACKAGES: &[(&str, &str)] = &[
    ("mke2fs", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("btrfs", "btrfs-progs"),
    ("mformat", "mtools"),
    ("mmd", "mtools"),
    ("mcopy", "mtools"),
    ("grub-mkimage", "grub-common"),
    ("mksquashfs", "squashfs-tools"),
    ("xorriso", "xorriso"),
];

/// A tool failed.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// It is missing or cannot be started.
    #[error("cannot run {tool}{}", hint(tool))]
    Start {
        tool: String,
        #[source]
        source: io::Error,
    },
    /// It ran and failed.
    #[error("{tool} failed ({status}): {complaint}")]
    Failed { tool: String, status: std::process::ExitStatus, complaint: String },
}

fn hint(tool: &str) -> String {
    let package = PACKAGES.iter().find(|(name, _)| *name == tool);
    package.map_or_else(String::new, |(_, package)| format!("; on Debian: apt-get install {package}"))
}

/// Runs `tool` to its end with a fixed time and locale, so that its output depends on its arguments alone.
///
/// # Errors
/// It cannot be started or fails.
pub fn run<I, S>(tool: &str, args: I) -> Result<Output, ToolError>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    // mke2fs reads the second variable where its version does not know the first.
    let output = Command::new(tool)
        .args(args)
        .env("LC_ALL", "C")
        .env("SOURCE_DATE_EPOCH", EPOCH)
        .env("E2FSPROGS_FAKE_TIME", EPOCH)
        .env("MTOOLS_SKIP_CHECK", "1")
        .env("PATH", path())
        .output()
        .map_err(|source| ToolError::Start { tool: tool.to_owned(), source })?;
    if output.status.success() {
        return Ok(output);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let tail = complaint.trim().chars().rev().take(600).collect::<Vec<_>>().into_iter().rev().collect();
    Err(ToolError::Failed { tool: tool.to_owned(), status: output.status, complaint: tail })
}

/// 2020-01-01, the time of all files made here. Not 0: FAT cannot store a time before 1980.
const EPOCH: &str = "1577836800";

/// mke2fs lies in /sbin, which is not on the path of ordinary users.
fn path() -> String {
    let inherited = std::env::var("PATH").unwrap_or_default();
    format!("{inherited}:/usr/sbin:/sbin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_and_a_missing_tool_say_why() {
        let failed = run("sh", ["-c", "echo no room >&2; exit 3"]).unwrap_err().to_string();
        assert!(failed.contains("sh failed") && failed.contains("no room"), "{failed}");
        assert_eq!(hint("mcopy"), "; on Debian: apt-get install mtools");
        assert!(matches!(run("no-such-tool-anywhere", [""]), Err(ToolError::Start { .. })));
    }
}
