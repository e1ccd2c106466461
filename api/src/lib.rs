//! Landfall's documents, action specs and error codes.
//!
//! Pure data: serde for reading and writing, JSON Schema from the same types, validation that reports what is wrong,
//! where, and what to do. This crate does no I/O and reads no clock. Documents have the Kubernetes shape (`apiVersion`,
//! `kind`, `metadata`, `spec`, `status`), group `landfall.dev/v1alpha1`.

#[macro_use]
mod scalar;
#[macro_use]
mod words;

mod access;
mod action;
mod bmc;
mod check;
mod condition;
mod disk_id;
mod dns_label;
mod document;
mod enrolment;
mod error;
mod expression;
mod fact_match;
mod facts;
mod health;
mod image;
mod image_source;
mod issue;
mod labels;
mod list_item;
mod machine;
pub mod message;
mod modules;
mod nearest;
mod network;
mod object;
mod openapi;
mod parameter;
mod pin;
mod pool;
mod power;
mod preview;
mod readable;
mod receipt;
mod redirect;
mod rendered;
mod rule;
mod schema;
mod secret;
mod secret_text;
mod selector;
mod shared;
mod sighting;
mod smbios;
mod stages;
mod template;
mod tools;
mod url;
mod validate;
mod when;
mod wipe;
mod wire;
mod workflow;
mod yaml;

pub use access::{
    ApproveRequest, AuditEntry, AuditOutcome, OperatorRevoked, Role, TokenInfo, TokenIssued, TokenList, TokenRequest,
    UnknownRole,
};
pub use action::*;
pub use bmc::{
    BMC_PASSWORD, BMC_USERNAME, BmcAddress, BmcAddressError, BmcProtocol, BmcSpec, BmcStatus, BmcSystem, BootAttempt,
    BootMedium, BootWay, Characters, ConsoleInput, ConsoleLine, ConsoleRequest, ConsoleTaken, MAX_CONSOLE_INPUT,
    PowerAction, PowerReport, PowerRequest, PowerState, RefusedLogin, Webhook, WebhookCall, WebhookStatus,
    is_bmc_place, place_has,
};
pub use condition::{Condition, ConditionStatus, ConditionType, Reason};
pub use disk_id::DiskId;
pub use dns_label::is_dns_label;
pub use document::Document;
pub use enrolment::{AppliedRule, ApprovedKey, CertificateStatus, EnrolmentStatus, ProofKind, WaitingKey};
pub use error::{ErrorCode, Problem};
pub use expression::{ExpressionError, check_expressions};
pub use fact_match::{FactError, facts_match};
pub use facts::{
    BmcFacts, CpuFacts, DeviceFacts, DiskContents, DiskFacts, DiskHealth, FactChange, FactDifference, FirmwareFacts,
    FirmwareMode, Inspection, MAX_DEVICES, MAX_FACT_CHANGES, MAX_MODULES, MAX_PARTITIONS, MAX_VOLUMES, MachineFacts,
    MemoryFacts, MemoryModule, MemoryNode, Neighbour, NicFacts, PartitionFacts, SmbiosFacts, TpmFacts, VolumeFacts,
    WatchdogFacts, keep_changes,
};
pub use health::{HealthReport, HealthTestKind};
pub use image::{
    AccessSpec, AuthorizationSpec, ImageFormat, ImageSpec, ImageTable, IndexSpec, SignatureSpec, SumsSpec,
    UnknownFormat, Verify,
};
pub use image_source::{ImageAccess, ImageAuthorization, ImageProof, ImageSource, ImageSourceError};
pub use labels::{LabelSelector, LabelSelectorError};
pub use list_item::{ForEachSpec, IncludeSpec};
pub use machine::{
    IdentitySpec, Machine, MachinePhase, MachineSpec, MachineStatus, Management, Reservation, SessionHolder,
};
pub use modules::{MISSING_MODULES, Module, ModuleIndex, ModuleName};
pub use nearest::{edit_distance, nearest};
pub use network::{BondMode, InterfaceError, MAX_INTERFACES, NetworkInterface, NetworkRoute, PortRef};
pub use object::{API_VERSION, Kind, Metadata, Object};
pub use openapi::openapi;
pub use parameter::{Parameter, ParameterFault, ParameterItems, ParameterType};
pub use pin::{Pin, PinError};
pub use pool::{
    POOL_MEMBERS_SHOWN, Pool, PoolClaim, PoolInstall, PoolMember, PoolMemberState, PoolRelease, PoolReleased, PoolSpec,
    PoolStatus,
};
pub use power::{ManualPower, PowerSpec, WakeOnLan};
pub use preview::{Preview, PreviewRequest, PreviewedAction};
pub use readable::readable_bytes;
pub use receipt::{DiskReceipt, RECEIPT_NAME, RECEIPT_PARTITION, RECEIPT_PLACE, Receipt, ReceiptState};
pub use redirect::{SZTP_REDIRECT, SZTP_REDIRECT_V6, redirect_to, redirected};
pub use rendered::{MachineCheck, RenderRequest, RenderedList};
pub use rule::{EnrolmentRule, EnrolmentRuleSpec, EnrolmentRuleStatus};
pub use scalar::{Digest, DurationSpec, MacAddr, ScalarError};
pub use schema::schema;
pub use secret::{Secret, SecretSpec, SecretStatus, with_secret_names};
pub use secret_text::SecretText;
pub use selector::{DiskSelector, SelectorError};
pub use shared::Shared;
pub use sighting::{Sighting, SightingList};
pub use smbios::{smbios_text, smbios_uuid};
pub use stages::{Stage, stages};
pub use template::{Precheck, SuccessOn, Template, TemplateSpec, TemplateStatus};
pub use tools::{ToolsManifest, ToolsProgram};
pub use url::{ImageUrl, UrlError};
pub use validate::{MAX_ACTIONS, validate_actions, validate_rendered};
pub use when::{ActionOutcome, Folded, NamedAction, Others, When, WhenFault, WhenScope, results_scope};
pub use wipe::{WipeLevel, WipeReport};
pub use wire::{
    API_PATH, ApplyOutcome, ApplyResponse, BOOT_TOKEN_PATH, DeprovisionRequest, DetachResponse, EventRecord,
    HistoryEntry, HistoryOperation, List, ListMetadata, LogRecord, ManifestFile, ManifestReport, NO_SUCH_ROUTE,
    ProvisionRequest, SERVER_NAME, WatchLine, WatchType,
};
pub use workflow::{
    ActionState, ActionStatus, Authority, BUILT_IN_DEPROVISION, LeftOut, Pause, Progress, Purpose, Restarts,
    RunRequest, RunRequestKind, Workflow, WorkflowPhase, WorkflowSpec, WorkflowStatus,
};
pub use yaml::{DuplicateKeys, MAX_FILE_BYTES, Origin, Sourced, YamlField, YamlNode, YamlValue, yaml_trees};
