//! The program `ip` of iproute2.

use std::process::Command;

use crate::LabError;

/// Runs `ip` and returns what it printed.
pub(crate) fn ip(args: &[&str]) -> Result<String, LabError> {
    let output = Command::new("ip")
        .args(args)
        .output()
        .map_err(|source| LabError::Spawn { program: "ip (package iproute2)".into(), source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(LabError::Command {
        command: format!("ip {}", args.join(" ")),
        status: output.status.to_string(),
        stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
