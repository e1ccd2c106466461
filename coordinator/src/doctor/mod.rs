//! `landfall-coordinator doctor`: checks everything that a coordinator needs from its host, and reports what to do
//! about each fault. It changes nothing, and works with or without a running coordinator.
//!
//! Each check is a file; each finding states the check, its level, the result, and what to do.

mod certificates;
mod clock;
mod database;
mod disk;
mod modes;
mod network;
mod ports;
mod running;

use std::{fmt::Write as _, path::Path};

use serde_json::json;

use crate::config::Config;
use crate::finding::{Finding, Level, worst};
use running::Running;

/// Whether others may read what is below the data directory. Also looked at whenever a coordinator starts.
pub fn data_dir_modes(config: &Config) -> Finding {
    modes::private(&config.data_dir)
}

/// Runs all checks. Without a valid configuration only that is reported.
pub async fn examine(path: &Path) -> Vec<Finding> {
    let config = match Config::load(path) {
        Ok(config) => config,
        Err(error) => {
            let hint = "docs/coordinator.toml lists every key; use another file with --config";
            return vec![Finding::fail("configuration", with_causes(&error), hint)];
        }
    };
    let mut findings = vec![Finding::ok("configuration", format!("{} is right", path.display()))];
    if let Err(error) = config.check_files() {
        findings.push(Finding::fail("files", with_causes(&error), "correct the path, or create the file"));
    }
    let running = Running::find(&config);
    findings.push(running.finding());
    findings.extend(ports::check(&config, &running).await);
    findings.extend(network::check(&config, &running).await);
    findings.extend(disk::check(&config.data_dir));
    findings.extend(database::check(&config).await);
    findings.extend(clock::check(&config.data_dir).await);
    findings.extend(certificates::check(&config, &running).await);
    findings.extend(modes::check(path, &config));
    findings.extend(manifests(&config));
    findings
}

fn manifests(config: &Config) -> Option<Finding> {
    let directory = config.manifests.directory.as_ref()?;
    let scan = crate::manifest_dir::scan(directory);
    let faults: Vec<_> =
        scan.problem.iter().chain(scan.files.iter().filter_map(|(_, read)| read.as_ref().err()).flatten()).collect();
    Some(match faults.first() {
        None => Finding::ok("manifests", format!("{} files in {}", scan.files.len(), directory.display())),
        Some(first) => {
            Finding::warn("manifests", format!("{} faults, the first: {first}", faults.len()), "correct them")
        }
    })
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        // Writing to a String does not fail.
        write!(text, ": {cause}").unwrap_or_default();
        next = cause.source();
    }
    text
}

/// Whether nothing failed.
pub fn well(findings: &[Finding]) -> bool {
    worst(findings) < Level::Fail
}

/// For people: one finding a line, what to do below it.
pub fn text(findings: &[Finding]) -> String {
    let mut out = String::new();
    for Finding { check, level, message, hint } in findings {
        writeln!(out, "{level:<5} {check:<22} {message}").unwrap_or_default();
        if !hint.is_empty() {
            writeln!(out, "{:<28} -> {hint}", "").unwrap_or_default();
        }
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    writeln!(out, "{} ok, {} warnings, {} failed", count(Level::Ok), count(Level::Warn), count(Level::Fail))
        .unwrap_or_default();
    out
}

/// For programs.
pub fn json(findings: &[Finding]) -> String {
    json!({ "status": worst(findings), "checks": findings }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_invalid_configuration_is_reported_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.toml");
        assert!(!well(&examine(&path).await));
        std::fs::write(&path, "data_dir = \"/x\"\nadvertize = \"1.2.3.4\"\n").unwrap();
        let findings = examine(&path).await;
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("c.toml:2: there is no key \"advertize\""), "{findings:?}");
    }

    #[test]
    fn both_output_forms_contain_every_finding() {
        let findings = [Finding::ok("a", "fine"), Finding::warn("b", "hm", "mind it")];
        assert!(well(&findings));
        assert!(text(&findings).contains("-> mind it") && text(&findings).ends_with("1 ok, 1 warnings, 0 failed\n"));
        assert!(!well(&[Finding::fail("c", "broken", "")]));
        let json: serde_json::Value = serde_json::from_str(&json(&findings)).unwrap();
        assert_eq!((&json["status"], &json["checks"][1]["hint"]), (&"warn".into(), &"mind it".into()));
    }
}
