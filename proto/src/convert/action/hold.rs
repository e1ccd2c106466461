//! `hold`.

use landfall_api::HoldSpec;

use crate::v1;

impl From<v1::Hold> for HoldSpec {
    fn from(wire: v1::Hold) -> Self {
        Self { message: wire.message }
    }
}

impl From<HoldSpec> for v1::Hold {
    fn from(spec: HoldSpec) -> Self {
        Self { message: spec.message }
    }
}
