//! Landfall's documents, action specs and error codes.
//!
//! Pure data: serde for reading and writing, JSON Schema from the same types, validation that says what is wrong, where,
//! and what to do. Nothing here does I/O or reads a clock. Documents have the Kubernetes shape (`apiVersion`, `kind`,
//! `metadata`, `spec`, `status`), group `landfall.dev/v1alpha1`.

mod action;
mod action_de;
mod check;
mod document;
mod error;
mod facts;
mod image;
mod machine;
mod nearest;
mod openapi;
mod scalar;
mod schema;
mod selector;
mod template;
mod url;
mod validate;
mod wire;
mod workflow;
mod yaml;

pub use action::{Action, ActionSpec, CloudInitSpec, PhoneHomeSpec, RebootSpec, RetrySpec, UserSpec, WriteImageSpec};
pub use document::{API_VERSION, Condition, ConditionStatus, Document, Kind, Metadata, Object};
pub use error::{ErrorCode, Problem};
pub use facts::{CpuFacts, DiskFacts, FirmwareFacts, FirmwareMode, MachineFacts, NicFacts, SmbiosFacts};
pub use image::{AccessSpec, ImageFormat, ImageSpec, IndexSpec, SignatureSpec, SumsSpec, Verify};
pub use machine::{
    DiskId, DiskReceipt, IdentitySpec, Machine, MachinePhase, MachineSpec, MachineStatus, Receipt, ReceiptState,
    SessionHolder,
};
pub use nearest::nearest;
pub use openapi::openapi;
pub use scalar::{Digest, DurationSpec, MacAddr, ScalarError};
pub use schema::schema;
pub use selector::{DiskSelector, SelectorError};
pub use template::{Parameter, Template, TemplateSpec, TemplateStatus};
pub use url::{ImageUrl, UrlError};
pub use validate::{is_dns_label, validate_actions};
pub use wire::{
    API_PATH, ApplyOutcome, ApplyResponse, EventRecord, List, ListMetadata, LogRecord, ProvisionRequest, SERVER_NAME,
    WatchLine, WatchType,
};
pub use workflow::{
    ActionState, ActionStatus, Authority, Progress, Workflow, WorkflowPhase, WorkflowSpec, WorkflowStatus,
};
pub use yaml::{MAX_FILE_BYTES, Origin, Sourced};
