//! `growRoot`.

use landfall_api::{GrowRootResult, GrowRootSpec, SizeSpec};

use crate::convert::{ConvertError, codec::*};
use crate::v1;

wire! {
    GrowRootSpec = v1::GrowRoot { size: bytes_if_any(size_bytes), disk: selector_if_any }
    GrowRootResult = v1::GrowRootResult, checked by has_size { root_device, size_bytes, grown }
}

codec! {
    bytes_if_any: u64 => Option<SizeSpec>,
        |field, wire| Ok(number_if_any::from(field, wire)?.map(SizeSpec::Bytes)),
        |size| GrowRootSpec { size, disk: None }.bytes().unwrap_or_default();
}

fn has_size(wire: &v1::GrowRootResult) -> Result<(), ConvertError> {
    if wire.size_bytes == 0 { Err(ConvertError::missing("size_bytes")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::testing::{refused, survives};

    #[test]
    fn a_growth_survives_the_wire() {
        for size in [None, Some(SizeSpec::Bytes(20 << 30))] {
            survives::<v1::GrowRoot, _>(GrowRootSpec { size, disk: None });
        }
        let result = GrowRootResult { root_device: "/dev/vda2".into(), size_bytes: 5, grown: true };
        survives::<v1::GrowRootResult, _>(result.clone());
        refused::<v1::GrowRootResult, _>(result, &[("size_bytes", |w| w.size_bytes = 0)]);
    }
}
