//! The boot device in IPMI's words: the parameters of Set System Boot Options (table 28-14). Pure.

use crate::{BootDevice, BootMode, BootOverride};

/// "Set in progress": another writer is to wait, and nothing is used half written.
pub(super) const SET_IN_PROGRESS: u8 = 0x00;
/// "Boot flag valid bit clearing": when the BMC forgets the device by itself.
pub(super) const VALID_CLEARING: u8 = 0x03;
/// "Boot info acknowledge": who has dealt with it.
pub(super) const ACKNOWLEDGE: u8 = 0x04;
/// "Boot flags".
pub(super) const FLAGS: u8 = 0x05;

/// Keep the flags also if no start follows within 60 s: a machine that shuts down takes longer. It is `ipmitool raw 0 8 3 8`.
pub(super) const KEEP_WITHOUT_START: [u8; 1] = [0x08];
/// The firmware has not dealt with it yet: some use only what is marked so.
pub(super) const NOT_BY_FIRMWARE: [u8; 2] = [0x01, 0x01];

/// Bits of the flags' first byte.
const VALID: u8 = 0x80;
const LASTING: u8 = 0x40;
const UEFI: u8 = 0x20;
/// The device in the second byte; 0: none, 1: the network, by PXE.
const DEVICE: u8 = 0x3c;
const PXE: u8 = 0x04;

/// What to write; absent: IPMI has no such device. `read` is the first byte as it was.
pub(super) fn flags(boot: BootOverride, read: u8) -> Option<[u8; 5]> {
    let mode = match boot.mode {
        Some(BootMode::Uefi) => UEFI,
        Some(BootMode::Legacy) => 0,
        None => read & UEFI,
    };
    let lasting = if boot.once { 0 } else { LASTING };
    match boot.device {
        BootDevice::Pxe => Some([VALID | lasting | mode, PXE, 0, 0, 0]),
        // Valid, and no device: a request that is not valid is one that some drop.
        BootDevice::None => Some([VALID | mode, 0, 0, 0, 0]),
        // A drive of IPMI is one that the computer has; nothing in it is ours.
        BootDevice::UefiHttp | BootDevice::Cd | BootDevice::Usb => None,
    }
}

/// The flags of an answer to Get System Boot Options: the version, the parameter, and they.
pub(super) fn read(answer: &[u8]) -> Option<[u8; 5]> {
    let [_, parameter, rest @ ..] = answer else { return None };
    // The first bit marks it as invalid.
    rest.first_chunk().copied().filter(|_| parameter & 0x7f == FLAGS)
}

/// What is read where it is not what was set; absent: it is. A device that lasts where one was to be once counts: some show it so.
/// A first byte of zero says nothing of the device: OpenIPMI's simulator, for one, does not keep that byte.
pub(super) fn differs(read: [u8; 5], boot: BootOverride) -> Option<String> {
    let [first, second, ..] = read;
    let device = if first & VALID == 0 && first != 0 { 0 } else { second & DEVICE };
    // Of what is said at all.
    let mode = match boot.mode {
        Some(mode) if first & VALID != 0 => (first & UEFI != 0) == (mode == BootMode::Uefi),
        _ => true,
    };
    let lasts = boot.once || first & VALID == 0 || first & LASTING != 0;
    let same = match boot.device {
        BootDevice::Pxe => device == PXE && mode && lasts,
        BootDevice::None | BootDevice::UefiHttp | BootDevice::Cd | BootDevice::Usb => device == 0,
    };
    (!same).then(|| format!("the boot flags {first:#04x} {second:#04x}"))
}

/// What was asked for, for a message.
pub(super) fn describe(boot: BootOverride) -> String {
    match boot.device {
        BootDevice::Pxe if boot.once => "the boot device PXE for one start".into(),
        BootDevice::Pxe => "the boot device PXE for every start".into(),
        BootDevice::UefiHttp => "the boot device UEFI HTTP Boot: IPMI has none".into(),
        BootDevice::Cd | BootDevice::Usb => "virtual media: IPMI has none".into(),
        BootDevice::None => "that no boot device is set".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONCE: BootOverride = BootOverride { device: BootDevice::Pxe, once: true, mode: Some(BootMode::Uefi) };

    #[test]
    fn flags_are_those_of_the_specification() {
        for (boot, was, expected) in [
            // `ipmitool chassis bootdev pxe options=efiboot`, without it, and `options=persistent,efiboot`.
            (ONCE, 0, Some([0xa0, 0x04, 0, 0, 0])),
            (BootOverride { mode: Some(BootMode::Legacy), ..ONCE }, 0xe0, Some([0x80, 0x04, 0, 0, 0])),
            (BootOverride { once: false, ..ONCE }, 0, Some([0xe0, 0x04, 0, 0, 0])),
            (BootOverride { mode: None, ..ONCE }, 0x20, Some([0xa0, 0x04, 0, 0, 0])),
            (BootOverride { mode: None, ..ONCE }, 0xc0, Some([0x80, 0x04, 0, 0, 0])),
            (BootOverride { device: BootDevice::None, once: true, mode: None }, 0xe0, Some([0xa0, 0, 0, 0, 0])),
            (BootOverride { device: BootDevice::UefiHttp, ..ONCE }, 0, None),
        ] {
            assert_eq!(flags(boot, was), expected, "{boot:?}");
        }
    }

    #[test]
    fn flags_that_are_not_valid_name_no_device() {
        let none = BootOverride { device: BootDevice::None, once: false, mode: None };
        for (first, second, boot, same) in [
            (0xa0, 0x04, ONCE, true),
            (0xe0, 0x04, ONCE, true),
            (0x00, 0x04, ONCE, true),
            (0x20, 0x04, ONCE, false),
            // The mode was dropped; a device for every start became one for one.
            (0x80, 0x04, ONCE, false),
            (0x80, 0x04, BootOverride { mode: None, ..ONCE }, true),
            (0xa0, 0x04, BootOverride { once: false, ..ONCE }, false),
            (0xe0, 0x04, BootOverride { once: false, ..ONCE }, true),
            (0xa0, 0x08, ONCE, false),
            (0x20, 0x04, none, true),
            (0x80, 0x00, none, true),
            (0x80, 0x04, none, false),
        ] {
            assert_eq!(differs([first, second, 0, 0, 0], boot).is_none(), same, "{first:x} {second:x}");
        }
        assert_eq!(read(&[1, 0x85, 0x80, 4, 0, 0, 0]), Some([0x80, 4, 0, 0, 0]));
        assert_eq!((read(&[1, 5, 0x80]), read(&[1, 4, 0, 0, 0, 0, 0]), read(&[])), (None, None, None));
    }
}
