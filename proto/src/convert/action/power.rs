//! `reboot` and `powerOff`.

use landfall_api::{PowerOffSpec, RebootSpec};

use crate::v1;

impl From<v1::Reboot> for RebootSpec {
    fn from(v1::Reboot {}: v1::Reboot) -> Self {
        Self {}
    }
}

impl From<RebootSpec> for v1::Reboot {
    fn from(RebootSpec {}: RebootSpec) -> Self {
        Self {}
    }
}

impl From<v1::PowerOff> for PowerOffSpec {
    fn from(v1::PowerOff {}: v1::PowerOff) -> Self {
        Self {}
    }
}

impl From<PowerOffSpec> for v1::PowerOff {
    fn from(PowerOffSpec {}: PowerOffSpec) -> Self {
        Self {}
    }
}
