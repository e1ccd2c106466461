//! What was found in the files: findings with their places, and how much has a counterpart.

use std::{collections::BTreeMap, fmt};

use crate::Import;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Everything was mapped; worth to know.
    Note,
    /// Something has no counterpart, loses meaning, or needs a value that the file does not have.
    Todo,
}

/// Something in a file that a person must know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file, as it was named.
    pub file: String,
    /// Its line, from 1.
    pub line: u64,
    /// How much it matters.
    pub level: Level,
    /// What is so; what to do.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, level, message } = self;
        let note = if *level == Level::Note { "note: " } else { "" };
        write!(f, "{file}:{line}: {note}{message}")
    }
}

/// How many of one kind there were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// Such as `action image2disk` or `storage disk`.
    pub kind: String,
    /// In the files.
    pub found: usize,
    /// With a counterpart among the documents.
    pub mapped: usize,
}

/// Collects findings while files are read.
#[derive(Debug, Default)]
pub(crate) struct Report {
    file: String,
    findings: Vec<Finding>,
    tally: BTreeMap<String, (usize, usize)>,
}

impl Report {
    /// What follows is found in this file.
    pub(crate) fn in_file(&mut self, file: &str) {
        file.clone_into(&mut self.file);
    }

    /// The file that is read.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    fn say(&mut self, line: u64, level: Level, message: String) {
        let finding = Finding { file: self.file.clone(), line, level, message };
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// All was mapped; worth to know.
    pub(crate) fn note(&mut self, line: u64, message: impl Into<String>) {
        self.say(line, Level::Note, message.into());
    }

    /// A person must do something.
    pub(crate) fn todo(&mut self, line: u64, message: impl Into<String>) {
        self.say(line, Level::Todo, message.into());
    }

    /// Counts one of a kind.
    pub(crate) fn count(&mut self, kind: impl Into<String>, mapped: bool) {
        let (found, with) = self.tally.entry(kind.into()).or_default();
        *found += 1;
        *with += usize::from(mapped);
    }

    /// Adds what was found to an import. Files keep their order, and lines within them.
    pub(crate) fn into_import(mut self, files: &[&str], mut import: Import) -> Import {
        let place = |finding: &Finding| (files.iter().position(|file| *file == finding.file), finding.line);
        self.findings.sort_by_key(place);
        import.findings = notes_joined(self.findings);
        let tally = |(kind, (found, mapped))| Tally { kind, found, mapped };
        import.tally = self.tally.into_iter().map(tally).collect();
        import
    }
}

/// A note that says the same of several lines of a file stands once, at the first of them.
fn notes_joined(findings: Vec<Finding>) -> Vec<Finding> {
    let mut out: Vec<(Finding, Vec<u64>)> = Vec::new();
    for finding in findings {
        let same = |first: &Finding| first.file == finding.file && first.message == finding.message;
        match out.iter_mut().find(|(first, _)| finding.level == Level::Note && same(first)) {
            Some((_, lines)) => lines.push(finding.line),
            None => out.push((finding, Vec::new())),
        }
    }
    let joined = |(mut finding, lines): (Finding, Vec<u64>)| {
        if !lines.is_empty() {
            let lines: Vec<String> = lines.iter().map(u64::to_string).collect();
            finding.message.push_str(&format!(" (also line {})", lines.join(", ")));
        }
        finding
    };
    out.into_iter().map(joined).collect()
}
