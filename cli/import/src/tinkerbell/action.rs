//! One action of a Template, as its own file reads it, and the list that actions are put on.

use landfall_api::{DiskSelector, DurationSpec, StorageSpec, YamlNode};
use serde_json::{Map, Value, json};

use super::context::{Context, Device};
use crate::fields::{Fields, Text, text_of};
use crate::names::Unique;
use crate::{names, todo};

/// An action of a Template.
pub(super) struct Source<'n> {
    /// Its line.
    pub(super) line: u64,
    /// The last part of its image's name, such as `image2disk`.
    pub(super) image: String,
    /// Words of its command.
    pub(super) command: Vec<String>,
    /// The name for the list; a DNS label.
    pub(super) name: String,
    /// Seconds.
    timeout: Option<u64>,
    environment: Option<Fields<'n>>,
}

/// Settings of a program that have no meaning here: Landfall reports progress and tries again by itself.
const PROGRAMS_OWN: [&str; 7] = [
    "PROGRESS_INTERVAL_SECONDS", "TEXT_LOGGING", "JSON_OUTPUT", "LOG_LEVEL", "RETRY_ENABLED", "RETRY_DURATION_MINUTES",
    "HTTP_CLIENT_TIMEOUT_MINUTES",
];

impl<'n> Source<'n> {
    /// Reads an action; `None` if it is no mapping.
    pub(super) fn read(node: &'n YamlNode, list: &mut List, context: &mut Context<'_>) -> Option<Self> {
        let mut fields = Fields::of(node)?;
        let text = |context: &Context<'_>, text: Text| context.expressions.unmask(&text.text);
        let image = fields.text("image").map(|image| text(context, image)).unwrap_or_default();
        let name = fields.text("name").map(|name| text(context, name)).unwrap_or_default();
        let timeout = fields.text("timeout").and_then(|text| text.text.trim().parse().ok());
        let timeout = timeout.or_else(|| fields.text("timeoutSeconds")?.text.trim().parse().ok());
        let mut command = Vec::new();
        for field in ["command", "args"] {
            let words = fields.list(field).iter().filter_map(text_of);
            command.extend(words.map(|word| context.expressions.unmask(&word)));
        }
        let environment = if fields.has("environment") { fields.map("environment") } else { fields.map("env") };
        for field in ["volumes", "pid", "namespaces"] {
            // Containers need them; native actions do not.
            fields.get(field);
        }
        let what = "write an onFailure list in the template, or an action behind this one";
        fields.no_counterpart(&["on-timeout", "on-failure", "onTimeout", "onFailure"], what, context.report);
        fields.no_counterpart(&["if"], "write when: on the action", context.report);
        fields.no_counterpart(&["retries"], "write retry: { maxAttempts: … } on the action", context.report);
        let line = fields.line;
        fields.finish("the action", context.report);
        let name = list.names.give(names::label(&name, "action"));
        Some(Self { line, image: base_name(&image).to_owned(), command, name, timeout, environment })
    }

    /// A variable of its environment, masked.
    pub(super) fn env(&mut self, name: &str) -> Option<Text> {
        self.environment.as_mut()?.text(name).filter(|text| !text.text.is_empty())
    }

    /// A variable that must be there; a finding and a placeholder if it is not.
    pub(super) fn required(&mut self, name: &str, context: &mut Context<'_>) -> String {
        match self.env(name) {
            Some(text) => context.text(&text),
            None => {
                context.report.todo(self.line, format!("{name} is missing in the environment of {}", self.name));
                todo::value(name)
            }
        }
    }

    /// The device in a variable.
    pub(super) fn device(&mut self, name: &str, context: &mut Context<'_>) -> Option<Device> {
        let text = self.env(name)?;
        Some(context.device(&text))
    }

    /// Variables that are left out with a note.
    pub(super) fn not_needed(&mut self, names: &[&str], why: &str, context: &mut Context<'_>) {
        if let Some(environment) = &mut self.environment {
            environment.not_needed(names, why, context.report);
        }
    }

    /// Variables without a counterpart.
    pub(super) fn no_counterpart(&mut self, names: &[&str], what_to_do: &str, context: &mut Context<'_>) {
        if let Some(environment) = &mut self.environment {
            environment.no_counterpart(names, what_to_do, context.report);
        }
    }

    /// Variables that no code asked for.
    pub(super) fn rest(&mut self) -> Vec<(String, Text)> {
        let rest = self.environment.as_mut().map(Fields::rest).unwrap_or_default();
        let text = |line, node| Text { text: text_of(node).unwrap_or_default(), line };
        rest.into_iter().map(|field| (field.name.clone(), text(field.line, &field.node))).collect()
    }

