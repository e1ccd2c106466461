//! `cloudInit`.

use landfall_api::{
    SecretText,
    message::{CloudInit, CloudInitResult, PhoneHomeUnit},
};

use super::super::{
    ConvertError, Within as _,
    selector::{selector_if_any, selector_to_wire},
};
use crate::v1;

impl TryFrom<v1::CloudInit> for CloudInit {
    type Error = ConvertError;

    fn try_from(wire: v1::CloudInit) -> Result<Self, ConvertError> {
        Ok(Self {
            user_data: SecretText::new(wire.user_data),
            vendor_data: SecretText::new(wire.vendor_data),
            meta_data: wire.meta_data,
            network_config: SecretText::new(wire.network_config),
            phone_home: wire.phone_home.map(PhoneHomeUnit::try_from).transpose().within("phone_home")?,
            disk: selector_if_any(wire.disk),
        })
    }
}

impl From<CloudInit> for v1::CloudInit {
    fn from(spec: CloudInit) -> Self {
        Self {
            user_data: spec.user_data.into_exposed(),
            vendor_data: spec.vendor_data.into_exposed(),
            meta_data: spec.meta_data,
            network_config: spec.network_config.into_exposed(),
            phone_home: spec.phone_home.map(v1::PhoneHome::from),
            disk: spec.disk.map(selector_to_wire).unwrap_or_default(),
        }
    }
}

impl TryFrom<v1::PhoneHome> for PhoneHomeUnit {
    type Error = ConvertError;

    fn try_from(wire: v1::PhoneHome) -> Result<Self, ConvertError> {
        let pin = |text: &String| text.parse().map_err(|error| ConvertError::new("ca_pins", error));
        let ca_pins = wire.ca_pins.iter().map(pin).collect::<Result<Vec<_>, _>>()?;
        if ca_pins.is_empty() {
            return Err(ConvertError::missing("ca_pins"));
        }
        Ok(Self { url: wire.url, bearer_token: SecretText::new(wire.bearer_token), ca_pins })
    }
}

impl From<PhoneHomeUnit> for v1::PhoneHome {
    fn from(unit: PhoneHomeUnit) -> Self {
        Self {
            url: unit.url,
            bearer_token: unit.bearer_token.into_exposed(),
            ca_pins: unit.ca_pins.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<v1::CloudInitResult> for CloudInitResult {
    fn from(wire: v1::CloudInitResult) -> Self {
        Self { root_device: wire.root_device }
    }
}

impl From<CloudInitResult> for v1::CloudInitResult {
    fn from(result: CloudInitResult) -> Self {
        Self { root_device: result.root_device }
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::Pin;

    use super::*;

    #[test]
    fn a_seed_survives_the_wire_and_never_shows_its_secrets() {
        let unit = PhoneHomeUnit {
            url: "https://h/phone-home".into(),
            bearer_token: SecretText::new("geheim"),
            ca_pins: vec![Pin::from_sha256([1; 32])],
        };
        let spec = CloudInit {
            user_data: SecretText::new("password: geheim"),
            vendor_data: SecretText::new("token: geheim"),
            meta_data: "m".into(),
            network_config: SecretText::new("wifi: geheim"),
            phone_home: Some(unit),
            disk: None,
        };
        let wire = v1::CloudInit::from(spec.clone());
        assert_eq!((wire.user_data.as_str(), wire.network_config.as_str()), ("password: geheim", "wifi: geheim"));
        assert_eq!(wire.vendor_data, "token: geheim");
        assert_eq!(CloudInit::try_from(wire), Ok(spec.clone()));
        assert!(!format!("{spec:?}").contains("geheim"), "{spec:?}");
    }

    #[test]
    fn a_phone_home_without_a_pin_is_refused() {
        for ca_pins in [vec![], vec!["sha1:00".to_owned()]] {
            let wire = v1::CloudInit {
                phone_home: Some(v1::PhoneHome { ca_pins, ..v1::PhoneHome::default() }),
                ..v1::CloudInit::default()
            };
            assert_eq!(CloudInit::try_from(wire).unwrap_err().field(), "phone_home.ca_pins");
        }
    }
}
