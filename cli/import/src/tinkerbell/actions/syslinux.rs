//! syslinux: a boot loader for BIOS.

use super::{Context, List, Source};

pub(super) fn add(source: Source<'_>, list: &mut List, context: &mut Context<'_>) -> bool {
    let what = "use an image that has its boot loader, or install GRUB";
    list.items.push(source.without_counterpart(what, context));
    false
}
