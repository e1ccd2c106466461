//! The protocol's revisions, and what each of them brought.
//!
//! Either side speaks with any revision from [`OLDEST_PROTOCOL`] on: fields are only added, and a message of a kind that the
//! receiver does not know is answered with a problem. The coordinator hands a workflow that needs a newer revision than its
//! agent speaks to no such agent, and says so in the workflow's conditions.
//!
//! 2 brought branches, `hold`, `powerOff`, lists that are done after a failure, workflows that take over an earlier one's
//! work, and `RunControl` (pause, resume). 3 brought `kexec`.

/// The first: `writeImage`, `cloudInit`, `reboot`.
pub const FIRST: u32 = 1;

/// Brought `DiskReport`: a hello no longer waits until every bus was scanned.
pub const DISK_REPORTS: u32 = 5;

/// Brought `Check`: an agent says of a list whether it would begin to write.
pub const CHECKS: u32 = 7;

/// Brought the tools layer: `Assignment.tools`, and landfall.worker.v1. A change of worker.proto alone is one of this number too.
pub const TOOLS: u32 = 7;

/// Brought vendor-data.
pub const VENDOR_DATA: u32 = 8;

/// Brought `wipe`, in place of `clearDisks`; and `efiBoot`.
pub const WIPE: u32 = 8;

/// Brought `commits` and `commit` in the worker's jobs: an agent without them would have no layout make its disks start.
pub const LAYOUT_COMMIT: u32 = 9;

/// Brought `Inspect`: an agent looks at its machine again when it is asked.
pub const INSPECT: u32 = 10;

/// The revision of the `.proto` files in this crate: that of the newest action (each declares its own in `landfall-api`), or
/// that of the newest change apart from actions.
pub const PROTOCOL: u32 = landfall_api::ToolsManifest::PROTOCOL;
const _: () = assert!(
    PROTOCOL >= TOOLS
        && PROTOCOL >= CHECKS
        && PROTOCOL >= VENDOR_DATA
        && PROTOCOL >= WIPE
        && PROTOCOL >= LAYOUT_COMMIT
        && PROTOCOL >= INSPECT,
    "landfall-api states an older revision"
);

/// The oldest revision that either side still speaks.
pub const OLDEST_PROTOCOL: u32 = FIRST;
