//! `secureBoot`.

use landfall_api::{SecureBootResult, SecureBootSpec};

use crate::convert::codec::*;
use crate::v1;

wire! {
    SecureBootSpec = v1::SecureBoot { pk: text, kek: text, db: text, dbx: text_if_any }
    SecureBootResult = v1::SecureBootResult { enrolled: same }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::testing::survives;

    #[test]
    fn every_key_survives_the_wire() {
        let text = |name: &str| name.to_owned();
        for dbx in [None, Some(text("DBX"))] {
            survives::<v1::SecureBoot, _>(SecureBootSpec { pk: text("PK"), kek: text("KEK"), db: text("DB"), dbx });
        }
        for enrolled in [true, false] {
            survives::<v1::SecureBootResult, _>(SecureBootResult { enrolled });
        }
    }
}
