//! DHCPv4 on one port: the state machine of `client`, the parser of `lease`, and the socket between them.

mod client;
mod frame;
mod lease;
mod socket;

use super::setup::{Route, Setup};

pub(crate) use self::client::{Client, Step, To};
pub(crate) use self::socket::Socket;
