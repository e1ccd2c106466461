//! The request of a write, as a workflow makes it for a blank disk.

use std::path::Path;

use landfall_disk::{Authority, CancelFlag, Image, LeaseGuard, ReceiptIntent, SelectionGuard, WriteRequest, disk_at};
use uuid::Uuid;

/// Workflow number `workflow` of machine 1 writes `image` to the disk at `path`; no person requested it.
pub(crate) fn write_request(path: &Path, image: Image, workflow: u128) -> WriteRequest {
    WriteRequest {
        disk: disk_at(path).unwrap(),
        image,
        keep: Vec::new(),
        read_back: false,
        authority: authority(workflow),
    }
}

/// Of workflow number `workflow` of machine 1; no person requested it.
pub(crate) fn authority(workflow: u128) -> Authority {
    Authority {
        receipt: ReceiptIntent {
            machine_uid: Uuid::from_u128(1),
            workflow_uid: Uuid::from_u128(workflow),
            workflow_name: "w".into(),
            generation: 1,
            action_index: 0,
        },
        expected: Vec::new(),
        person_authorised: false,
        force: false,
        selection: SelectionGuard::named(),
        lease: LeaseGuard::unlimited(),
        cancel: CancelFlag::new(),
    }
}

/// The same, requested by a person.
pub(crate) fn persons(workflow: u128) -> Authority {
    Authority { person_authorised: true, ..authority(workflow) }
}
