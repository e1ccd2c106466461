//! Messages: what the agent and the coordinator say to each other, as domain types.
//!
//! Both programs use these types. `landfall-proto` converts them to and from the wire, once, at the edge. What only one
//! program has beside a message (a lease that runs, a certificate, an address) is passed beside it.

mod action;
mod action_ref;
mod assignment;
mod disks;
mod enroll;
mod event;
mod hello;
mod identity;
mod layout_commit;
mod phone_home;
mod resolved;
mod result;
mod session;
mod telemetry;
mod worker;

pub use action::{ActionKind, ActionResult, Part};
pub use action_ref::ActionRef;
pub use assignment::{AssignedAction, Assignment, KnownResult, Retry, Start, ToolsLayer};
pub use disks::{DiskReport, UnreadableDisk};
pub use enroll::{EnrollAnswer, EnrollOutcome, EnrollRequest, MachineCredentials, Proof};
pub use event::{EventBody, EventKey, EventRecord};
pub use hello::{Hello, Refusal, Welcome};
pub use identity::Identity;
pub use layout_commit::{commits_before, layout_before};
pub use phone_home::PhoneHomeReport;
pub use resolved::{CloudInit, PhoneHomeUnit, WriteImage};
pub use result::{CloudInitResult, KexecResult, StorageResult, WipeResult, WriteImageResult};
pub use session::{Ack, Control, Ended, ToAgent, ToCoordinator, Vitals};
pub use telemetry::{LogLevel, LogLine, Telemetry, UnknownLevel};
pub use worker::{HiddenPoint, LayoutMount, OpenedLayout, Purpose, WorkerJob, WorkerReady, WorkerReport};
