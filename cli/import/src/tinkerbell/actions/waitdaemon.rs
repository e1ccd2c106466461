//! waitdaemon: another action that the container's daemon starts later, because it ends the machine.

use super::{Context, List, Source, base_name, dispatch};

pub(super) fn add(mut source: Source<'_>, list: &mut List, context: &mut Context<'_>) -> (String, bool) {
    source.not_needed(&["WAIT_SECONDS", "SOCKET"], "the action reports before it ends the machine", context);
    let image = source.env("IMAGE").map(|text| context.expressions.unmask(&text.text)).unwrap_or_default();
    base_name(&image).clone_into(&mut source.image);
    if source.image == "waitdaemon" {
        source.image = "itself".to_owned();
    }
    let image = source.image.clone();
    let (kind, mapped) = dispatch(&image, source, list, context);
    (format!("{kind} by waitdaemon"), mapped)
}
