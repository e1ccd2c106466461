//! Template: tasks of actions become one list.

use landfall_api::{DurationSpec, Problem, YamlNode};
use serde_json::{Map, Value, json};

use super::action::{List, Source, with};
use super::actions;
use super::context::Context;
use super::mask::Expressions;
use crate::fields::{Fields, text_of};
use crate::report::Report;
use crate::{names, todo, yaml};

/// One Template document.
#[derive(Debug)]
pub(super) struct Template {
    pub(super) file: String,
    /// As Workflows name it.
    pub(super) name: String,
    /// The name of our template.
    pub(super) ours: String,
    /// The tasks and what stands around them.
    data: YamlNode,
}

impl Template {
    /// Reads a document of that kind; its data is YAML inside of YAML.
    ///
    /// # Errors
    /// The data is not YAML.
    pub(super) fn read(
        file: &str, name: &str, document: &YamlNode, expressions: &Expressions, report: &mut Report,
    ) -> Result<Option<Self>, Box<Problem>> {
        let Some(mut spec) = Fields::of(document).and_then(|mut fields| fields.map("spec")) else {
            report.todo(document.line, "the Template has no spec; it makes no template");
            return Ok(None);
        };
        let Some(node) = spec.get("data") else {
            report.todo(spec.line, "the Template has no data; it makes no template");
            return Ok(None);
        };
        spec.finish("the Template", report);
        let text = text_of(node).unwrap_or_default();
        let text = expressions.without_statements(&text, node.line, report);
        let data = yaml::embedded(file, node, &text)?;
        Ok(data.into_iter().next().map(|data| Self::bare(file, name, data)))
    }

    /// Of a file that has the data alone.
    pub(super) fn bare(file: &str, name: &str, data: YamlNode) -> Self {
        Self { file: file.to_owned(), name: name.to_owned(), ours: names::label(name, "template"), data }
    }

    /// The line of the data.
    pub(super) fn line(&self) -> u64 {
        self.data.line
    }

    /// The document of the template. A `cloud_init` stands before the action that ends the list.
    pub(super) fn template(&self, cloud_init: Option<Value>, context: &mut Context<'_>) -> Value {
        let mut list = List::default();
        let mut timeout = None;
        if let Some(mut data) = Fields::of(&self.data) {
            timeout = data.text("global_timeout").and_then(|text| text.text.trim().parse().ok());
            for read in ["version", "name", "id"] {
                data.get(read);
            }
            self.tasks(data.list("tasks"), &mut list, context);
            data.finish("the Template", context.report);
        } else {
            context.report.todo(self.data.line, "the Template's data is no mapping; it makes no actions");
        }
        if let Some(spec) = cloud_init {
            let restarts = |item: &Value| ["reboot", "kexec", "powerOff"].iter().any(|key| item.get(key).is_some());
            let at = list.items.iter().position(restarts).unwrap_or(list.items.len());
            let name = list.names.give("cloud-init".to_owned());
            let spec = with(spec, "disk", list.own_disk());
            list.items.insert(at, json!({"name": name, "cloudInit": spec}));
        }
        context.report.count("document Template", true);
        let mut spec = Map::new();
        let declared = context.declarations();
        if !declared.is_empty() {
            spec.insert("parameters".to_owned(), Value::Object(declared));
        }
        if let Some(seconds) = timeout.filter(|seconds| (1..1 << 32).contains(seconds)) {
            spec.insert("timeout".to_owned(), DurationSpec::from_secs(seconds).to_string().into());
        }
        spec.insert("actions".to_owned(), Value::Array(list.items));
        json!({"apiVersion": landfall_api::API_VERSION, "kind": "Template", "metadata": {"name": self.ours}, "spec": spec})
    }

    fn tasks(&self, tasks: &[YamlNode], list: &mut List, context: &mut Context<'_>) {
        let mut first = None;
        for node in tasks {
            let Some(mut task) = Fields::of(node) else { continue };
            let worker = task.text("worker").map(|text| context.expressions.unmask(&text.text)).unwrap_or_default();
            if first.get_or_insert_with(|| worker.clone()) != &worker {
                let message = format!(
                    "this task is for another machine ({worker}), and a workflow has one; move its actions to a template \
                     of their own"
                );
                context.report.todo(task.line, message);
                let name = list.names.give("another-machine".to_owned());
                list.items.push(todo::action(&name, "what follows is for another machine"));
            }
            for read in ["name", "volumes"] {
                task.get(read);
            }
            task.no_counterpart(&["environment"], "write the variables into each exec's env", context.report);
            for action in task.list("actions") {
                match Source::read(action, list, context) {
                    Some(source) => actions::add(source, list, context),
                    None => context.report.todo(action.line, "this is no action; write a mapping"),
                }
            }
            task.finish("the task", context.report);
        }
    }
}
