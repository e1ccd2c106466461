//! grub2disk: the boot loader.

use super::super::{
    action::{List, Source},
    context::Context,
};
use crate::bootloader;

pub(super) fn add(source: Source<'_>, list: &mut List, context: &mut Context<'_>) -> bool {
    list.items.push(bootloader::grub(&source.name, source.line, context.report));
    false
}
