//! Any other container.

use super::{Context, List, Source, empty, power};

pub(super) fn add(mut source: Source<'_>, list: &mut List, context: &mut Context<'_>) -> bool {
    if let Some(key) = power::meant(&source.command) {
        source.not_needed(&["BLOCK_DEVICE", "FS_TYPE"], "no file system is mounted", context);
        list.items.push(source.done(key, empty(), context));
        return true;
    }
    let what = "if exec in the installed system, writeFile and unpack cannot do the same, write a runContainer with the image's digest, and \
            name the disks and directories that it needs: it is given no others";
    list.items.push(source.without_counterpart(what, context));
    false
}
