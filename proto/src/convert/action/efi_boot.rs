//! `efiBoot`. An empty disk on the wire leaves the choice to the agent.

use landfall_api::{BootPolicy, DiskId, EfiBootResult, EfiBootSpec};

use super::super::{
    ConvertError,
    selector::{selector_if_any, selector_to_wire},
};
use crate::v1;

impl TryFrom<v1::EfiBoot> for EfiBootSpec {
    type Error = ConvertError;

    fn try_from(wire: v1::EfiBoot) -> Result<Self, ConvertError> {
        Ok(Self { policy: policy(&wire.policy)?, disk: selector_if_any(wire.disk) })
    }
}

impl From<EfiBootSpec> for v1::EfiBoot {
    fn from(spec: EfiBootSpec) -> Self {
        Self { policy: spec.policy.as_str().into(), disk: spec.disk.map(selector_to_wire).unwrap_or_default() }
    }
}

impl TryFrom<v1::EfiBootResult> for EfiBootResult {
    type Error = ConvertError;

    fn try_from(wire: v1::EfiBootResult) -> Result<Self, ConvertError> {
        Ok(Self { policy: policy(&wire.policy)?, disks: wire.disks.into_iter().map(DiskId::from).collect() })
    }
}

impl From<EfiBootResult> for v1::EfiBootResult {
    fn from(result: EfiBootResult) -> Self {
        Self { policy: result.policy.as_str().into(), disks: result.disks.into_iter().map(v1::DiskId::from).collect() }
    }
}

fn policy(name: &str) -> Result<BootPolicy, ConvertError> {
    BootPolicy::named(name)
        .ok_or_else(|| ConvertError::new("policy", format!("\"{name}\" is no policy of a boot order")))
}

#[cfg(test)]
mod tests {
    use landfall_api::DiskSelector;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_policy_survives_the_wire_and_others_are_refused() {
        for policy in BootPolicy::ALL {
            let disk = DiskSelector([("serial".to_owned(), json!("D1"))].into());
            let spec = EfiBootSpec { policy, disk: Some(disk) };
            assert_eq!(EfiBootSpec::try_from(v1::EfiBoot::from(spec.clone())), Ok(spec));
            let result = EfiBootResult { policy, disks: vec![DiskId::default()] };
            assert_eq!(EfiBootResult::try_from(v1::EfiBootResult::from(result.clone())), Ok(result));
        }
        let other = v1::EfiBoot { policy: "diskfirst".into(), ..v1::EfiBoot::default() };
        assert_eq!(EfiBootSpec::try_from(other).unwrap_err().field(), "policy");
    }
}
