//! Tinkerbell: Hardware becomes Machine, Template becomes Template, and Workflow the command to provision.

mod action;
mod actions;
mod context;
mod go;
mod hardware;
mod mask;
mod template;
mod workflow;

use std::collections::BTreeMap;

use landfall_api::{DuplicateKeys, Problem, UserDataKind, YamlNode, YamlValue, yaml_trees};
use serde_json::{Value, json};

use self::{context::Context, hardware::Hardware, mask::Expressions, template::Template, workflow::Workflow};
use crate::fields::{Fields, is_null, items};
use crate::names::Unique;
use crate::report::Report;
use crate::{File, Import, content, names};

/// What the files have.
#[derive(Default)]
struct Found {
    expressions: Expressions,
    hardware: Vec<Hardware>,
    machines: Vec<Value>,
    templates: Vec<Template>,
    workflows: Vec<Workflow>,
}

/// Maps Tinkerbell's files: any number of Hardware, Template and Workflow documents, also as items of a list or of a `List`,
/// and files that hold the data of a Template alone.
///
/// # Errors
/// A [`Problem`] for each file that is not YAML, or whose Template has data that is not: with file, line and column.
pub fn tinkerbell(files: &[File<'_>]) -> Result<Import, Vec<Problem>> {
    let (mut found, mut report, mut problems) = (Found::default(), Report::default(), Vec::new());
    for file in files {
        report.in_file(file.name);
        if let Err(problem) = found.file(file, &mut report) {
            problems.push(*problem);
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut import = Import { documents: std::mem::take(&mut found.machines), ..Import::default() };
    let mut names = Unique::labels();
    for index in 0..found.templates.len() {
        if let Some(template) = found.templates.get_mut(index) {
            template.ours = names.give(template.ours.clone());
        }
        found.template(index, &mut import, &mut report);
    }
    for workflow in &found.workflows {
        if found.templates.iter().all(|template| template.name != workflow.template) {
            // Its template is imported another time, or is there already.
            let ours = names::label(&workflow.template, "template");
            let hardware = found.hardware_of(workflow);
            import.commands.push(workflow.command(&ours, hardware, &BTreeMap::new(), &mut report));
        }
    }
    let files: Vec<&str> = files.iter().map(|file| file.name).collect();
    Ok(report.into_import(&files, import))
}

impl Found {
    fn file(&mut self, file: &File<'_>, report: &mut Report) -> Result<(), Box<Problem>> {
        let masked = self.expressions.mask(file.name, file.text)?;
        // Data alone has its statements between the lines of YAML.
        let bare = masked.lines().any(|line| line.starts_with("tasks:"));
        let text = if bare { self.expressions.without_statements(&masked, 1, report) } else { masked };
        for document in yaml_trees(file.name, &text, DuplicateKeys::Refused)? {
            if let Some(documents) = items(&document) {
                for document in documents {
                    self.document(file.name, document, report)?;
                }
            } else {
                self.document(file.name, &document, report)?;
            }
        }
        Ok(())
    }

    fn document(&mut self, file: &str, document: &YamlNode, report: &mut Report) -> Result<(), Box<Problem>> {
        if is_null(document) {
            return Ok(());
        }
        let Some(mut fields) = Fields::of(document) else {
            report.todo(document.line, "this is no document; it is left out");
            return Ok(());
        };
        if fields.get("tasks").is_some_and(|tasks| items(tasks).is_some()) && !fields.has("kind") {
            let name = fields.text("name").map(|text| self.expressions.unmask(&text.text)).unwrap_or_default();
            self.templates.push(Template::bare(file, &name, document.clone()));
            return Ok(());
        }
        let text = |fields: &mut Fields<'_>, name: &str| fields.text(name).map(|text| text.text).unwrap_or_default();
        let (kind, api) = (text(&mut fields, "kind"), text(&mut fields, "apiVersion"));
        if kind == "List" {
            return fields.list("items").iter().try_for_each(|document| self.document(file, document, report));
        }
        let mut metadata = fields.map("metadata");
        let name = metadata.as_mut().map(|metadata| text(metadata, "name")).unwrap_or_default();
        let name = self.expressions.unmask(&name);
        if !api.starts_with("tinkerbell.org/") {
            report.todo(document.line, format!("{kind} {name} is no document of Tinkerbell; it is left out"));
            report.count(format!("document {kind}"), false);
            return Ok(());
        }
        if metadata.as_ref().is_some_and(|metadata| metadata.has("annotations")) {
            report.note(
                document.line,
                format!("the annotations of {kind} {name} are left out: documents have labels only"),
            );
        }
        match kind.as_str() {
            "Hardware" => {
                let mut hardware = Hardware::read(file, &name, document);
                let taken = self.hardware.iter().filter(|other| other.machine == hardware.machine).count();
                if taken > 0 {
                    report
                        .todo(document.line, format!("two machines would be called {}; rename one", hardware.machine));
                    hardware.machine = format!("{}-{}", hardware.machine, taken + 1);
                }
                let labels = metadata.map(|mut fields| hardware::labels(&mut fields, &self.expressions));
                let machine = hardware.machine(labels.unwrap_or_default(), &self.expressions, report);
                self.machines.push(machine);
                self.hardware.push(hardware);
            }
            "Template" => self.templates.extend(Template::read(file, &name, document, &self.expressions, report)?),
            "Workflow" => self.workflows.extend(Workflow::read(file, document, &self.expressions, report)),
            _ => {
                report.todo(document.line, format!("{kind} {name} has no counterpart; it is left out"));
                report.count(format!("document {kind}"), false);
            }
        }
        Ok(())
    }

    fn hardware_of(&self, workflow: &Workflow) -> Option<&Hardware> {
        self.hardware.iter().find(|hardware| hardware.name == workflow.hardware)
    }

    /// Adds a template, and the commands of its workflows.
    fn template(&self, index: usize, import: &mut Import, report: &mut Report) {
        let Some(template) = self.templates.get(index) else { return };
        let runs: Vec<&Workflow> = self.workflows.iter().filter(|run| run.template == template.name).collect();
        let mut machines: Vec<&Hardware> = runs.iter().filter_map(|run| self.hardware_of(run)).collect();
        machines.dedup_by_key(|hardware| &hardware.name);
        if machines.is_empty() && runs.is_empty() && self.hardware.len() == 1 {
            machines.extend(&self.hardware);
        }
        let hardware = machines.first().copied();
        let user_data = machines.iter().filter_map(|hardware| Some((*hardware, hardware.user_data()?)));
        let user_data: Vec<_> = user_data.collect();
        let cloud_init = match user_data.as_slice() {
            [(hardware, (text, node))] if machines.len() == 1 => {
                report.in_file(&hardware.file);
                self.cloud_init(text, node, report)
            }
            several => {
                for (hardware, (_, node)) in several {
                    report.in_file(&hardware.file);
                    let message = "the user-data differs by machine; write a cloudInit action with parameters";
                    report.todo(node.line, message);
                }
                None
            }
        };
        report.in_file(&template.file);
        let parameters = BTreeMap::new();
        let mut context = Context { expressions: &self.expressions, hardware, parameters, report };
        import.documents.push(template.template(cloud_init, &mut context));
        let parameters = context.parameters;
        for run in &runs {
            import.commands.push(run.command(&template.ours, self.hardware_of(run), &parameters, report));
        }
        if runs.is_empty() {
            report.in_file(&template.file);
            let values: String = parameters.keys().map(|name| format!(" -p {name}=VALUE")).collect();
            let machine = hardware.map_or("MACHINE", |hardware| hardware.machine.as_str());
            import.commands.push(format!("landfall provision {machine} --template {}{values}", template.ours));
            report.note(template.line(), "no Workflow runs this Template; complete the command to provision");
        }
    }

    /// A `cloudInit` of a machine's user-data, if cloud-init knows what it is.
    fn cloud_init(&self, text: &str, node: &YamlNode, report: &mut Report) -> Option<Value> {
        let text = self.expressions.unmask(text);
        let config = text.trim_start().starts_with("#cloud-config");
        let read = || yaml_trees("user-data", &text, DuplicateKeys::Refused).ok();
        let trees = config.then(read).flatten().unwrap_or_default();
        match trees.first() {
            Some(tree) if matches!(tree.value, YamlValue::Map(_)) => {
                report.note(node.line, "the user-data becomes the cloudInit action of the template");
                report.count("user-data", true);
                Some(json!({"userData": content::literal_tree(tree.to_value())}))
            }
            _ if UserDataKind::of(&text).is_some_and(|kind| kind != UserDataKind::CloudConfig) => {
                report.note(node.line, "the user-data becomes the cloudInit action of the template, as a text");
                report.count("user-data", true);
                Some(json!({"userData": content::literal(&text, false)}))
            }
            _ => {
                let message = "cloud-init knows no user-data like this; write it as a cloudInit action or an exec";
                report.todo(node.line, message);
                report.count("user-data", false);
                None
            }
        }
    }
}
