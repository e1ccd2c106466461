//! The bodies of the operators' HTTP/JSON routes that are not documents themselves. The coordinator writes them, the
//! command line and any other program reads them; the OpenAPI document is made from the same types.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use uuid::Uuid;

use crate::{DiskSelector, Problem, WipeLevel};

/// The path under which the documents live.
pub const API_PATH: &str = "/apis/landfall.dev/v1alpha1";

/// Where an agent without a boot token asks for one, on the TLS port: `?mac=`, and `&uuid=` if the machine has one.
pub const BOOT_TOKEN_PATH: &str = "/boot-token";

/// The message of a refused path that no route has. A client that reads it knows that its coordinator is older than itself.
pub const NO_SUCH_ROUTE: &str = "there is no such route";

/// The fixed logical name in the coordinator's server certificate. Clients check this, never an address. The agent's
/// contract has the same constant; a test of the coordinator compares them.
pub const SERVER_NAME: &str = "coordinator.landfall.internal";

/// What an apply did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ApplyOutcome {
    /// There was no document of that kind and name.
    Created,
    /// `spec` or labels changed.
    Configured,
    /// The document is already as stated.
    Unchanged,
}

impl std::fmt::Display for ApplyOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
        })
    }
}

/// The answer to `POST …/apply`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplyResponse<D> {
    /// What happened, or with `dryRun` would have happened.
    pub outcome: ApplyOutcome,
    /// The document as it is stored, or would be.
    pub object: D,
}

/// The answer to a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct List<D> {
    /// The documents, by name.
    pub items: Vec<D>,
    /// The list's position.
    pub metadata: ListMetadata,
}

/// A list's position.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListMetadata {
    /// The store's revision at the time, of all pages that of the first: a watch from here misses nothing.
    pub resource_version: u64,
    /// The list has more documents: give this as `continue` to get the next page.
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// About how many documents the pages to come have. Absent in the last page, and where a selector decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<u64>,
}

/// What happened to a watched document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum WatchType {
    /// It was created.
    Added,
    /// It changed.
    Modified,
    /// It was deleted; the object is its last state.
    Deleted,
    /// No change: the stream is alive, and a client can continue from `resourceVersion`.
    Bookmark,
    /// The stream ends here; `problem` says why. Code `Expired`: list again, then watch from there.
    Error,
}

/// One line of a watch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WatchLine<D> {
    /// What happened.
    #[serde(rename = "type")]
    pub kind: WatchType,
    /// The revision of this change.
    pub resource_version: u64,
    /// The document; absent in bookmarks and errors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<D>,
    /// Why the stream ends; only in errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// The body of `POST …/machines/{name}/provision`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProvisionRequest {
    /// Name of the template.
    pub template: String,
    /// Values for its parameters.
    #[serde(default)]
    pub parameters: BTreeMap<String, serde_json::Value>,
    /// Accept any receipt on the disk.
    #[serde(default)]
    pub force: bool,
    /// The `digest` of the preview that the person agreed to. Where the request would destroy anything else by now, the
    /// coordinator refuses it with `Conflict`. Default: nothing is compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expects: Option<String>,
}

/// The body of `POST …/machines/{name}/deprovision`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DeprovisionRequest {
    /// Accept any receipt on the disks.
    pub force: bool,
    /// Which disks; exactly one must match each. Default: every disk that carries a receipt of this machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskSelector>,
    /// How thoroughly they are wiped.
    #[serde(skip_serializing_if = "WipeLevel::is_default")]
    pub level: WipeLevel,
    /// Levels that will do for a disk that does not support `level`, best first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<WipeLevel>,
    /// The machine is turned off afterwards, in place of a restart.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub power_off: bool,
    /// As in [`ProvisionRequest`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expects: Option<String>,
}

/// The answer to `POST …/machines/{name}/detach`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DetachResponse<D> {
    /// The document. It is removed, or with a `deletionTimestamp` it is removed as soon as no agent of it can still
    /// act.
    pub object: D,
    /// What stays on the machine, in sentences for people.
    pub stays: Vec<String>,
}

/// One stored event of a workflow, as people and programs read it.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventRecord {
    /// Position in the event log: `?after=` continues from here.
    pub position: u64,
    /// When it happened, by the reporter's clock.
    pub time: Timestamp,
    /// The machine's name.
    pub machine: String,
    /// The run's name.
    pub workflow: String,
    /// The run.
    pub workflow_uid: Uuid,
    /// Which action, by its place in the list; absent for events of the workflow itself.
    pub action_index: Option<u32>,
    /// The action's name; empty for events of the workflow itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub action: String,
    /// The attempt, from 1; 0 for events of the workflow itself.
    #[serde(default)]
    pub attempt: u32,
    /// One CamelCase word for programs: `Started`, `Finished`, `Failed`, `ReceiptWritten`, `DiskWiped`, `Cancelled`, `PhonedHome`, …
    pub reason: String,
    /// One sentence for people.
    pub message: String,
    /// The failure; only where there is one.
    pub problem: Option<Problem>,
}

/// What was done to a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HistoryOperation {
    /// It was created.
    Created,
    /// Labels, spec, finalizers or phase changed.
    Changed,
    /// Its deletion was requested; it is removed with its last finalizer.
    DeletionRequested,
    /// It is gone.
    Deleted,
}

/// One change of a document, as `GET …/{plural}/{name}/history` answers them, one a line, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// The store's revision after it.
    pub resource_version: u64,
    /// The document's generation after it.
    pub generation: u64,
    /// The time of the request, by the coordinator's clock.
    pub time: Timestamp,
    /// Who requested it; `coordinator` for its own changes.
    pub who: String,
    /// What was done.
    pub operation: HistoryOperation,
    /// A JSON merge patch (RFC 7396) over metadata, spec and `status.phase`: the changed fields; `null` for removed
    /// ones. Of a document that was created or deleted, all of it.
    pub change: serde_json::Value,
    /// The size of a change that is too large to keep, bytes; then `change` is null. Otherwise 0 and left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted_bytes: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// One log line of a workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogRecord {
    /// When, by the agent's clock.
    pub time: Timestamp,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
    /// The action's name; empty if it belongs to none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub action: String,
    /// The attempt, from 1.
    #[serde(default)]
    pub attempt: u32,
    /// The line.
    pub message: String,
}

/// The answer to `GET …/manifests`: the result of the last scan of the directory of manifests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManifestReport {
    /// The directory; empty if none is configured.
    pub directory: String,
    /// When it was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scanned_at: Option<Timestamp>,
    /// Its files, by name.
    pub files: Vec<ManifestFile>,
    /// Faults of the directory as a whole, and failed deletions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
}

/// One file of manifests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManifestFile {
    /// Its name.
    pub file: String,
    /// Documents in it; 0 if it does not parse.
    pub documents: u64,
    /// Documents that were applied, now or before.
    pub applied: u64,
    /// Notices for a person that are not faults.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// All its faults, each with file and line. Documents without a fault are still applied, unless the file does not
    /// parse.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
}
