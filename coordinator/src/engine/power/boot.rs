//! What each step of a machine's power asks of its BMC: the boot device of a way, and the boot medium.

use landfall_api::{BootWay, FirmwareMode, Machine};
use landfall_bmc::{Bmc, BmcError, BootDevice, BootMode, BootOverride, Inserted, PowerChange};
use landfall_machine::power::Step;

use crate::engine::fleet::Settings;

/// Has the BMC make a step; with the boot medium's URL, from that.
pub(super) async fn make(
    bmc: &mut dyn Bmc, step: &Step, machine: &Machine, medium: Option<&str>,
) -> Result<Made, BmcError> {
    match step {
        Step::Shutdown => bmc.change_power(PowerChange::Shutdown).await?,
        Step::Off => bmc.change_power(PowerChange::Off).await?,
        Step::On => bmc.change_power(PowerChange::On).await?,
        Step::SetBoot(way) => {
            let mode = mode_of(machine);
            if let Some(url) = medium {
                let Inserted { device, drive } = bmc.insert(url).await?;
                bmc.set_boot(BootOverride { device, once: true, mode }).await?;
                return Ok(Made::Inserted(drive));
            }
            if let Some(boot) = override_of(*way, mode) {
                bmc.set_boot(boot).await?;
            }
        }
        Step::ClearBoot => return clear(bmc, machine).await,
        _ => {}
    }
    Ok(Made::AsAsked)
}

/// What a step came to.
pub(super) enum Made {
    /// What it was to be.
    AsAsked,
    /// The medium is in that drive.
    Inserted(String),
    /// The medium was not ejected, for this reason.
    NotEjected(BmcError),
}

/// Takes back what was set.
async fn clear(bmc: &mut dyn Bmc, machine: &Machine) -> Result<Made, BmcError> {
    let none = BootOverride { device: BootDevice::None, once: false, mode: None };
    let Some(status) = machine.status.as_ref().and_then(|status| status.bmc.as_ref()) else { return Ok(Made::AsAsked) };
    let Some(medium) = &status.medium else {
        bmc.set_boot(none).await?;
        return Ok(Made::AsAsked);
    };
    let ejected = bmc.eject(&medium.url, medium.drive.as_deref()).await;
    // Where it was to be started from once and was not, or the BMC has made "once" to "always".
    let unset = bmc.set_boot(none).await;
    match (ejected, unset) {
        (Err(error), _) | (_, Err(error)) if is_of_the_account(&error) => Err(error),
        (Err(error), _) => Ok(Made::NotEjected(error)),
        (Ok(()), unset) => {
            if let Err(error) = unset {
                let machine = machine.metadata.name.as_str();
                tracing::warn!(machine, %error, "the medium is ejected, and the BMC does not take the boot device back");
            }
            Ok(Made::AsAsked)
        }
    }
}

/// Whether nothing else will be done either: the caller notes it, and does not log in again.
const fn is_of_the_account(error: &BmcError) -> bool {
    matches!(
        error,
        BmcError::Refused { .. }
            | BmcError::Untrusted { .. }
            | BmcError::Authorities(_)
            | BmcError::SessionEnded { .. }
    )
}

/// The URL of the boot medium for a machine; or why there is none.
pub(super) fn medium_of(machine: &Machine, settings: &Settings) -> Result<String, String> {
    let Settings { medium_url, arm64_medium_url, .. } = settings;
    let facts = machine.status.as_ref().and_then(|status| status.facts.as_ref());
    // One that was never seen is most likely of the architecture that most are.
    let is_arm64 = facts.is_some_and(|facts| facts.cpu.architecture == "aarch64");
    let (url, key) = if is_arm64 { (arm64_medium_url, "boot.arm64.iso") } else { (medium_url, "boot.iso") };
    url.clone()
        .ok_or_else(|| format!("the coordinator has no boot medium; make one with landfall-image iso, and set {key}"))
}

/// The firmware's mode as the machine's agent last saw it.
fn mode_of(machine: &Machine) -> Option<BootMode> {
    let facts = machine.status.as_ref()?.facts.as_ref()?;
    match facts.firmware.mode {
        FirmwareMode::Uefi => Some(BootMode::Uefi),
        FirmwareMode::Bios => Some(BootMode::Legacy),
    }
}

/// The boot device of a way without a medium; absent: none is to be set.
fn override_of(way: BootWay, mode: Option<BootMode>) -> Option<BootOverride> {
    let (device, once, mode) = match way {
        BootWay::PxeOnce => (BootDevice::Pxe, true, mode),
        BootWay::PxeContinuous => (BootDevice::Pxe, false, mode),
        // Of a machine that was never seen the mode is not known: UEFI is what it most likely is not set to.
        BootWay::PxeOtherMode => {
            (BootDevice::Pxe, true, Some(if mode == Some(BootMode::Uefi) { BootMode::Legacy } else { BootMode::Uefi }))
        }
        BootWay::UefiHttpOnce => (BootDevice::UefiHttp, true, Some(BootMode::Uefi)),
        BootWay::VirtualMedia | BootWay::OwnOrder => return None,
    };
    Some(BootOverride { device, once, mode })
}
