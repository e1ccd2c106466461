//! The boot loader. There is no action for it yet: when there is one, this file makes it, for every source.

use serde_json::Value;

use crate::{report::Report, todo};

/// What stands for the installation of GRUB; `line`: where the source asks for it.
pub(crate) fn grub(name: &str, line: u64, report: &mut Report) -> Value {
    let message = "GRUB is not installed by an action of its own yet; replace this item by an exec that runs grub-install \
        and update-grub in the installed system, or use an image that has its boot loader";
    report.todo(line, message);
    todo::action(name, "install GRUB")
}
