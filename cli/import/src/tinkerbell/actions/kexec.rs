//! kexec: the start of the installed system without its firmware.

use super::{Context, List, Source, empty, with};

pub(super) fn add(mut source: Source<'_>, list: &mut List, context: &mut Context<'_>) -> bool {
    source.not_needed(&["FS_TYPE"], "the file system is recognised", context);
    source.not_needed(&["GRUBCFG_PATH"], "the boot loader's configuration is found", context);
    let chosen = "kexec takes the newest kernel with its initramfs; make /vmlinuz and /initrd.img links to these, or use \
        reboot";
    source.no_counterpart(&["KERNEL_PATH", "INITRD_PATH"], chosen, context);
    let device = source.device("BLOCK_DEVICE", context);
    let disk = list.disk(device.as_ref(), source.line, context);
    let cmdline = source.env("CMD_LINE").map(|text| context.text(&text));
    let spec = with(with(empty(), "cmdline", cmdline), "disk", disk);
    list.items.push(source.done("kexec", spec, context));
    true
}
