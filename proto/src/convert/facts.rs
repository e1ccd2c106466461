//! Facts travel as landfall-api's `MachineFacts` in JSON: they grow often, and nothing on the wire decides by them.

use landfall_api::MachineFacts;

use super::{ConvertError, Within as _};
use crate::v1;

/// The largest JSON of a machine's facts that either side takes, bytes: a machine of a hundred disks has a third of it.
pub const MAX_FACTS_JSON: usize = 256 << 10;

pub(super) fn facts(field: &str, json: &str) -> Result<MachineFacts, ConvertError> {
    if json.len() > MAX_FACTS_JSON {
        let what = format!("it has {} bytes, and facts are smaller than {MAX_FACTS_JSON}", json.len());
        return Err(ConvertError::new(field, what));
    }
    serde_json::from_str(json).map_err(|error| ConvertError::new(field, error))
}

pub(super) fn facts_to_wire(field: &str, facts: &MachineFacts) -> Result<String, ConvertError> {
    serde_json::to_string(facts).map_err(|error| ConvertError::new(field, error))
}

impl TryFrom<v1::Facts> for MachineFacts {
    type Error = ConvertError;

    fn try_from(wire: v1::Facts) -> Result<Self, ConvertError> {
        facts("json", &wire.json)
    }
}

impl TryFrom<&MachineFacts> for v1::Facts {
    type Error = ConvertError;

    fn try_from(facts: &MachineFacts) -> Result<Self, ConvertError> {
        Ok(Self { json: facts_to_wire("json", facts).within("facts")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_have_a_bound_as_they_came() {
        let json = serde_json::to_string(&MachineFacts::default()).unwrap();
        assert!(MachineFacts::try_from(v1::Facts { json: json.clone() }).is_ok());
        let long = v1::Facts { json: format!("{json}{}", " ".repeat(MAX_FACTS_JSON)) };
        assert!(MachineFacts::try_from(long).unwrap_err().to_string().contains("smaller"));
    }
}
