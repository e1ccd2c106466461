//! What an action does and what comes of it: one file an action. A new action is one more file, and the matches here name
//! it until it has one.

mod cloud_init;
mod efi_boot;
mod exec;
mod grow_root;
mod hold;
mod http;
mod identity;
mod ignition;
mod install_bootloader;
mod kexec;
mod power;
mod run_container;
mod storage;
mod unpack;
mod wait;
mod wipe;
mod write_file;
mod write_image;

use landfall_api::message::{ActionKind, ActionResult};

use super::{ConvertError, Within as _};
use crate::v1::{self, action::Kind, action_finished::Result as Yield};

impl TryFrom<Kind> for ActionKind {
    type Error = ConvertError;

    fn try_from(wire: Kind) -> Result<Self, ConvertError> {
        Ok(match wire {
            Kind::WriteImage(wire) => Self::WriteImage(wire.try_into().within("write_image")?),
            Kind::CloudInit(wire) => Self::CloudInit(wire.try_into().within("cloud_init")?),
            Kind::Hold(wire) => Self::Hold(wire.into()),
            Kind::Reboot(wire) => Self::Reboot(wire.into()),
            Kind::PowerOff(wire) => Self::PowerOff(wire.into()),
            Kind::Wipe(wire) => Self::Wipe(wire.try_into().within("wipe")?),
            Kind::Kexec(wire) => Self::Kexec(wire.into()),
            Kind::WriteFile(wire) => Self::WriteFile(wire.try_into().within("write_file")?),
            Kind::Exec(wire) => Self::Exec(wire.try_into().within("exec")?),
            Kind::Unpack(wire) => Self::Unpack(wire.try_into().within("unpack")?),
            Kind::Storage(wire) => Self::Storage(wire.try_into().within("storage")?),
            Kind::InstallBootloader(wire) => Self::InstallBootloader(wire.try_into().within("install_bootloader")?),
            Kind::Ignition(wire) => Self::Ignition(wire.try_into().within("ignition")?),
            Kind::EfiBoot(wire) => Self::EfiBoot(wire.try_into().within("efi_boot")?),
            Kind::Identity(wire) => Self::Identity(wire.try_into().within("identity")?),
            Kind::GrowRoot(wire) => Self::GrowRoot(wire.into()),
            Kind::Http(wire) => Self::Http(wire.try_into().within("http")?),
            Kind::Wait(wire) => Self::Wait(wire.try_into().within("wait")?),
            Kind::RunContainer(wire) => Self::RunContainer(wire.try_into().within("run_container")?),
        })
    }
}

impl From<ActionKind> for Kind {
    fn from(kind: ActionKind) -> Self {
        match kind {
            ActionKind::WriteImage(spec) => Self::WriteImage(spec.into()),
            ActionKind::CloudInit(spec) => Self::CloudInit(spec.into()),
            ActionKind::Hold(spec) => Self::Hold(spec.into()),
            ActionKind::Reboot(spec) => Self::Reboot(spec.into()),
            ActionKind::PowerOff(spec) => Self::PowerOff(spec.into()),
            ActionKind::Wipe(spec) => Self::Wipe(spec.into()),
            ActionKind::Kexec(spec) => Self::Kexec(spec.into()),
            ActionKind::WriteFile(spec) => Self::WriteFile(spec.into()),
            ActionKind::Exec(spec) => Self::Exec(spec.into()),
            ActionKind::Unpack(spec) => Self::Unpack(spec.into()),
            ActionKind::Storage(spec) => Self::Storage(spec.into()),
            ActionKind::InstallBootloader(spec) => Self::InstallBootloader(spec.into()),
            ActionKind::Ignition(spec) => Self::Ignition(spec.into()),
            ActionKind::EfiBoot(spec) => Self::EfiBoot(spec.into()),
            ActionKind::Identity(spec) => Self::Identity(spec.into()),
            ActionKind::GrowRoot(spec) => Self::GrowRoot(spec.into()),
            ActionKind::Http(spec) => Self::Http(spec.into()),
            ActionKind::Wait(spec) => Self::Wait(spec.into()),
            ActionKind::RunContainer(spec) => Self::RunContainer(spec.into()),
        }
    }
}

impl TryFrom<Yield> for ActionResult {
    type Error = ConvertError;

    fn try_from(wire: Yield) -> Result<Self, ConvertError> {
        Ok(match wire {
            Yield::WriteImage(wire) => Self::WriteImage(wire.try_into().within("write_image")?),
            Yield::CloudInit(wire) => Self::CloudInit(wire.into()),
            Yield::Hold(v1::HoldResult {}) => Self::Hold,
            Yield::Reboot(v1::RebootResult {}) => Self::Reboot,
            Yield::PowerOff(v1::PowerOffResult {}) => Self::PowerOff,
            Yield::Wipe(wire) => Self::Wipe(wire.try_into().within("wipe")?),
            // It may name no disk: none carried a receipt.
            Yield::ClearDisks(wire) => Self::Wipe(wipe::result(wire)),
            Yield::Kexec(wire) => Self::Kexec(wire.into()),
            Yield::WriteFile(wire) => Self::WriteFile(wire.into()),
            Yield::Exec(wire) => Self::Exec(wire.into()),
            Yield::Unpack(wire) => Self::Unpack(wire.into()),
            Yield::Storage(wire) => Self::Storage(wire.into()),
            Yield::InstallBootloader(wire) => Self::InstallBootloader(wire.into()),
            Yield::Ignition(wire) => Self::Ignition(wire.into()),
            Yield::EfiBoot(wire) => Self::EfiBoot(wire.try_into().within("efi_boot")?),
            Yield::Identity(wire) => Self::Identity(wire.into()),
            Yield::GrowRoot(wire) => Self::GrowRoot(wire.try_into().within("grow_root")?),
            Yield::Http(wire) => Self::Http(wire.try_into().within("http")?),
            Yield::Wait(wire) => Self::Wait(wire.into()),
            Yield::RunContainer(wire) => Self::RunContainer(wire.into()),
        })
    }
}

impl From<ActionResult> for Yield {
    fn from(result: ActionResult) -> Self {
        match result {
            ActionResult::WriteImage(result) => Self::WriteImage(result.into()),
            ActionResult::CloudInit(result) => Self::CloudInit(result.into()),
            ActionResult::Hold => Self::Hold(v1::HoldResult {}),
            ActionResult::Reboot => Self::Reboot(v1::RebootResult {}),
            ActionResult::PowerOff => Self::PowerOff(v1::PowerOffResult {}),
            ActionResult::Wipe(result) => Self::Wipe(result.into()),
            ActionResult::Kexec(result) => Self::Kexec(result.into()),
            ActionResult::WriteFile(result) => Self::WriteFile(result.into()),
            ActionResult::Exec(result) => Self::Exec(result.into()),
            ActionResult::Unpack(result) => Self::Unpack(result.into()),
            ActionResult::Storage(result) => Self::Storage(result.into()),
            ActionResult::InstallBootloader(result) => Self::InstallBootloader(result.into()),
            ActionResult::Ignition(result) => Self::Ignition(result.into()),
            ActionResult::EfiBoot(result) => Self::EfiBoot(result.into()),
            ActionResult::Identity(result) => Self::Identity(result.into()),
            ActionResult::GrowRoot(result) => Self::GrowRoot(result.into()),
            ActionResult::Http(result) => Self::Http(result.into()),
            ActionResult::Wait(result) => Self::Wait(result.into()),
            ActionResult::RunContainer(result) => Self::RunContainer(result.into()),
        }
    }
}
