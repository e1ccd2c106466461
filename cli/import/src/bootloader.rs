//! The boot loader of an installed root, for every source.

use serde_json::{Value, json};

/// The fields of an `installBootloader`: GRUB, for the firmware that started the machine.
pub(crate) fn grub() -> Value {
    json!({})
}
