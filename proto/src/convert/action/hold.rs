//! `hold`.

use landfall_api::HoldSpec;

use crate::{convert::codec::*, v1};

wire! { HoldSpec = v1::Hold { message } }
