//! `ignition`.

use landfall_api::{Ignition, IgnitionResult, SecretText};

use super::super::{
    ConvertError,
    scalar::text,
    selector::{selector_if_any, selector_to_wire},
};
use crate::v1;

impl TryFrom<v1::Ignition> for Ignition {
    type Error = ConvertError;

    fn try_from(wire: v1::Ignition) -> Result<Self, ConvertError> {
        let config = SecretText::new(text("config", wire.config)?);
        Ok(Self { config, disk: selector_if_any(wire.disk) })
    }
}

impl From<Ignition> for v1::Ignition {
    fn from(spec: Ignition) -> Self {
        Self { config: spec.config.into_exposed(), disk: spec.disk.map(selector_to_wire).unwrap_or_default() }
    }
}

impl From<v1::IgnitionResult> for IgnitionResult {
    fn from(wire: v1::IgnitionResult) -> Self {
        Self { device: wire.device, path: wire.path }
    }
}

impl From<IgnitionResult> for v1::IgnitionResult {
    fn from(result: IgnitionResult) -> Self {
        Self { device: result.device, path: result.path }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_survives_the_wire_and_never_shows_itself() {
        let spec = Ignition { config: SecretText::new("{\"geheim\": 1}"), disk: None };
        assert!(!format!("{spec:?}").contains("geheim"));
        let wire = v1::Ignition::from(spec.clone());
        assert_eq!(wire.config, "{\"geheim\": 1}");
        assert_eq!(Ignition::try_from(wire), Ok(spec));
        assert_eq!(Ignition::try_from(v1::Ignition::default()).unwrap_err().field(), "config");
        let result = IgnitionResult { device: "/dev/vda3".into(), path: "/ignition/config.ign".into() };
        assert_eq!(IgnitionResult::from(v1::IgnitionResult::from(result.clone())), result);
    }
}