    /// The action of this key with its fields, in the list's form; what was not read of the environment is reported.
    pub(super) fn done(mut self, key: &str, spec: Value, context: &mut Context<'_>) -> Value {
        self.not_needed(&PROGRAMS_OWN, "Landfall reports progress and tries again by itself", context);
        for (name, text) in self.rest() {
            let message = format!("the variable {name} of {} has no counterpart; check whether you need it", self.name);
            context.report.todo(text.line, message);
        }
        let mut item = Map::new();
        item.insert("name".to_owned(), self.name.into());
        if let Some(seconds) = self.timeout.filter(|seconds| (1..1 << 32).contains(seconds)) {
            item.insert("timeout".to_owned(), DurationSpec::from_secs(seconds).to_string().into());
        }
        item.insert(key.to_owned(), spec);
        Value::Object(item)
    }

    /// A placeholder for an action that has no counterpart.
    pub(super) fn without_counterpart(self, what_to_do: &str, context: &mut Context<'_>) -> Value {
        let Self { line, image, name, .. } = self;
        let what = if image.is_empty() { "an action without an image" } else { image.as_str() };
        context.report.todo(line, format!("{what} has no counterpart; {what_to_do}"));
        todo::action(&name, format!("{what} has no counterpart"))
    }
}

/// An image's name without registry, tag and digest.
pub(super) fn base_name(image: &str) -> &str {
    let name = image.rsplit('/').next().unwrap_or(image);
    name.split(['@', ':']).next().unwrap_or(name)
}

/// The actions so far, and what they did to the disks.
pub(super) struct List {
    pub(super) items: Vec<Value>,
    pub(super) names: Unique,
    /// Selectors of the disks that got an image, each once.
    written: Vec<Value>,
    /// The partition on which the first action worked that names one: that of the root file system.
    root: Option<u32>,
    /// rootio's layout, once it is on the list.
    divided: Option<Divided>,
}

/// What later actions need to know of a layout.
struct Divided {
    /// The selector of its first disk.
    disk: Value,
    /// Those of all its disks.
    disks: Vec<Value>,
    /// Whether the root stands on it.
    has_root: bool,
}

impl Default for List {
    fn default() -> Self {
        Self { items: Vec::new(), names: Unique::labels(), written: Vec::new(), root: None, divided: None }
    }
}

impl List {
    /// An image goes to this disk.
    pub(super) fn write(&mut self, selector: &Value) {
        if !self.written.contains(selector) {
            self.written.push(selector.clone());
        }
    }

    /// The layout goes to its disks.
    pub(super) fn divide(&mut self, layout: &StorageSpec) {
        let selectors = layout.disks.iter().flat_map(|disk| &disk.select);
        let disks: Vec<Value> = selectors.map(|DiskSelector(fields)| json!(fields)).collect();
        let disk = disks.first().cloned().unwrap_or_else(empty);
        self.divided = Some(Divided { disk, disks, has_root: layout.mounts_root() });
    }

    /// Whether a layout is on the list.
    pub(super) fn is_divided(&self) -> bool {
        self.divided.is_some()
    }

    /// The field `disk` of an action of Landfall's own on the installed system.
    pub(super) fn own_disk(&self) -> Option<Value> {
        match (self.written.as_slice(), &self.divided) {
            ([_], None) => None,
            ([], Some(layout)) if layout.has_root => None,
            ([first, ..], _) => Some(first.clone()),
            ([], Some(layout)) => Some(layout.disk.clone()),
            ([], None) => Some(empty()),
        }
    }

    /// Whether an action without a selector means this disk: the only one that was written, or one of the only layout.
    fn is_meant(&self, selector: &Value) -> bool {
        match (self.written.as_slice(), &self.divided) {
            ([only], None) => only == selector,
            ([], Some(layout)) => layout.has_root && layout.disks.contains(selector),
            _ => false,
        }
    }

    /// The field `disk` of an action on an installed system; `None` where the disk that was written is meant.
    pub(super) fn disk(&mut self, device: Option<&Device>, line: u64, context: &mut Context<'_>) -> Option<Value> {
        let device = device?;
        match (self.root, device.partition) {
            (None, Some(number)) => {
                self.root = Some(number);
                context.report.note(
                    line,
                    format!("partition {number} is not named: the action finds the root file system by its content"),
                );
            }
            (Some(root), Some(number)) if root != number => context.report.todo(
                line,
                format!(
                    "this action works on partition {number}, others on partition {root}, the root; write its mount \
                     point in front of the path, as the system's fstab has it"
                ),
            ),
            _ => {}
        }
        (!self.is_meant(&device.selector)).then(|| device.selector.clone())
    }
}

/// `spec` with one more field, where there is a value.
pub(super) fn with(mut spec: Value, name: &str, value: Option<impl Into<Value>>) -> Value {
    if let (Some(fields), Some(value)) = (spec.as_object_mut(), value) {
        fields.insert(name.to_owned(), value.into());
    }
    spec
}

/// An empty mapping.
pub(super) fn empty() -> Value {
    json!({})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_known_by_its_name_alone() {
        for image in [
            "image2disk", "quay.io/tinkerbell/actions/image2disk:latest", "h:5000/a/image2disk@sha256:00",
            "x/image2disk:v1@sha256:0",
        ] {
            assert_eq!(base_name(image), "image2disk", "{image}");
        }
    }
}
