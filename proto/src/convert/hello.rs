//! The first message of a session, and the answer to it.

use std::time::Duration;

use landfall_api::{
    DiskId, DiskReceipt, ErrorCode, Problem,
    message::{ActionRef, Hello, Refusal, UnreadableDisk, Welcome},
};

use super::{
    ConvertError, Within as _,
    scalar::{duration, duration_to_wire, millis, text, timestamp, timestamp_to_wire, uuid, uuid_if_any},
};
use crate::v1;

impl TryFrom<v1::Hello> for Hello {
    type Error = ConvertError;

    fn try_from(wire: v1::Hello) -> Result<Self, ConvertError> {
        let versions = wire.versions.unwrap_or_default();
        let identity = wire.identity.ok_or_else(|| ConvertError::missing("identity"))?;
        let receipt = |wire| DiskReceipt::try_from(wire).within("receipts");
        Ok(Self {
            software: versions.software,
            protocol: versions.protocol,
            identity: identity.try_into().within("identity")?,
            boot_id: text("boot_id", wire.boot_id)?,
            disks: wire.disks.into_iter().map(DiskId::from).collect(),
            receipts: wire.receipts.into_iter().map(receipt).collect::<Result<_, _>>()?,
            unreadable: wire.unreadable.into_iter().map(UnreadableDisk::from).collect(),
            scanning: wire.scanning,
            last_epoch: wire.last_epoch,
            running: wire.running.map(ActionRef::try_from).transpose().within("running")?,
            enrolled_boottime_ms: wire.enrolled_boottime_ms,
            holds: uuid_if_any("holds", &wire.holds)?,
            boottime: Duration::from_millis(wire.boottime_ms),
        })
    }
}

impl From<Hello> for v1::Hello {
    fn from(hello: Hello) -> Self {
        Self {
            versions: Some(v1::Versions { software: hello.software, protocol: hello.protocol }),
            identity: Some(hello.identity.into()),
            boot_id: hello.boot_id,
            disks: hello.disks.into_iter().map(v1::DiskId::from).collect(),
            receipts: hello.receipts.into_iter().map(v1::DiskReceipt::from).collect(),
            last_epoch: hello.last_epoch,
            running: hello.running.map(v1::RunningAction::from),
            enrolled_boottime_ms: hello.enrolled_boottime_ms,
            holds: hello.holds.map(|uid| uid.to_string()).unwrap_or_default(),
            boottime_ms: millis(hello.boottime),
            scanning: hello.scanning,
            unreadable: hello.unreadable.into_iter().map(v1::UnreadableDisk::from).collect(),
        }
    }
}

impl TryFrom<v1::RunningAction> for ActionRef {
    type Error = ConvertError;

    fn try_from(wire: v1::RunningAction) -> Result<Self, ConvertError> {
        Ok(Self {
            workflow_uid: uuid("workflow_uid", &wire.workflow_uid)?,
            action_index: wire.action_index,
            attempt: wire.attempt,
        })
    }
}

impl From<ActionRef> for v1::RunningAction {
    fn from(action: ActionRef) -> Self {
        Self {
            workflow_uid: action.workflow_uid.to_string(),
            action_index: action.action_index,
            attempt: action.attempt,
        }
    }
}

impl TryFrom<v1::Welcome> for Welcome {
    type Error = ConvertError;

    fn try_from(wire: v1::Welcome) -> Result<Self, ConvertError> {
        let versions = wire.versions.unwrap_or_default();
        Ok(Self {
            epoch: wire.epoch,
            time: timestamp("time", wire.time)?,
            heartbeat_interval: duration("heartbeat_interval", wire.heartbeat_interval)?,
            software: versions.software,
            protocol: versions.protocol,
        })
    }
}

impl From<Welcome> for v1::Welcome {
    fn from(welcome: Welcome) -> Self {
        Self {
            epoch: welcome.epoch,
            time: Some(timestamp_to_wire(welcome.time)),
            heartbeat_interval: Some(duration_to_wire(welcome.heartbeat_interval)),
            versions: Some(v1::Versions { software: welcome.software, protocol: welcome.protocol }),
        }
    }
}

impl TryFrom<v1::Refused> for Refusal {
    type Error = ConvertError;

    fn try_from(wire: v1::Refused) -> Result<Self, ConvertError> {
        let retry_after = wire.retry_after.map(|after| duration("retry_after", Some(after))).transpose()?;
        // A refusal counts, also one that does not say why.
        let unsaid = || Problem::new(ErrorCode::Internal, "the coordinator refuses the session and does not say why");
        Ok(Self { problem: wire.problem.map_or_else(unsaid, Problem::from), retry_after })
    }
}

impl From<Refusal> for v1::Refused {
    fn from(refusal: Refusal) -> Self {
        Self { problem: Some(refusal.problem.into()), retry_after: refusal.retry_after.map(duration_to_wire) }
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::message::Identity;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_hello_survives_the_wire() {
        let whole = Hello {
            software: "1.0.0".into(),
            protocol: 3,
            identity: Identity { serial: "S".into(), ..Identity::default() },
            boot_id: "b".into(),
            disks: vec![DiskId { serial: "D".into(), ..DiskId::default() }],
            receipts: vec![crate::convert::disk::tests::receipt()],
            unreadable: vec![UnreadableDisk { disk: DiskId::default(), reason: "no answer for 10 s".into() }],
            scanning: true,
            last_epoch: 7,
            running: Some(ActionRef { workflow_uid: Uuid::from_u128(1), action_index: 2, attempt: 3 }),
            enrolled_boottime_ms: 9,
            holds: Some(Uuid::from_u128(1)),
            boottime: Duration::from_millis(77),
        };
        let bare = Hello { boot_id: "b".into(), ..Hello::default() };
        for hello in [whole, bare] {
            assert_eq!(Hello::try_from(v1::Hello::from(hello.clone())), Ok(hello));
        }
    }

    #[test]
    fn an_invalid_hello_is_refused_by_its_field() {
        type Spoil = fn(&mut v1::Hello);
        let cases: [(&str, Spoil); 4] = [
            ("identity", |h| h.identity = None),
            ("boot_id", |h| h.boot_id.clear()),
            ("holds", |h| h.holds = "x".into()),
            ("running.workflow_uid", |h| h.running = Some(v1::RunningAction::default())),
        ];
        for (field, spoil) in cases {
            let mut wire = v1::Hello::from(Hello { boot_id: "b".into(), ..Hello::default() });
            spoil(&mut wire);
            assert_eq!(Hello::try_from(wire).unwrap_err().field(), field);
        }
    }

    #[test]
    fn a_refusal_needs_no_reason_but_no_zero_wait() {
        let unsaid = Refusal::try_from(v1::Refused::default()).unwrap();
        assert_eq!((unsaid.problem.code, unsaid.retry_after), (ErrorCode::Internal, None));
        let zero = v1::Refused { problem: None, retry_after: Some(prost_types::Duration::default()) };
        assert_eq!(Refusal::try_from(zero).unwrap_err().field(), "retry_after");
    }
}
