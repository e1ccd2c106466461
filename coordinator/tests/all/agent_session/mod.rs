//! The agent's session library against the real TLS port and CA, with a scripted coordinator behind it: what holds on the
//! wire, whatever either side's logic is.
#![allow(clippy::disallowed_methods, reason = "these tests run a coordinator by the real clock")]

mod credentials;
mod messages;
mod scripted;
mod stops;
