//! What an action does and what comes of it: one file an action. A new action is one more file and one more line here: the
//! matches do not compile until it has both.

mod bmc_account;
mod cloud_init;
mod efi_boot;
mod exec;
mod grow_root;
mod health_test;
mod hold;
mod http;
mod identity;
mod ignition;
mod install_bootloader;
mod kexec;
mod power;
mod run_container;
mod secure_boot;
mod storage;
mod unpack;
mod wait;
mod wipe;
mod write_file;
mod write_image;

use landfall_api::message::{ActionKind, ActionResult, WipeResult};

use super::{ConvertError, Within as _, codec::*};
use crate::v1::{self, action::Kind, action_finished::Result as Yield};

/// An action's case here and on the wire, and its name in errors; and the message that is the result of an action that yields
/// nothing.
macro_rules! actions {
    (yielding { $($case:ident $name:literal,)* } others { $($bare:ident $bare_name:literal $result:ident,)* }) => {
        impl TryFrom<Kind> for ActionKind {
            type Error = ConvertError;

            fn try_from(wire: Kind) -> Result<Self, ConvertError> {
                Ok(match wire {
                    $(Kind::$case(wire) => Self::$case(wire.try_into().within($name)?),)*
                    $(Kind::$bare(wire) => Self::$bare(wire.try_into().within($bare_name)?),)*
                })
            }
        }

        impl From<ActionKind> for Kind {
            fn from(kind: ActionKind) -> Self {
                match kind {
                    $(ActionKind::$case(spec) => Self::$case(spec.into()),)*
                    $(ActionKind::$bare(spec) => Self::$bare(spec.into()),)*
                }
            }
        }

        impl TryFrom<Yield> for ActionResult {
            type Error = ConvertError;

            fn try_from(wire: Yield) -> Result<Self, ConvertError> {
                Ok(match wire {
                    $(Yield::$case(wire) => Self::$case(wire.try_into().within($name)?),)*
                    $(Yield::$bare(v1::$result {}) => Self::$bare,)*
                    // It may name no disk: none carried a receipt.
                    Yield::ClearDisks(wire) => Self::Wipe(WipeResult { disks: list::from("disks", wire.disks)? }),
                })
            }
        }

        impl From<ActionResult> for Yield {
            fn from(result: ActionResult) -> Self {
                match result {
                    $(ActionResult::$case(result) => Self::$case(result.into()),)*
                    $(ActionResult::$bare => Self::$bare(v1::$result {}),)*
                }
            }
        }
    };
}

actions! {
    yielding {
        BmcAccount "bmc_account",
        CloudInit "cloud_init",
        EfiBoot "efi_boot",
        Exec "exec",
        GrowRoot "grow_root",
        HealthTest "health_test",
        Http "http",
        Identity "identity",
        Ignition "ignition",
        InstallBootloader "install_bootloader",
        Kexec "kexec",
        RunContainer "run_container",
        SecureBoot "secure_boot",
        Storage "storage",
        Unpack "unpack",
        Wait "wait",
        Wipe "wipe",
        WriteFile "write_file",
        WriteImage "write_image",
    }
    others {
        Hold "hold" HoldResult,
        PowerOff "power_off" PowerOffResult,
        Reboot "reboot" RebootResult,
    }
}
