//! Disks, and the receipts on them.

use landfall_api::message::{DiskReport, UnreadableDisk};
use landfall_api::{DiskId, DiskReceipt, Receipt, ReceiptState};

use super::{ConvertError, codec::*};
use crate::v1;

wire! {
    DiskId = v1::DiskId { wwn, serial, path, name, model, size_bytes }
    DiskReport = v1::DiskReport { generation, disks: list, receipts: list, unreadable: list }
    UnreadableDisk = v1::UnreadableDisk { disk: or_unknown, reason }
    DiskReceipt = v1::DiskReceipt { disk: one, receipt: one }
    Receipt = v1::Receipt {
        state: state, machine_uid: parsed, workflow_uid: parsed, workflow_name, generation, action_index,
        image_digest: parsed_if_any, written_at: moment,
    }
}

codec! {
    /// It is always sent.
    or_unknown: Option<v1::DiskId> => DiskId,
        |field, wire| Ok(one_if_any::from(field, wire)?.unwrap_or_default()), |disk| Some(disk.into());

    state: i32 => ReceiptState,
        |field, wire| match v1::ReceiptState::try_from(wire) {
            Ok(v1::ReceiptState::Intent) => Ok(ReceiptState::Intent),
            Ok(v1::ReceiptState::Done) => Ok(ReceiptState::Done),
            Ok(v1::ReceiptState::Unspecified) | Err(_) => Err(ConvertError::missing(field)),
        },
        |state| match state {
            ReceiptState::Intent => v1::ReceiptState::Intent.into(),
            ReceiptState::Done => v1::ReceiptState::Done.into(),
        };
}

#[cfg(test)]
pub(super) mod tests {
    use jiff::Timestamp;
    use landfall_api::Digest;
    use uuid::Uuid;

    use super::*;
    use crate::convert::testing::refused;

    pub(in crate::convert) fn receipt() -> DiskReceipt {
        DiskReceipt {
            disk: DiskId { serial: "s".into(), size_bytes: 5, ..DiskId::default() },
            receipt: Receipt {
                machine_uid: Uuid::from_u128(1),
                workflow_uid: Uuid::from_u128(2),
                workflow_name: "w".into(),
                generation: 4,
                action_index: 1,
                image_digest: Some(Digest::from_sha256([9; 32])),
                state: ReceiptState::Done,
                written_at: Timestamp::new(1_700_000_000, 5).unwrap(),
            },
        }
    }

    #[test]
    fn a_receipt_without_disk_or_state_is_refused_by_field() {
        refused::<v1::DiskReceipt, _>(
            receipt(),
            &[("disk", |wire| wire.disk = None), ("receipt.state", |wire| wire.receipt.as_mut().unwrap().state = 0)],
        );
    }
}
