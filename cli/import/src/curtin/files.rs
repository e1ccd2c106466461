//! `write_files`, and the `cloudconfig` of MAAS: files in the installed system.

use landfall_api::{YamlNode, YamlValue};
use serde_json::json;

use super::list::List;
use crate::{content, fields::Fields, names, report::Report, todo};

/// Adds a `writeFile` for each.
pub(super) fn add(field: &str, config: &mut Fields<'_>, list: &mut List, report: &mut Report) {
    let found: Vec<(String, &YamlNode)> = match config.get(field).map(|node| &node.value) {
        Some(YamlValue::Map(fields)) => fields.iter().map(|field| (field.name.clone(), &field.node)).collect(),
        Some(YamlValue::List(items)) => items.iter().map(|item| ("file".to_owned(), item)).collect(),
        _ => Vec::new(),
    };
    for (name, node) in found {
        let Some(mut file) = Fields::of(node) else {
            report.todo(node.line, format!("{name} is no file: it has no path and no content; it is left out"));
            report.count(field, false);
            continue;
        };
        let path = file.text("path").map(|text| content::literal(&text.text, false));
        let path = path.unwrap_or_else(|| {
            report.todo(file.line, format!("{name} has no path; write where the file goes"));
            todo::value("path")
        });
        let path = if path.starts_with(['/', '{']) { path } else { format!("/{path}") };
        let text = file.text("content").map(|text| text.text).unwrap_or_default();
        let encoding = file.text("encoding").map(|text| text.text).unwrap_or_default();
        let text = match encoding.as_str() {
            "" | "text/plain" => Some(text),
            "b64" | "base64" => content::from_base64(&text),
            _ => None,
        };
        let text = text.map(|text| content::literal(&text, false)).unwrap_or_else(|| {
            let message = "the content is no text in base64; serve the file, and write url and digest";
            report.todo(file.line_of("content"), message);
            todo::value("content")
        });
        let mut spec = json!({"path": path, "content": text});
        if let (Some(stated), Some(fields)) = (file.text("permissions"), spec.as_object_mut()) {
            let mode = content::mode(&stated.text).unwrap_or_else(|| {
                report.todo(stated.line, format!("\"{}\" is not a mode; write octal digits", stated.text));
                todo::value("mode")
            });
            fields.insert("mode".to_owned(), mode.into());
        }
        if let (Some(stated), Some(fields)) = (file.text("owner"), spec.as_object_mut()) {
            let (owner, group) = stated.text.split_once(':').unwrap_or((&stated.text, ""));
            for (field, account) in [("owner", owner), ("group", group)] {
                if !matches!(account, "" | "root" | "-1") {
                    fields.insert(field.to_owned(), account.into());
                }
            }
        }
        file.finish(&name, report);
        let spec = list.on_target(spec);
        list.push(&names::label(&name, "file"), "writeFile", spec);
        report.count(field, true);
    }
}
