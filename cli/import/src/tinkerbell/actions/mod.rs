//! One file for each action that Tinkerbell publishes.

mod archive2disk;
mod cexec;
mod container;
mod grub2disk;
mod image2disk;
mod kexec;
mod oci2disk;
mod power;
mod qemuimg2disk;
mod rootio;
mod slurp;
mod syslinux;
mod waitdaemon;
mod writefile;

// Also for the files of this folder.
use super::action::{List, Source, base_name, empty, with};
use super::context::Context;

/// Puts an action's counterpart on the list, by the name of its image.
pub(super) fn add(source: Source<'_>, list: &mut List, context: &mut Context<'_>) {
    let image = source.image.clone();
    let (kind, mapped) = dispatch(&image, source, list, context);
    context.report.count(format!("action {kind}"), mapped);
}

/// What it counts as, and whether it has a counterpart.
fn dispatch(image: &str, source: Source<'_>, list: &mut List, context: &mut Context<'_>) -> (String, bool) {
    let published: fn(Source<'_>, &mut List, &mut Context<'_>) -> bool = match image {
        "archive2disk" => archive2disk::add,
        "cexec" => cexec::add,
        "grub2disk" => grub2disk::add,
        "image2disk" => image2disk::add,
        "kexec" => kexec::add,
        "oci2disk" => oci2disk::add,
        "qemuimg2disk" => qemuimg2disk::add,
        "rootio" => rootio::add,
        "slurp" => slurp::add,
        "syslinux" => syslinux::add,
        "waitdaemon" => return waitdaemon::add(source, list, context),
        "writefile" => writefile::add,
        "reboot" | "poweroff" | "shutdown" => power::add,
        _ => container::add,
    };
    let kind = if image.is_empty() { "without an image".to_owned() } else { image.to_owned() };
    (kind, published(source, list, context))
}
