//! `sources`: what the system is made of.

use landfall_api::{ImageUrl, YamlNode, YamlValue};
use serde_json::{Value, json};

use crate::content::literal;
use crate::fields::{Fields, text_of};
use crate::report::Report;
use crate::todo;

/// One source.
pub(super) struct Source {
    /// Whether it is the image of a disk, and no archive.
    pub(super) is_image: bool,
    /// The fields of the image or of the `unpack`.
    pub(super) fields: Value,
}

/// Reads the section; without one a placeholder.
pub(super) fn read(config: &mut Fields<'_>, report: &mut Report) -> Vec<Source> {
    let line = config.line_of("sources");
    let mut out = Vec::new();
    match config.get("sources").map(|node| (&node.value, node)) {
        Some((YamlValue::List(items), _)) => {
            for item in items {
                match &item.value {
                    // `- dd-img: https://…`
                    YamlValue::Map(fields) if fields.len() == 1 => {
                        for field in fields {
                            out.push(one(&field.name, &field.node, field.line, report));
                        }
                    }
                    _ => out.push(one("", item, item.line, report)),
                }
            }
        }
        Some((YamlValue::Map(fields), _)) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by(|a, b| a.name.cmp(&b.name));
            out.extend(fields.into_iter().map(|field| one(&field.name, &field.node, field.line, report)));
        }
        Some((YamlValue::Scalar { .. }, node)) => out.push(one("", node, line, report)),
        None => {
            let message = "no source is stated: curtin got it on its command line; write the URL of the root's archive and \
                its digest";
            report.todo(line, message);
            let fields = json!({"url": todo::value("url"), "digest": todo::value("digest")});
            out.push(Source { is_image: false, fields });
        }
    }
    out
}

fn one(name: &str, node: &YamlNode, line: u64, report: &mut Report) -> Source {
    let (kind, url) = match Fields::of(node) {
        Some(mut fields) => {
            let text = |fields: &mut Fields<'_>, name: &str| fields.text(name).map(|text| text.text);
            let url = text(&mut fields, "uri").or_else(|| text(&mut fields, "url")).unwrap_or_default();
            let kind = text(&mut fields, "type").unwrap_or_default();
            fields.finish("the source", report);
            (kind, url)
        }
        None => {
            let url = text_of(node).unwrap_or_default();
            let known = if name.starts_with("dd-") { name.to_owned() } else { String::new() };
            match url.split_once(':') {
                // `dd-xz:https://…`
                Some((kind, url)) if kind.starts_with("dd-") => (kind.to_owned(), url.to_owned()),
                _ => (known, url),
            }
        }
    };
    let is_image = kind.starts_with("dd-");
    if is_image && kind.contains("-t") && kind != "dd-tar-raw" {
        let message = format!("{kind} is an image inside of a tar archive; serve the image itself, compressed or not");
        report.todo(line, message);
    }
    let mapped =
        matches!(ImageUrl::parse(&url), Ok(ImageUrl::Http)) && !kind.starts_with("fsimage") && kind != "squashfs";
    report.count("source", mapped);
    if !mapped {
        let scheme = url.split(':').next().unwrap_or_default();
        let message = format!(
            "a source of the kind \"{}\" has no counterpart; serve the root as a tar archive over HTTP",
            if kind.is_empty() { scheme } else { &kind }
        );
        report.todo(line, message);
    } else {
        let message = "the source has no digest; write sha256: and what sha256sum prints of the file behind the URL";
        report.todo(line, message);
    }
    let url = if mapped { literal(&url, false) } else { todo::value("url") };
    Source { is_image, fields: json!({"url": url, "digest": todo::value("digest")}) }
}
