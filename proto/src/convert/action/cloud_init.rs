//! `cloudInit`.

use landfall_api::Pin;
use landfall_api::message::{CloudInit, CloudInitResult, PhoneHomeUnit};

use crate::{convert::codec::*, v1};

wire! {
    CloudInit = v1::CloudInit {
        user_data: secret, vendor_data: secret, meta_data, network_config: secret, phone_home: one_if_any,
        disk: selector_if_any,
    }
    PhoneHomeUnit = v1::PhoneHome { ca_pins: pins, url, bearer_token: secret, other_urls }
    CloudInitResult = v1::CloudInitResult { root_device }
}

codec! {
    pins: Vec<String> => Vec<Pin>,
        |field, wire| filled::from(field, all_parsed::from(field, wire)?), |pins| all_parsed::to(pins);
}

#[cfg(test)]
mod tests {
    use landfall_api::SecretText;

    use super::*;
    use crate::convert::testing::survives;

    #[test]
    fn a_seed_survives_the_wire_and_never_shows_its_secrets() {
        let unit = PhoneHomeUnit {
            url: "https://h/phone-home".into(),
            other_urls: vec!["https://i/phone-home".into()],
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
        survives::<v1::CloudInit, _>(spec);
    }

    #[test]
    fn a_phone_home_without_a_pin_is_refused() {
        let unit = |ca_pins| v1::PhoneHome { ca_pins, ..v1::PhoneHome::default() };
        for ca_pins in [vec![], vec!["sha1:00".to_owned()]] {
            let wire = v1::CloudInit { phone_home: Some(unit(ca_pins)), ..v1::CloudInit::default() };
            assert_eq!(CloudInit::try_from(wire).unwrap_err().field(), "phone_home.ca_pins");
        }
    }
}
