//! The values of a template: what its expressions become, and the parameters that follow from them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::go;
use super::go::Go;
use super::hardware::Hardware;
use super::mask::{Expressions, Piece, without_gone};
use crate::{content::literal, device, fields::Text, names::identifier, report::Report, todo};

/// Where the value of a parameter comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    /// The Workflow's `hardwareMap`.
    HardwareMap(String),
    /// A field of the Hardware.
    Field(Vec<String>),
    /// One of the Hardware's disks; what a selector asks for is stated.
    Disk(Vec<String>),
}

/// A disk, or a partition of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Device {
    /// The disk's selector.
    pub(super) selector: Value,
    /// The partition's number.
    pub(super) partition: Option<u32>,
}

/// What rendering needs.
pub(super) struct Context<'a> {
    pub(super) expressions: &'a Expressions,
    /// The Hardware that the template is for, as far as the files tell.
    pub(super) hardware: Option<&'a Hardware>,
    /// The parameters found so far.
    pub(super) parameters: BTreeMap<String, Origin>,
    pub(super) report: &'a mut Report,
}

impl Context<'_> {
    /// A text for a document.
    pub(super) fn text(&mut self, text: &Text) -> String {
        self.with(text, &|_| None)
    }

    /// A text for a script on this device: the agent tells the script where it runs.
    pub(super) fn script(&mut self, text: &Text, on: Option<&Device>) -> String {
        let own = |device: &Device| {
            let on = on.filter(|on| on.selector == device.selector)?;
            match device.partition {
                None => Some("$LANDFALL_DISK"),
                Some(_) if device.partition == on.partition => Some("$LANDFALL_ROOT_DEVICE"),
                Some(_) => None,
            }
        };
        self.with(text, &own)
    }

    fn with(&mut self, text: &Text, own: &dyn Fn(&Device) -> Option<&'static str>) -> String {
        let expressions = self.expressions;
        let kept = without_gone(&text.text);
        let pieces = expressions.pieces(&kept);
        let mut out = String::new();
        for (index, piece) in pieces.iter().enumerate() {
            match piece {
                Piece::Plain(plain) => {
                    let before = matches!(pieces.get(index + 1), Some(Piece::Expression(_)));
                    out.push_str(&literal(plain, before));
                }
                Piece::Expression(source) => {
                    let found = go::parse(source);
                    let device = found.as_ref().and_then(|go| self.disk_of(go));
                    match device.as_ref().and_then(own) {
                        Some(variable) => out.push_str(variable),
                        None => out.push_str(&self.value(source, found, text.line)),
                    }
                }
            }
        }
        out
    }

    /// A disk or a partition.
    pub(super) fn device(&mut self, text: &Text) -> Device {
        let kept = text.text.trim();
        let pieces = self.expressions.pieces(kept);
        if let [Piece::Expression(source)] = pieces.as_slice()
            && let Some(device) = go::parse(source).and_then(|go| self.disk_of(&go))
        {
            return device;
        }
        // `{{ index .Hardware.Disks 0 }}1` and `…p1`.
        if let [Piece::Expression(source), Piece::Plain(rest)] = pieces.as_slice()
            && let Ok(number) = rest.trim_start_matches("-part").trim_start_matches('p').parse()
            && let Some(device) = go::parse(source).and_then(|go| self.disk_of(&go))
            && device.partition.is_none()
        {
            return Device { partition: Some(number), ..device };
        }
        let written = self.expressions.unmask(kept);
        if device::is_path(&written) {
            let (disk, partition) = device::split(&written);
            let (selector, known) = device::selector(&disk);
            if let Some(known) = known {
                self.report.note(text.line, format!("{disk}: {known}"));
            }
            return Device { selector, partition };
        }
        let message = format!("\"{written}\" names no disk here; write a selector such as disk: {{ serial: … }}");
        self.report.todo(text.line, message);
        Device { selector: json!({"serial": todo::value("serial")}), partition: None }
    }

    /// The disk that an expression names; a parameter is declared for it.
    fn disk_of(&mut self, go: &Go) -> Option<Device> {
        let (path, partition) = match go {
            Go::Path(path) => (path, None),
            Go::Partition(path, number) => (path, Some(*number)),
        };
        let [_, disks, number, ..] = path.as_slice() else { return None };
        if !is_hardware(path) || !disks.eq_ignore_ascii_case("disks") {
            return None;
        }
        let number: usize = number.parse().ok()?;
        let name = format!("disk_{}", number.checked_add(1)?);
        let stated = self.hardware.and_then(|hardware| hardware.value(path));
        let selector = device::selector(&stated.unwrap_or_else(|| "/dev/sda".to_owned())).0;
        let field = selector.as_object().and_then(|fields| fields.keys().next().cloned()).unwrap_or_default();
        self.parameters.insert(name.clone(), Origin::Disk(path.clone()));
        Some(Device { selector: json!({field: format!("{{{{ params.{name} }}}}")}), partition })
    }

    /// What an expression becomes.
    fn value(&mut self, source: &str, found: Option<Go>, line: u64) -> String {
        let Some(go) = found else {
            let message = format!("\"{{{{ {source} }}}}\" has no counterpart; write the value that it stands for");
            self.report.todo(line, message);
            return todo::value(&format!("line_{line}"));
        };
        if let Some(device) = self.disk_of(&go) {
            let parameter = device.selector.get("name").and_then(Value::as_str);
            if let (Some(name), None) = (parameter, device.partition) {
                return format!("/dev/{name}");
            }
            let message = format!(
                "\"{{{{ {source} }}}}\" has no counterpart here; in a script of exec $LANDFALL_DISK and \
                 $LANDFALL_ROOT_DEVICE are the disk and the root"
            );
            self.report.todo(line, message);
            return todo::value(&format!("line_{line}"));
        }
        let Go::Path(path) = go else { return todo::value(&format!("line_{line}")) };
        if let [name] = path.as_slice() {
            return self.parameter(identifier(name), Origin::HardwareMap(name.clone()));
        }
        if is_hardware(&path) && ends_with(&path, &["interfaces", "0", "dhcp", "mac"]) {
            return "{{ machine.macs[0] }}".to_owned();
        }
        if !is_hardware(&path) {
            let message = format!("\"{{{{ {source} }}}}\" refers to another object; state the parameter's value");
            self.report.todo(line, message);
        }
        let names = if is_hardware(&path) { path.get(1..).unwrap_or_default() } else { path.as_slice() };
        self.parameter(identifier(&names.join("_")), Origin::Field(path.clone()))
    }

    fn parameter(&mut self, name: String, origin: Origin) -> String {
        let expression = format!("{{{{ params.{name} }}}}");
        self.parameters.insert(name, origin);
        expression
    }

    /// The declarations for the document.
    pub(super) fn declarations(&self) -> Map<String, Value> {
        let about = |origin: &Origin| match origin {
            Origin::HardwareMap(name) => format!("hardwareMap.{name} of the Workflow"),
            Origin::Field(path) => format!("{} of the Hardware", path.join(".")),
            Origin::Disk(path) => format!("the disk {} of the Hardware", path.join(".")),
        };
        let declared =
            |(name, origin): (&String, &Origin)| (name.clone(), json!({"type": "text", "description": about(origin)}));
        self.parameters.iter().map(declared).collect()
    }
}

fn is_hardware(path: &[String]) -> bool {
    path.first().is_some_and(|first| first.eq_ignore_ascii_case("hardware"))
}

fn ends_with(path: &[String], names: &[&str]) -> bool {
    path.len() >= names.len() && path.iter().rev().zip(names.iter().rev()).all(|(a, b)| a.eq_ignore_ascii_case(b))
}
