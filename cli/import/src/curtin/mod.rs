//! curtin: its configuration becomes a Template.

mod commands;
mod files;
mod first_boot;
mod list;
mod packages;
mod power;
mod sources;
mod storage;

use landfall_api::{DuplicateKeys, Problem, YamlNode, YamlValue, yaml_trees};
use serde_json::{Map, Value, json};

use self::list::List;
use crate::fields::{Fields, is_null};
use crate::report::Report;
use crate::{File, Import, bootloader, names};

/// What concerns curtin itself, and no installed system.
const OWN: [&str; 9] =
    ["showtrace", "verbosity", "install", "reporting", "stages", "bucket", "proxy", "http_proxy", "curthooks"];
/// Commands of stages that have a counterpart of their own, if they are curtin's usual ones.
const STAGES: [&str; 4] = ["network_commands", "extract_commands", "curthooks_commands", "hook_commands"];

/// Maps one file of curtin's configuration. Several documents of a file are one configuration after another, and make a
/// template each.
///
/// # Errors
/// A [`Problem`] with file, line and column: the file is not YAML.
pub fn curtin(file: &File<'_>) -> Result<Import, Vec<Problem>> {
    let documents = yaml_trees(file.name, file.text, DuplicateKeys::Kept).map_err(|problem| vec![*problem])?;
    let (mut report, mut import) = (Report::default(), Import::default());
    report.in_file(file.name);
    documents.iter().for_each(|document| duplicates(document, &mut report));
    let stem = file.name.rsplit('/').next().unwrap_or_default().split('.').next().unwrap_or_default();
    let mut names = names::Unique::labels();
    for document in documents.iter().filter(|document| !is_null(document)) {
        let Some(config) = Fields::of(document) else {
            report.todo(document.line, "this is no configuration of curtin; it is left out");
            continue;
        };
        report.count("configuration", true);
        let name = names.give(names::label(stem, "curtin"));
        match template(config, &name, &mut report) {
            Some(template) => {
                import.documents.push(template);
                import.commands.push(format!("landfall provision MACHINE --template {name}"));
            }
            None => report.note(document.line, "nothing here makes an action; there is no template"),
        }
    }
    Ok(report.into_import(&[file.name], import))
}

/// Names keys that stand twice. curtin takes the last, and so does [`Fields`].
fn duplicates(node: &YamlNode, report: &mut Report) {
    match &node.value {
        YamlValue::Scalar { .. } => {}
        YamlValue::List(items) => items.iter().for_each(|item| duplicates(item, report)),
        YamlValue::Map(fields) => {
            for (index, field) in fields.iter().enumerate() {
                let mut later = fields.iter().skip(index + 1);
                if let Some(last) = later.rfind(|later| later.name == field.name) {
                    let message =
                        format!("{} stands twice; that of line {} is taken, as curtin does", field.name, last.line);
                    report.note(field.line, message);
                }
                duplicates(&field.node, report);
            }
        }
    }
}

fn template(mut config: Fields<'_>, name: &str, report: &mut Report) -> Option<Value> {
    let mut list = List::default();
    let own = config.line;
    config.not_needed(&OWN, "it concerns curtin itself", report);
    let installs = config.has("storage") || config.has("sources") || config.has("partitioning_commands");
    commands::stage("early_commands", &mut config, &mut list, report);
    if installs {
        disks(&mut config, &mut list, report);
    }
    for stage in STAGES {
        commands::stage(stage, &mut config, &mut list, report);
    }
    for field in ["write_files", "cloudconfig"] {
        files::add(field, &mut config, &mut list, report);
    }
    packages::add(&mut config, &mut list, report);
    boot(&mut config, installs.then_some(own), &mut list, report);
    first_boot::add(&mut config, &mut list, report);
    commands::stage("late_commands", &mut config, &mut list, report);
    let ends = power::add(&mut config, &mut list, report);
    // A key that nothing reads is often a place for a YAML anchor.
    for field in config.rest() {
        if field.name.starts_with(['_', '-']) || field.name.starts_with("placeholder") {
            continue;
        }
        report.todo(field.line, format!("{} has no counterpart; check whether you need it", field.name));
        report.count(format!("key {}", field.name), false);
    }
    if list.items.is_empty() {
        return None;
    }
    let mut spec = Map::new();
    if installs {
        if !ends {
            list.push("reboot", "reboot", json!({}));
            report.note(own, "the list ends with a reboot, which curtin leaves to its caller");
        }
    } else {
        spec.insert("fragment".to_owned(), true.into());
        report.note(own, "no storage and no sources: the template is a fragment, for include");
    }
    spec.insert("actions".to_owned(), Value::Array(list.items));
    Some(json!({"apiVersion": landfall_api::API_VERSION, "kind": "Template", "metadata": {"name": name}, "spec": spec}))
}

/// Partitions, and what is put on them.
fn disks(config: &mut Fields<'_>, list: &mut List, report: &mut Report) {
    let layout = config.get("storage").and_then(|node| storage::read(node, report));
    let simple = commands::partitioning(config, list, report);
    let sources = sources::read(config, report);
    if sources.iter().any(|source| source.is_image) {
        let disk = layout.as_ref().map(|layout| layout.disk.clone()).or(simple).unwrap_or_else(|| json!({}));
        if layout.as_ref().is_some_and(|layout| layout.is_divided) {
            let message = "an image brings its own partitions; those of the storage section are left out";
            report.todo(config.line_of("storage"), message);
        }
        for source in sources {
            list.push("image", "writeImage", json!({"disk": disk, "image": source.fields}));
        }
        return;
    }
    let (spec, disk) = match layout.filter(|layout| layout.is_divided) {
        Some(layout) => (layout.spec, (!layout.has_root).then_some(layout.disk)),
        None => {
            let message = "curtin divides the disk by its own rules; here it gets an EFI system partition, one for a BIOS \
                and a root";
            report.note(config.line, message);
            let disk = simple.unwrap_or_else(|| json!({}));
            let partitions = json!([{"role": "esp"}, {"role": "biosBoot"}, {"role": "root"}]);
            (json!({"disks": [{"select": [disk], "partitions": partitions}]}), None)
        }
    };
    list.divided(disk);
    list.push("disks", "storage", spec);
    for source in sources {
        let fields = list.on_target(source.fields);
        list.push("root", "unpack", fields);
    }
}

/// GRUB, which curtin installs after every root file system, and what is set for it.
fn boot(config: &mut Fields<'_>, installs: Option<u64>, list: &mut List, report: &mut Report) {
    let mut stated = None;
    for name in ["grub", "boot"] {
        let line = config.line_of(name);
        let Some(mut boot) = config.map(name) else { continue };
        stated = Some(line);
        boot.not_needed(&["install_devices", "bootloaders"], "the disks of the list are taken", report);
        let order = "the agent puts the installed disk right behind the network in the firmware's boot order";
        boot.not_needed(
            &["update_nvram", "reorder_uefi", "reorder_uefi_force_fallback", "remove_duplicate_entries"],
            order,
            report,
        );
        let file = "set it with a writeFile of /etc/default/grub.d/local.cfg and an exec of update-grub";
        boot.no_counterpart(&["replace_linux_default", "terminal", "probe_additional_os"], file, report);
        boot.finish(name, report);
    }
    let needed = installs.filter(|_| list.has_root());
    if stated.or(needed).is_some() && list.has_root() {
        let fields = list.on_target(bootloader::grub());
        list.push("bootloader", "installBootloader", fields);
        report.count("boot loader", true);
    }
}
