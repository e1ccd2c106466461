//! An agent's session with the coordinator: pinned TLS, enrolment, numbered events, leases.
//!
//! A library of its own, with no PID 1 and no disk in it, so that the agent and a simulator of whole fleets use the same
//! code. Read in the order in which a machine goes through it: [`Target`] (where, and which CA keys to trust),
//! [`enroll`] (proof in, certificate out; [`boot_token()`] asks for the proof), [`Session`] (the control stream, reconnecting for ever), [`LeaseWatch`] (may
//! I still touch the disk?), and [`phone_home`] (the installed system's last word).
//!
//! `landfall-proto` converts each message as it arrives or leaves; everything here uses landfall-api's messages.

mod backoff;
mod boot_token;
mod clock;
mod connect;
mod credentials;
mod enroll;
mod error;
mod handle;
mod instruction;
mod lease;
mod outbox;
mod phone_home;
mod proxy;
mod session;
mod shared;
mod surroundings;
mod target;
mod telemetry;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod wire_status;

pub use backoff::Backoff;
pub use boot_token::{BootToken, boot_token};
pub use clock::boot_time;
pub use credentials::{AgentKey, Credentials, KeyError};
pub use enroll::{EnrollError, Enrolled, enroll, enroll_over, enroll_with_facts};
pub use error::{ConnectError, ProxyError, Step};
pub use handle::{Report, Reporting, Session, SessionEnded, SessionHandle, Unflushed};
pub use instruction::Instruction;
pub use landfall_pin::{PinMismatch, Validity, pin_of_spki};
pub use lease::{Lease, LeaseWatch};
pub use outbox::{AckError, Full, Outbox};
pub use phone_home::{PhoneHomeError, https_client, phone_home};
pub use proxy::{NoProxy, Proxy};
pub use session::{Changing, Host, Looking, News, Seen, SessionConfig};
pub use shared::{Connection, StillRuns};
pub use surroundings::{BootClock, Dial, Dialling, Surroundings, Wire};
pub use target::{Place, Target, TargetError, coordinator_beside};
