//! Files of other installers as documents of Landfall: Tinkerbell's Hardware, Template and Workflow, and curtin's
//! configuration; and tables of machines with their BMCs.
//!
//! Pure: text in, documents and findings out. Nothing is left out silently: a field that no code reads becomes a finding
//! (`fields`), and where Landfall needs what the file does not say, the document gets a placeholder (`todo`) which
//! `landfall template validate` refuses.

mod bmc;
mod bootloader;
mod content;
mod curtin;
mod device;
mod fields;
mod names;
mod report;
mod tinkerbell;
mod todo;
mod yaml;

pub use bmc::{CsvFile, MAX_CSV_BYTES, bmc};
pub use curtin::curtin;
pub use report::{Finding, Level, Tally};
pub use tinkerbell::tinkerbell;

use serde_json::Value;

/// A file's name, for findings, and its text.
#[derive(Debug, Clone, Copy)]
pub struct File<'a> {
    /// As it is shown.
    pub name: &'a str,
    /// The whole content.
    pub text: &'a str,
}

/// What became of the files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Import {
    /// Machines and templates.
    pub documents: Vec<Value>,
    /// What a person must know, in the order of files and lines.
    pub findings: Vec<Finding>,
    /// The commands that start what the files asked for.
    pub commands: Vec<String>,
    /// How many of each kind there were, and how many have a counterpart; by name.
    pub tally: Vec<Tally>,
}

impl Import {
    /// Whether everything has a counterpart: only notes were found.
    pub fn is_complete(&self) -> bool {
        self.findings.iter().all(|finding| finding.level == Level::Note)
    }

    /// The documents as one file of YAML.
    pub fn to_yaml(&self) -> String {
        let texts: Vec<String> = self.documents.iter().map(yaml::text).collect();
        texts.join("---\n")
    }

    /// Each document as a file of its own: a name such as `machine-node-1.yaml`, and the text.
    pub fn to_files(&self) -> Vec<(String, String)> {
        let named = |document: &Value| {
            let at = |pointer: &str| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            format!("{}-{}.yaml", at("/kind").to_lowercase(), at("/metadata/name"))
        };
        self.documents.iter().map(|document| (named(document), yaml::text(document))).collect()
    }
}
