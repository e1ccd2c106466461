//! Events.

use landfall_api::message::{EventBody, EventRecord};

use super::{
    ConvertError, Within as _,
    scalar::{timestamp, timestamp_to_wire, uuid},
};
use crate::v1::{self, event::Event as Wire};

impl TryFrom<v1::Event> for EventRecord {
    type Error = ConvertError;

    fn try_from(wire: v1::Event) -> Result<Self, ConvertError> {
        if wire.attempt == 0 {
            return Err(ConvertError::new("attempt", "attempts count from 1"));
        }
        if wire.seq == 0 {
            return Err(ConvertError::new("seq", "events count from 1"));
        }
        Ok(Self {
            body: wire.event.ok_or_else(|| ConvertError::missing("event"))?.try_into()?,
            workflow_uid: uuid("workflow_uid", &wire.workflow_uid)?,
            action_index: wire.action_index,
            attempt: wire.attempt,
            seq: wire.seq,
            time: timestamp("time", wire.time)?,
        })
    }
}

impl From<EventRecord> for v1::Event {
    fn from(event: EventRecord) -> Self {
        Self {
            workflow_uid: event.workflow_uid.to_string(),
            action_index: event.action_index,
            attempt: event.attempt,
            seq: event.seq,
            time: Some(timestamp_to_wire(event.time)),
            event: Some(event.body.into()),
        }
    }
}

impl TryFrom<Wire> for EventBody {
    type Error = ConvertError;

    fn try_from(wire: Wire) -> Result<Self, ConvertError> {
        Ok(match wire {
            Wire::Started(v1::ActionStarted {}) => Self::Started,
            Wire::Finished(v1::ActionFinished { result }) => Self::Finished {
                result: result
                    .ok_or_else(|| ConvertError::missing("finished.result"))?
                    .try_into()
                    .within("finished")?,
            },
            Wire::Failed(v1::ActionFailed { problem, retryable }) => Self::Failed {
                problem: problem.ok_or_else(|| ConvertError::missing("failed.problem"))?.into(),
                retryable,
            },
            Wire::ReceiptWritten(receipt) => {
                Self::ReceiptWritten { receipt: receipt.try_into().within("receipt_written")? }
            }
        })
    }
}

impl From<EventBody> for Wire {
    fn from(body: EventBody) -> Self {
        match body {
            EventBody::Started => Self::Started(v1::ActionStarted {}),
            EventBody::Finished { result } => Self::Finished(v1::ActionFinished { result: Some(result.into()) }),
            EventBody::Failed { problem, retryable } => {
                Self::Failed(v1::ActionFailed { problem: Some(problem.into()), retryable })
            }
            EventBody::ReceiptWritten { receipt } => Self::ReceiptWritten(receipt.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use landfall_api::{
        DiskId, ErrorCode, Problem,
        message::{ActionRef, ActionResult, ClearDisksResult, CloudInitResult, KexecResult, ToCoordinator},
    };
    use uuid::Uuid;

    use super::*;

    fn event(body: EventBody) -> EventRecord {
        let action = ActionRef { workflow_uid: Uuid::from_u128(1), action_index: 2, attempt: 3 };
        EventRecord::of(action, 4, Timestamp::new(1_700_000_000, 5).unwrap(), body)
    }

    #[test]
    fn every_event_survives_the_wire() {
        let kexec = KexecResult {
            root_device: "/dev/vda3".into(),
            kernel: "/boot/vmlinuz".into(),
            initramfs: "/boot/initrd.img".into(),
            cmdline: "ro".into(),
        };
        let results = [
            ActionResult::CloudInit(CloudInitResult { root_device: "vda1".into() }),
            ActionResult::Hold,
            ActionResult::Reboot,
            ActionResult::PowerOff,
            ActionResult::ClearDisks(ClearDisksResult {
                disks: vec![DiskId { serial: "D".into(), ..DiskId::default() }],
            }),
            ActionResult::Kexec(kexec),
        ];
        let problem = Problem::new(ErrorCode::DeviceIo, "m");
        let receipt = crate::convert::disk::tests::receipt();
        let others =
            [EventBody::Started, EventBody::Failed { problem, retryable: true }, EventBody::ReceiptWritten { receipt }];
        for body in results.map(|result| EventBody::Finished { result }).into_iter().chain(others) {
            let sent = event(body);
            assert_eq!(EventRecord::try_from(v1::Event::from(sent.clone())), Ok(sent));
        }
    }

    #[test]
    fn an_invalid_event_is_refused_by_its_field() {
        type Spoil = fn(&mut v1::Event);
        let cases: [(&str, Spoil); 6] = [
            ("event.attempt", |e| e.attempt = 0),
            ("event.seq", |e| e.seq = 0),
            ("event.time", |e| e.time = None),
            ("event.workflow_uid", |e| e.workflow_uid = "x".into()),
            ("event.event", |e| e.event = None),
            ("event.finished.result", |e| e.event = Some(Wire::Finished(v1::ActionFinished { result: None }))),
        ];
        for (field, spoil) in cases {
            let mut wire = v1::Event::from(event(EventBody::Started));
            spoil(&mut wire);
            let message = Some(v1::session_request::Message::Event(wire));
            assert_eq!(ToCoordinator::try_from(v1::SessionRequest { message }).unwrap_err().field(), field);
        }
    }
}
