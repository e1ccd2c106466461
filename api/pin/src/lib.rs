//! TLS towards the coordinator: trust hangs on pinned CA keys and one fixed logical name.
//!
//! The chain a server shows must contain a CA certificate whose key is pinned; the server's own certificate must be signed
//! by it, for [`landfall_api::SERVER_NAME`], whatever address or name the connection was dialled by. The CA needs to be
//! in the chain because a kernel command line has room for its digest, not for its certificate.
//!
//! The agent and the operator's command trust this way, with the same code.

mod pin;
mod verify;

pub use pin::pin_of_spki;
pub use verify::{Identity, PinMismatch, Validity, client_config, rustls_error};
