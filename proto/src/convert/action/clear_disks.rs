//! `clearDisks`.

use landfall_api::{ClearDisksSpec, DiskId, message::ClearDisksResult};

use super::super::selector::{selector, selector_to_wire};
use crate::v1;

impl From<v1::ClearDisks> for ClearDisksSpec {
    fn from(wire: v1::ClearDisks) -> Self {
        Self { disks: wire.disks.into_iter().map(|disk| selector(disk.fields)).collect() }
    }
}

impl From<ClearDisksSpec> for v1::ClearDisks {
    fn from(spec: ClearDisksSpec) -> Self {
        let disks = spec.disks.into_iter();
        Self { disks: disks.map(|disk| v1::Selector { fields: selector_to_wire(disk) }).collect() }
    }
}

impl From<v1::ClearDisksResult> for ClearDisksResult {
    fn from(wire: v1::ClearDisksResult) -> Self {
        Self { disks: wire.disks.into_iter().map(DiskId::from).collect() }
    }
}

impl From<ClearDisksResult> for v1::ClearDisksResult {
    fn from(result: ClearDisksResult) -> Self {
        Self { disks: result.disks.into_iter().map(v1::DiskId::from).collect() }
    }
}
