//! image2disk: a disk image behind a URL.

use landfall_api::ImageUrl;
use serde_json::{Value, json};

use super::{Context, List, Source};
use crate::{report::Report, todo};

pub(super) fn add(mut source: Source<'_>, list: &mut List, context: &mut Context<'_>) -> bool {
    source.not_needed(&["COMPRESSED"], "the content shows how it is compressed", context);
    write(source, list, context)
}

/// A `writeImage` of `IMG_URL` to `DEST_DISK`.
pub(super) fn write(mut source: Source<'_>, list: &mut List, context: &mut Context<'_>) -> bool {
    let line = source.env("IMG_URL").map_or(source.line, |text| text.line);
    let written = source.required("IMG_URL", context);
    let url = checked(written, line, context.report);
    let Some(disk) = disk(&mut source, list, context) else {
        list.items.push(source.without_counterpart(PARTITION, context));
        return false;
    };
    let digest = digest("the image", line, context.report);
    let spec = json!({"disk": disk, "image": {"url": url, "digest": digest}});
    list.items.push(source.done("writeImage", spec, context));
    true
}

/// What to do about an image for a partition.
pub(super) const PARTITION: &str = "its image goes to one partition, and writeImage writes whole disks; use unpack, or an image of \
    the disk";

/// The selector of the disk that is written; `None` if it is a partition.
pub(super) fn disk(source: &mut Source<'_>, list: &mut List, context: &mut Context<'_>) -> Option<Value> {
    let line = source.env("DEST_DISK").map_or(source.line, |text| text.line);
    let Some(device) = source.device("DEST_DISK", context) else {
        context.report.todo(line, "DEST_DISK is missing; select the disk to be written");
        return Some(json!({"serial": todo::value("serial")}));
    };
    if device.partition.is_some() {
        return None;
    }
    list.write(&device.selector);
    Some(device.selector)
}

/// The placeholder for a digest that the file does not state.
pub(super) fn digest(what: &str, line: u64, report: &mut Report) -> String {
    report.todo(
        line,
        format!("{what} has no digest; write sha256: and what sha256sum prints of the file behind the URL"),
    );
    todo::value("digest")
}

/// A URL that documents take, or a placeholder.
pub(super) fn checked(url: String, line: u64, report: &mut Report) -> String {
    let open = url.contains("{{");
    let mut filled = url.clone();
    while let Some(variable) = shell_variable(&filled).map(str::to_owned) {
        report
            .todo(line, format!("\"{variable}\" in the URL is to be replaced first; run envsubst, or write the value"));
        filled = filled.replace(&variable, &todo::value(&variable));
    }
    if filled != url {
        return filled;
    }
    match ImageUrl::parse(&url) {
        Err(error) if !open => {
            report.todo(line, format!("{}; {}", error.message, error.hint));
            todo::value("url")
        }
        _ => url,
    }
}

/// `$NAME` or `${NAME}`, which another program replaces before the file is used.
fn shell_variable(text: &str) -> Option<&str> {
    let at = text.find('$')?;
    let rest = text.get(at..)?;
    let name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = if rest.starts_with("${") {
        rest.find('}')? + 1
    } else {
        1 + rest.get(1..)?.find(|c: char| !name(c)).unwrap_or(rest.len() - 1)
    };
    rest.get(..end).filter(|variable| variable.len() > 1)
}
