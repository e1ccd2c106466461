//! writefile: one file in the installed system.

use serde_json::json;

use super::{Context, List, Source, with};
use crate::{content, todo};

pub(super) fn add(mut source: Source<'_>, list: &mut List, context: &mut Context<'_>) -> bool {
    source.not_needed(&["FS_TYPE"], "the file system is recognised", context);
    let path = source.required("DEST_PATH", context);
    let content = source.env("CONTENTS").map(|text| context.text(&text)).unwrap_or_default();
    let mode = source.env("MODE").and_then(|text| {
        let mode = content::mode(&text.text);
        if mode.is_none() {
            context.report.todo(text.line, format!("\"{}\" is not a mode; write octal digits", text.text));
        }
        mode.or_else(|| Some(todo::value("mode")))
    });
    if let Some(text) = source.env("DIRMODE").filter(|text| content::mode(&text.text).as_deref() != Some("0755")) {
        let message = "missing directories are made with mode 0755; make them with an exec before this action";
        context.report.todo(text.line, message);
    }
    let mut account = |name: &str, context: &mut Context<'_>| {
        source.env(name).map(|text| context.text(&text)).filter(|account| account != "0")
    };
    let (owner, group) = (account("UID", context), account("GID", context));
    let device = source.device("DEST_DISK", context);
    let disk = list.disk(device.as_ref(), source.line, context);
    let spec = with(json!({"path": path, "content": content}), "owner", owner);
    let spec = with(with(with(spec, "group", group), "mode", mode), "disk", disk);
    list.items.push(source.done("writeFile", spec, context));
    true
}
