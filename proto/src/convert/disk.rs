//! Disks, and the receipts on them.

use landfall_api::{
    DiskId, DiskReceipt, Receipt, ReceiptState,
    message::{DiskReport, UnreadableDisk},
};

use super::{
    ConvertError, Within as _,
    scalar::{digest_if_any, timestamp, timestamp_to_wire, uuid},
};
use crate::v1;

impl From<v1::DiskId> for DiskId {
    fn from(wire: v1::DiskId) -> Self {
        let v1::DiskId { wwn, serial, path, name, model, size_bytes } = wire;
        Self { wwn, serial, path, name, model, size_bytes }
    }
}

impl From<DiskId> for v1::DiskId {
    fn from(id: DiskId) -> Self {
        let DiskId { wwn, serial, path, name, model, size_bytes } = id;
        Self { wwn, serial, path, name, model, size_bytes }
    }
}

impl TryFrom<v1::DiskReport> for DiskReport {
    type Error = ConvertError;

    fn try_from(wire: v1::DiskReport) -> Result<Self, ConvertError> {
        let receipt = |wire| DiskReceipt::try_from(wire).within("receipts");
        Ok(Self {
            generation: wire.generation,
            disks: wire.disks.into_iter().map(DiskId::from).collect(),
            receipts: wire.receipts.into_iter().map(receipt).collect::<Result<_, _>>()?,
            unreadable: wire.unreadable.into_iter().map(UnreadableDisk::from).collect(),
        })
    }
}

impl From<DiskReport> for v1::DiskReport {
    fn from(report: DiskReport) -> Self {
        Self {
            generation: report.generation,
            disks: report.disks.into_iter().map(v1::DiskId::from).collect(),
            receipts: report.receipts.into_iter().map(v1::DiskReceipt::from).collect(),
            unreadable: report.unreadable.into_iter().map(v1::UnreadableDisk::from).collect(),
        }
    }
}

impl From<v1::UnreadableDisk> for UnreadableDisk {
    fn from(wire: v1::UnreadableDisk) -> Self {
        Self { disk: wire.disk.map(DiskId::from).unwrap_or_default(), reason: wire.reason }
    }
}

impl From<UnreadableDisk> for v1::UnreadableDisk {
    fn from(found: UnreadableDisk) -> Self {
        Self { disk: Some(found.disk.into()), reason: found.reason }
    }
}

impl TryFrom<v1::DiskReceipt> for DiskReceipt {
    type Error = ConvertError;

    fn try_from(wire: v1::DiskReceipt) -> Result<Self, ConvertError> {
        let disk = wire.disk.ok_or_else(|| ConvertError::missing("disk"))?;
        let receipt = wire.receipt.ok_or_else(|| ConvertError::missing("receipt"))?;
        Ok(Self { disk: disk.into(), receipt: receipt.try_into().within("receipt")? })
    }
}

impl From<DiskReceipt> for v1::DiskReceipt {
    fn from(found: DiskReceipt) -> Self {
        Self { disk: Some(found.disk.into()), receipt: Some(found.receipt.into()) }
    }
}

impl TryFrom<v1::Receipt> for Receipt {
    type Error = ConvertError;

    fn try_from(wire: v1::Receipt) -> Result<Self, ConvertError> {
        let state = match wire.state() {
            v1::ReceiptState::Intent => ReceiptState::Intent,
            v1::ReceiptState::Done => ReceiptState::Done,
            v1::ReceiptState::Unspecified => return Err(ConvertError::missing("state")),
        };
        Ok(Self {
            machine_uid: uuid("machine_uid", &wire.machine_uid)?,
            workflow_uid: uuid("workflow_uid", &wire.workflow_uid)?,
            workflow_name: wire.workflow_name,
            generation: wire.generation,
            action_index: wire.action_index,
            image_digest: digest_if_any("image_digest", &wire.image_digest)?,
            state,
            written_at: timestamp("written_at", wire.written_at)?,
        })
    }
}

impl From<Receipt> for v1::Receipt {
    fn from(receipt: Receipt) -> Self {
        let state = match receipt.state {
            ReceiptState::Intent => v1::ReceiptState::Intent,
            ReceiptState::Done => v1::ReceiptState::Done,
        };
        Self {
            machine_uid: receipt.machine_uid.to_string(),
            workflow_uid: receipt.workflow_uid.to_string(),
            workflow_name: receipt.workflow_name,
            generation: receipt.generation,
            action_index: receipt.action_index,
            image_digest: receipt.image_digest.map(|digest| digest.to_string()).unwrap_or_default(),
            state: state.into(),
            written_at: Some(timestamp_to_wire(receipt.written_at)),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use jiff::Timestamp;
    use landfall_api::Digest;
    use uuid::Uuid;

    use super::*;

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
    fn a_receipt_survives_the_wire_in_both_directions() {
        assert_eq!(DiskReceipt::try_from(v1::DiskReceipt::from(receipt())), Ok(receipt()));
    }

    #[test]
    fn a_receipt_without_disk_or_state_is_refused_by_field() {
        let whole = v1::DiskReceipt::from(receipt());
        let no_disk = v1::DiskReceipt { disk: None, ..whole.clone() };
        assert_eq!(DiskReceipt::try_from(no_disk).unwrap_err().field(), "disk");
        let stateless = v1::Receipt { state: 0, ..whole.receipt.clone().unwrap() };
        let stateless = v1::DiskReceipt { receipt: Some(stateless), ..whole };
        assert_eq!(DiskReceipt::try_from(stateless).unwrap_err().field(), "receipt.state");
    }
}
