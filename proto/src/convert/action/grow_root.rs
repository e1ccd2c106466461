//! `growRoot`.

use landfall_api::{GrowRootResult, GrowRootSpec, SizeSpec};

use super::super::{
    ConvertError,
    selector::{selector_if_any, selector_to_wire},
};
use crate::v1;

impl From<v1::GrowRoot> for GrowRootSpec {
    fn from(wire: v1::GrowRoot) -> Self {
        let size = Some(wire.size_bytes).filter(|bytes| *bytes != 0).map(SizeSpec::Bytes);
        Self { size, disk: selector_if_any(wire.disk) }
    }
}

impl From<GrowRootSpec> for v1::GrowRoot {
    fn from(spec: GrowRootSpec) -> Self {
        Self { size_bytes: spec.bytes().unwrap_or_default(), disk: spec.disk.map(selector_to_wire).unwrap_or_default() }
    }
}

impl TryFrom<v1::GrowRootResult> for GrowRootResult {
    type Error = ConvertError;

    fn try_from(wire: v1::GrowRootResult) -> Result<Self, ConvertError> {
        if wire.size_bytes == 0 {
            return Err(ConvertError::missing("size_bytes"));
        }
        Ok(Self { root_device: wire.root_device, size_bytes: wire.size_bytes, grown: wire.grown })
    }
}

impl From<GrowRootResult> for v1::GrowRootResult {
    fn from(result: GrowRootResult) -> Self {
        Self { root_device: result.root_device, size_bytes: result.size_bytes, grown: result.grown }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_growth_survives_the_wire() {
        for size in [None, Some(SizeSpec::Bytes(20 << 30))] {
            let spec = GrowRootSpec { size, disk: None };
            assert_eq!(GrowRootSpec::from(v1::GrowRoot::from(spec.clone())), spec);
        }
        let result = GrowRootResult { root_device: "/dev/vda2".into(), size_bytes: 5, grown: true };
        assert_eq!(GrowRootResult::try_from(v1::GrowRootResult::from(result.clone())), Ok(result));
        assert_eq!(GrowRootResult::try_from(v1::GrowRootResult::default()).unwrap_err().field(), "size_bytes");
    }
}
