//! grub2disk: the boot loader.

use super::{Context, List, Source, with};
use crate::bootloader;

pub(super) fn add(mut source: Source<'_>, list: &mut List, context: &mut Context<'_>) -> bool {
    source.not_needed(&["GRUB_INSTALL_PATH"], "the disks of the installed system are taken", context);
    source.not_needed(&["FS_TYPE"], "the file system is recognised", context);
    let device = source.device("GRUB_DISK", context);
    let disk = list.disk(device.as_ref(), source.line, context);
    list.items.push(source.done("installBootloader", with(bootloader::grub(), "disk", disk), context));
    true
}
