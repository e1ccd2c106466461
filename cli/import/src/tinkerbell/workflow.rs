//! Workflow: the command that starts the same.

use std::collections::BTreeMap;

use landfall_api::{YamlNode, YamlValue};

use super::{context::Origin, hardware::Hardware, mask::Expressions};
use crate::fields::{Fields, text_of};
use crate::report::Report;
use crate::{device, names};

/// One Workflow document.
#[derive(Debug)]
pub(super) struct Workflow {
    pub(super) file: String,
    line: u64,
    /// The Template's name.
    pub(super) template: String,
    /// The Hardware's name; empty if none is stated.
    pub(super) hardware: String,
    hardware_map: BTreeMap<String, String>,
}

impl Workflow {
    /// Reads a document of that kind.
    pub(super) fn read(
        file: &str, document: &YamlNode, expressions: &Expressions, report: &mut Report,
    ) -> Option<Self> {
        let mut spec = Fields::of(document)?.map("spec")?;
        let mut text = |name: &str| spec.text(name).map(|text| expressions.unmask(&text.text)).unwrap_or_default();
        let (template, hardware) = (text("templateRef"), text("hardwareRef"));
        let mut hardware_map = BTreeMap::new();
        if let Some(YamlValue::Map(fields)) = spec.get("hardwareMap").map(|node| &node.value) {
            let value = |node: &YamlNode| text_of(node).map(|text| expressions.unmask(&text));
            hardware_map.extend(fields.iter().filter_map(|field| Some((field.name.clone(), value(&field.node)?))));
        }
        spec.not_needed(&["bootOptions"], "Landfall decides what a machine boots", report);
        spec.no_counterpart(&["disabled"], "a workflow begins when it is requested; do not run the command", report);
        spec.finish("the Workflow", report);
        report.count("document Workflow", true);
        if template.is_empty() {
            report.todo(document.line, "the Workflow names no templateRef; it makes no command");
            return None;
        }
        Some(Self { file: file.to_owned(), line: document.line, template, hardware, hardware_map })
    }

    /// The command; `ours`: the template's name, and its parameters.
    pub(super) fn command(
        &self, ours: &str, hardware: Option<&Hardware>, parameters: &BTreeMap<String, Origin>, report: &mut Report,
    ) -> String {
        report.in_file(&self.file);
        let machine = match (hardware, self.hardware.as_str()) {
            (Some(hardware), _) => hardware.machine.clone(),
            (None, "") => {
                let message = "the Workflow names no hardwareRef; write the machine's name into the command";
                report.todo(self.line, message);
                "MACHINE".to_owned()
            }
            (None, name) => names::label(name, "machine"),
        };
        let mut command = format!("landfall provision {machine} --template {ours}");
        for (name, origin) in parameters {
            let value = match origin {
                Origin::HardwareMap(key) => self.hardware_map.get(key).cloned(),
                Origin::Field(path) => hardware.and_then(|hardware| hardware.value(path)),
                Origin::Disk(path) => hardware.and_then(|hardware| disk(&hardware.value(path)?)),
            };
            let value = value.unwrap_or_else(|| {
                let message = format!("no file states the value of the parameter {name}; write it into the command");
                report.todo(self.line, message);
                "VALUE".to_owned()
            });
            command.push_str(&format!(" -p {}", quoted(&format!("{name}={value}"))));
        }
        command
    }
}

/// What a selector asks for.
fn disk(path: &str) -> Option<String> {
    if !device::is_path(path) {
        return None;
    }
    let selector = device::selector(path).0;
    selector.as_object()?.values().next()?.as_str().map(str::to_owned)
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@+".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}
