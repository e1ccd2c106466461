//! `installBootloader`: its fields, and what comes of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::kind::{ActionInfo, Declaration};
use super::rules::Rules;
use crate::issue::{has_expression, join};
use crate::{DiskSelector, DurationSpec};

/// Makes the installed system start from its disks, with its own boot loader: `grub-install` and `grub-mkconfig` (or `grub2-…`), or
/// `bootctl` and `kernel-install`, run inside it. Where its root stands on a RAID, LVM or encryption, its initramfs is made anew before that.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InstallBootloaderSpec {
    /// Which boot loader. Default: `grub`.
    #[serde(default, skip_serializing_if = "LoaderSpec::is_grub")]
    pub loader: LoaderSpec,
    /// Which firmware is to start it. Default: `auto`, the kind that started this machine.
    #[serde(default, skip_serializing_if = "FirmwareSpec::is_auto")]
    pub firmware: FirmwareSpec,
    /// Arguments of its kernel, one item each, such as `console=ttyS0,115200`, behind those that its own configuration has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_arguments: Vec<String>,
    /// The disk of an installed image. Default: what this workflow wrote, which of a layout are all its disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskSelector>,
}

words! {
    /// What starts the kernel of an installed system.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    LoaderSpec {
        /// GRUB, for BIOS and UEFI.
        #[default]
        Grub = "grub",
        /// systemd-boot, for UEFI alone. Kernels and their initramfs stand on the EFI system partition.
        SystemdBoot = "systemdBoot",
    }
}

impl LoaderSpec {
    const fn is_grub(&self) -> bool {
        matches!(self, Self::Grub)
    }
}

words! {
    /// Which firmware starts an installed system.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    FirmwareSpec {
        /// The kind that started the machine.
        #[default]
        Auto = "auto",
        /// BIOS.
        Bios = "bios",
        /// UEFI.
        Uefi = "uefi",
        /// Either.
        Both = "both",
    }
}

impl FirmwareSpec {
    /// Whether a BIOS is to start the system of a machine that was started by UEFI, or by the other.
    pub const fn bios(self, started_by_uefi: bool) -> bool {
        matches!(self, Self::Bios | Self::Both) || matches!(self, Self::Auto) && !started_by_uefi
    }

    /// Whether UEFI is to start it.
    pub const fn uefi(self, started_by_uefi: bool) -> bool {
        matches!(self, Self::Uefi | Self::Both) || matches!(self, Self::Auto) && started_by_uefi
    }

    const fn is_auto(&self) -> bool {
        matches!(self, Self::Auto)
    }
}

/// What came of an `installBootloader`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstallBootloaderResult {
    /// The installed root file system's device.
    pub root_device: String,
    /// What is installed where, for people: `i386-pc on /dev/vda, /dev/vdb`, or `systemd-boot in /boot/efi`.
    pub platforms: String,
}

/// Arguments of one action: what fits into the kernel's 2047 bytes.
const MAX_ARGUMENTS: usize = 64;
/// Bytes of all arguments: the kernel's COMMAND_LINE_SIZE on x86 and arm64, with room for the root's own.
const MAX_BYTES: usize = 1024;

impl Declaration for InstallBootloaderSpec {
    const INFO: ActionInfo = ActionInfo {
        // What a program refused once it refuses again.
        attempts: 1,
        tools: true,
        means_written_disk: true,
        ..ActionInfo::new(
            "Installs the installed system's own GRUB or systemd-boot, so that the machine starts from its disks.",
            DurationSpec::from_secs(30 * 60),
            7,
        )
    };

    const LATER: &'static [(&'static str, u32)] = &[("loader", 8)];

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        let stated = |field| spec.get(field).and_then(Value::as_str).unwrap_or_default();
        if stated("loader") == LoaderSpec::SystemdBoot.as_str() && ["bios", "both"].contains(&stated("firmware")) {
            let hint = "write firmware: uefi, or loader: grub";
            rules.say(join(path, "firmware"), "systemd-boot does not start from a BIOS", hint);
        }
        rules.selector(spec.get("disk"), &join(path, "disk"));
        let at = join(path, "kernelArguments");
        let items = spec.get("kernelArguments").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for (n, text) in items.iter().enumerate().filter_map(|(n, item)| Some((n, item.as_str()?))) {
            if !has_expression(text) && !is_argument(text) {
                let message = format!("{text:?} is not one argument of a kernel");
                let hint = "write each as an item of its own, of printable ASCII without spaces, quotes, $, ` and \\";
                rules.say(format!("{at}[{n}]"), message, hint);
            }
        }
        let bytes: usize = items.iter().filter_map(Value::as_str).map(|text| text.len() + 1).sum();
        if items.len() > MAX_ARGUMENTS || bytes > MAX_BYTES {
            let message = format!("there are {} arguments with {bytes} bytes", items.len());
            rules.say(at, message, format!("the limits are {MAX_ARGUMENTS} and {MAX_BYTES}"));
        }
    }
}

/// It is written between double quotes of a shell's file.
fn is_argument(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() && !br#""'$`\"#.contains(&b))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validate::tests::faults;

    const AT: &str = "spec.actions[0].installBootloader.kernelArguments";

    fn of(mut spec: Value) -> Vec<String> {
        spec["disk"] = json!({"name": "vda"});
        faults(json!([{"name": "boot", "installBootloader": spec}])).into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn kernel_arguments_are_single_words_without_quotes() {
        for wrong in ["", "a b", "a\"b", "a'b", "$(reboot)", "`x`", "a\\", "ü", "a\nb"] {
            assert_eq!(of(json!({"kernelArguments": ["quiet", wrong]})), [format!("{AT}[1]")], "{wrong:?}");
        }
        assert_eq!(of(json!({"kernelArguments": vec!["x"; 65]})), [AT]);
        assert_eq!(of(json!({"kernelArguments": ["x".repeat(1024)]})), [AT]);
        for right in [
            json!({}),
            json!({"firmware": "both", "kernelArguments": ["console=ttyS0,115200n8", "{{ params.release }}"]}),
        ] {
            assert_eq!(of(right.clone()), [""; 0], "{right}");
        }
    }

    #[test]
    fn auto_is_the_firmware_that_started_the_machine() {
        let both = |firmware: FirmwareSpec, uefi| (firmware.bios(uefi), firmware.uefi(uefi));
        assert_eq!((both(FirmwareSpec::Auto, false), both(FirmwareSpec::Auto, true)), ((true, false), (false, true)));
        for uefi in [false, true] {
            assert_eq!(both(FirmwareSpec::Bios, uefi), (true, false));
            assert_eq!(both(FirmwareSpec::Uefi, uefi), (false, true));
            assert_eq!(both(FirmwareSpec::Both, uefi), (true, true));
        }
    }
}
