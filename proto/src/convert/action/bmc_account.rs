//! `bmcAccount`.

use landfall_api::{BmcAccount, BmcAccountResult};

use crate::convert::{ConvertError, codec::*, word::*};
use crate::v1;

wire! {
    BmcAccount = v1::BmcAccount { username: text, password: secret, privilege: word }
    BmcAccountResult = v1::BmcAccountResult { address: parsed, user: user }
}

codec! {
    user: u32 => u8, |field, wire| u8::try_from(wire).map_err(|error| ConvertError::new(field, error)), |user| user.into();
}

#[cfg(test)]
mod tests {
    use landfall_api::{BmcPrivilege, SecretText};

    use super::*;
    use crate::convert::testing::{refused, survives};

    #[test]
    fn an_account_survives_the_wire_and_shows_no_password() {
        for privilege in BmcPrivilege::ALL {
            let sent = BmcAccount { username: "landfall".into(), password: SecretText::new("geheim"), privilege };
            survives::<v1::BmcAccount, _>(sent.clone());
            refused::<v1::BmcAccount, _>(
                sent,
                &[("username", |w| w.username.clear()), ("privilege", |w| w.privilege = "callback".into())],
            );
        }
        let result = BmcAccountResult { address: "192.0.2.9".parse().unwrap(), user: 3 };
        survives::<v1::BmcAccountResult, _>(result);
        refused::<v1::BmcAccountResult, _>(
            result,
            &[("address", |w| w.address = "bmc".into()), ("user", |w| w.user = 256)],
        );
    }
}
