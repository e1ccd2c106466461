//! `kexec`

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use super::kind::{ActionInfo, Declaration, Then};
use super::rules::{Rules, plain_text};
use crate::{DiskSelector, DurationSpec, issue::join};

/// Loads the installed system's own kernel and initramfs and jumps into it: no firmware runs in between. If the kernel
/// cannot be loaded, the action fails and the machine stays up.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KexecSpec {
    /// Which disk. Default: the disk that this workflow wrote.
    pub disk: Option<DiskSelector>,
    /// The kernel's whole command line, at most 2047 bytes; nothing is added to it. Default: what the installed system's boot
    /// loader would give (a boot loader entry, else `grub.cfg`), else `root=UUID=… ro`.
    pub cmdline: Option<String>,
}

impl KexecSpec {
    /// The longest command line, bytes: the kernel's own COMMAND_LINE_SIZE on x86 and arm64, without the final NUL.
    pub const MAX_CMDLINE: usize = 2047;
}

impl Declaration for KexecSpec {
    const INFO: ActionInfo = ActionInfo {
        then: Then::SystemStarts,
        means_written_disk: true,
        ..ActionInfo::new(
            "Starts the installed system's own kernel without a restart of the machine. The last action.",
            DurationSpec::from_secs(5 * 60),
            3,
        )
    };

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        rules.selector(spec.get("disk"), &join(path, "disk"));
        // The kernel takes one line of bounded length, and the first NUL would end it.
        let Some(line) = plain_text(spec, "cmdline") else { return };
        let at = join(path, "cmdline");
        if line.trim().is_empty() {
            let hint = "remove the field to use the installed system's own command line, or write the whole line with \
                root=";
            rules.say(at, "the command line is empty, so the kernel cannot find its root file system", hint);
        } else if line.chars().any(char::is_control) {
            rules.say(
                at,
                "a kernel's command line must be one line without control characters",
                "join its lines with spaces",
            );
        } else if line.len() > Self::MAX_CMDLINE {
            let message = format!("the command line has {} bytes", line.len());
            rules.say(at, message, format!("the kernel's limit is {}; shorten it", Self::MAX_CMDLINE));
        }
    }
}
