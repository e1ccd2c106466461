//! Which computer speaks.

use landfall_api::message::Identity;

use super::{ConvertError, scalar::uuid_if_any};
use crate::v1;

impl TryFrom<v1::Identity> for Identity {
    type Error = ConvertError;

    fn try_from(wire: v1::Identity) -> Result<Self, ConvertError> {
        let mac = |text: &String| text.parse().map_err(|error| ConvertError::new("macs", error));
        Ok(Self {
            smbios_uuid: uuid_if_any("smbios_uuid", &wire.smbios_uuid)?,
            serial: wire.serial,
            macs: wire.macs.iter().map(mac).collect::<Result<_, _>>()?,
        })
    }
}

impl From<Identity> for v1::Identity {
    fn from(identity: Identity) -> Self {
        Self {
            smbios_uuid: identity.smbios_uuid.map(|uuid| uuid.to_string()).unwrap_or_default(),
            serial: identity.serial,
            macs: identity.macs.iter().map(ToString::to_string).collect(),
        }
    }
}
