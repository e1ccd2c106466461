//! Which computer speaks.

use landfall_api::message::Identity;

use super::codec::*;
use crate::v1;

wire! { Identity = v1::Identity { smbios_uuid: parsed_if_any, serial, macs: all_parsed } }
