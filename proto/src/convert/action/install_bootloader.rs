//! `installBootloader`.

use landfall_api::{InstallBootloaderResult, InstallBootloaderSpec, LoaderSpec};

use crate::convert::{ConvertError, codec::*, word::*};
use crate::v1;

wire! {
    InstallBootloaderSpec = v1::InstallBootloader {
        loader: loader, firmware: word, kernel_arguments, disk: selector_if_any,
    }
    InstallBootloaderResult = v1::InstallBootloaderResult { root_device, platforms }
}

codec! {
    /// Empty: GRUB, as before there was a choice.
    loader: String => LoaderSpec,
        |field, wire| match wire.as_str() {
            "" => Ok(LoaderSpec::Grub),
            name => LoaderSpec::named(name).ok_or_else(|| ConvertError::new(field, "it is none that is known")),
        },
        |loader| if loader == LoaderSpec::Grub { String::new() } else { loader.as_str().to_owned() };
}

#[cfg(test)]
mod tests {
    use landfall_api::FirmwareSpec;

    use super::*;
    use crate::convert::testing::{refused, survives};

    #[test]
    fn a_boot_loader_survives_the_wire() {
        for firmware in [FirmwareSpec::Auto, FirmwareSpec::Bios, FirmwareSpec::Uefi, FirmwareSpec::Both] {
            for loader in [LoaderSpec::Grub, LoaderSpec::SystemdBoot] {
                let kernel_arguments = vec!["quiet".into()];
                let spec = InstallBootloaderSpec { loader, firmware, kernel_arguments, disk: None };
                survives::<v1::InstallBootloader, _>(spec);
            }
        }
        refused::<v1::InstallBootloader, _>(
            InstallBootloaderSpec::default(),
            &[("firmware", |w| w.firmware = "coreboot".into()), ("loader", |w| w.loader = "lilo".into())],
        );
    }
}
