//! The management controller (BMC), asked over IPMI by the machine itself: IPMI 2.0, revision 1.1.

pub(crate) mod account;
mod device;
mod lan;

pub(crate) use self::device::NAMES;
pub(crate) use self::lan::facts;
