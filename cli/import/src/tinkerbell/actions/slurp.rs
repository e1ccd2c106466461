//! slurp: a copy of a disk, sent to a server.

use super::{Context, List, Source};

pub(super) fn add(source: Source<'_>, list: &mut List, context: &mut Context<'_>) -> bool {
    let what = "Landfall reads no disk out; keep this step where it is, or remove the item";
    list.items.push(source.without_counterpart(what, context));
    false
}
