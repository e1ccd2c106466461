//! An agent's session with the coordinator: pinned TLS, enrolment, numbered events, leases.
//!
//! A library of its own, with no PID 1 and no disk in it, so that the agent and a simulator of whole fleets use the same
//! code. Read in the order in which a machine goes through it: [`Target`] and [`Pin`] (where, and whom to trust),
//! [`enroll`] (proof in, certificate out), [`Session`] (the control stream, reconnecting for ever), [`LeaseWatch`] (may
//! I still touch the disk?), and [`phone_home`] (the installed system's last word).
//!
//! Wire types stop at `convert`; everything else speaks landfall-api's types and those of `model`.

mod backoff;
mod clock;
mod connect;
mod convert;
mod credentials;
mod enroll;
mod error;
mod handle;
mod lease;
mod model;
mod outbox;
mod phone_home;
mod session;
mod surroundings;
mod target;
mod telemetry;
mod wire_status;

pub use backoff::Backoff;
pub use clock::boot_time;
pub use credentials::{AgentKey, Credentials, KeyError};
pub use enroll::{EnrollError, Enrolled, enroll, enroll_over, enroll_with_facts};
pub use error::ConnectError;
pub use handle::{Connection, SessionEnded, SessionHandle, StillRuns, Unflushed};
pub use landfall_pin::{Pin, PinError, PinMismatch, Validity};
pub use lease::{Lease, LeaseWatch};
pub use model::{
    Action, ActionKind, ActionRef, ActionResult, Assignment, ClearDisks, CloudInit, Control, Event, EventKind,
    Identity, ImageAccess, ImageAuthorization, ImageProof, ImageSignature, Instruction, Kexec, Loaded, LogLevel,
    PhoneHome, Proof, Retry, Secret, Start, Vitals, WriteImage, WriteImageResult,
};
pub use outbox::{AckError, Full, Outbox};
pub use phone_home::{PhoneHomeError, PhoneHomeReport, https_client, phone_home};
pub use session::{Host, Session, SessionConfig};
pub use surroundings::{BootClock, Dial, Dialling, Surroundings, Wire};
pub use target::{Target, TargetError};
