//! `reboot` and `powerOff`.

use landfall_api::{PowerOffSpec, RebootSpec};

use crate::v1;

wire! {
    RebootSpec = v1::Reboot {}
    PowerOffSpec = v1::PowerOff {}
}
