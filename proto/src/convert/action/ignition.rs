//! `ignition`.

use landfall_api::{Ignition, IgnitionResult, SecretText};

use crate::{convert::codec::*, v1};

wire! {
    Ignition = v1::Ignition { config: config, disk: selector_if_any }
    IgnitionResult = v1::IgnitionResult { device, path }
}

codec! {
    config: String => SecretText,
        |field, wire| text::from(field, wire).map(SecretText::new), |config| config.into_exposed();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::testing::survives;

    #[test]
    fn a_config_survives_the_wire_and_never_shows_itself() {
        let spec = Ignition { config: SecretText::new("{\"geheim\": 1}"), disk: None };
        let wire = v1::Ignition::from(spec.clone());
        assert_eq!(wire.config, "{\"geheim\": 1}");
        survives::<v1::Ignition, _>(spec);
        assert_eq!(Ignition::try_from(v1::Ignition::default()).unwrap_err().field(), "config");
    }
}
