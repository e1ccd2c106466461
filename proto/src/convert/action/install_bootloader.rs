//! `installBootloader`.

use landfall_api::{FirmwareSpec, InstallBootloaderResult, InstallBootloaderSpec, LoaderSpec};

use super::super::{
    ConvertError,
    selector::{selector_if_any, selector_to_wire},
};
use crate::v1;

impl TryFrom<v1::InstallBootloader> for InstallBootloaderSpec {
    type Error = ConvertError;

    fn try_from(wire: v1::InstallBootloader) -> Result<Self, ConvertError> {
        let firmware = FirmwareSpec::named(&wire.firmware);
        let loader = match wire.loader.as_str() {
            "" => Some(LoaderSpec::Grub),
            stated => LoaderSpec::named(stated),
        };
        Ok(Self {
            loader: loader.ok_or_else(|| ConvertError::new("loader", "it is none that is known"))?,
            firmware: firmware.ok_or_else(|| ConvertError::new("firmware", "it is none that is known"))?,
            kernel_arguments: wire.kernel_arguments,
            disk: selector_if_any(wire.disk),
        })
    }
}

impl From<InstallBootloaderSpec> for v1::InstallBootloader {
    fn from(spec: InstallBootloaderSpec) -> Self {
        Self {
            firmware: spec.firmware.as_str().to_owned(),
            kernel_arguments: spec.kernel_arguments,
            disk: spec.disk.map(selector_to_wire).unwrap_or_default(),
            // As before there was a choice.
            loader: if spec.loader == LoaderSpec::Grub { String::new() } else { spec.loader.as_str().to_owned() },
        }
    }
}

impl From<v1::InstallBootloaderResult> for InstallBootloaderResult {
    fn from(wire: v1::InstallBootloaderResult) -> Self {
        Self { root_device: wire.root_device, platforms: wire.platforms }
    }
}

impl From<InstallBootloaderResult> for v1::InstallBootloaderResult {
    fn from(result: InstallBootloaderResult) -> Self {
        Self { root_device: result.root_device, platforms: result.platforms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_loader_survives_the_wire() {
        for (firmware, loader) in
            FirmwareSpec::ALL.into_iter().flat_map(|firmware| LoaderSpec::ALL.map(|loader| (firmware, loader)))
        {
            let spec = InstallBootloaderSpec { loader, firmware, kernel_arguments: vec!["quiet".into()], disk: None };
            assert_eq!(InstallBootloaderSpec::try_from(v1::InstallBootloader::from(spec.clone())), Ok(spec));
        }
        let unknown = v1::InstallBootloader { firmware: "coreboot".into(), ..v1::InstallBootloader::default() };
        assert_eq!(InstallBootloaderSpec::try_from(unknown).unwrap_err().field(), "firmware");
        let unknown = v1::InstallBootloader { firmware: "uefi".into(), loader: "lilo".into(), ..Default::default() };
        assert_eq!(InstallBootloaderSpec::try_from(unknown).unwrap_err().field(), "loader");
        let result = InstallBootloaderResult { root_device: "/dev/vda2".into(), platforms: "i386-pc".into() };
        assert_eq!(InstallBootloaderResult::from(v1::InstallBootloaderResult::from(result.clone())), result);
    }
}
