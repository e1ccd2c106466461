//! What an agent says on its open session: events and heartbeats here. A hello, disks, facts, results and problems have
//! files of their own.

use std::time::Duration;

use landfall_api::message::{EventBody, EventRecord, ToCoordinator, Vitals};

use super::{
    ConvertError, Within as _,
    scalar::{millis, timestamp, timestamp_to_wire, uuid},
};
use crate::v1::{self, event::Event as Wire, session_request::Message as Up};

impl TryFrom<v1::SessionRequest> for ToCoordinator {
    type Error = ConvertError;

    fn try_from(wire: v1::SessionRequest) -> Result<Self, ConvertError> {
        Ok(match wire.message.ok_or_else(|| ConvertError::missing("message"))? {
            Up::Hello(wire) => Self::Hello(wire.try_into().within("hello")?),
            Up::DiskReport(wire) => Self::Disks(wire.try_into().within("disk_report")?),
            Up::Facts(wire) => Self::Facts(Box::new(wire.try_into().within("facts")?)),
            Up::Heartbeat(wire) => Self::Heartbeat(wire.into()),
            Up::Event(wire) => Self::Event(wire.try_into().within("event")?),
            Up::Checked(wire) => Self::Checked {
                list_uid: uuid("checked.list_uid", &wire.list_uid)?,
                problem: wire.problem.map(|problem| Box::new(problem.into())),
            },
            Up::FenceAck(wire) => Self::FenceAck { epoch: wire.epoch },
        })
    }
}

impl TryFrom<ToCoordinator> for v1::SessionRequest {
    type Error = ConvertError;

    /// Fails only for facts that do not serialise.
    fn try_from(message: ToCoordinator) -> Result<Self, ConvertError> {
        let message = match message {
            ToCoordinator::Hello(hello) => Up::Hello(hello.into()),
            ToCoordinator::Disks(report) => Up::DiskReport(report.into()),
            ToCoordinator::Facts(facts) => Up::Facts((&*facts).try_into()?),
            ToCoordinator::Heartbeat(vitals) => Up::Heartbeat(vitals.into()),
            ToCoordinator::Event(event) => Up::Event(event.into()),
            ToCoordinator::Checked { list_uid, problem } => Up::Checked(v1::Checked {
                list_uid: list_uid.to_string(),
                problem: problem.map(|problem| (*problem).into()),
            }),
            ToCoordinator::FenceAck { epoch } => Up::FenceAck(v1::FenceAck { epoch }),
        };
        Ok(Self { message: Some(message) })
    }
}

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
            Wire::Skipped(v1::ActionSkipped {}) => Self::Skipped,
            Wire::ReceiptWritten(receipt) => {
                Self::ReceiptWritten { receipt: receipt.try_into().within("receipt_written")? }
            }
            Wire::DiskWiped(report) => Self::DiskWiped { report: report.try_into().within("disk_wiped")? },
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
            EventBody::Skipped => Self::Skipped(v1::ActionSkipped {}),
            EventBody::ReceiptWritten { receipt } => Self::ReceiptWritten(receipt.into()),
            EventBody::DiskWiped { report } => Self::DiskWiped(report.into()),
        }
    }
}

impl From<v1::Heartbeat> for Vitals {
    fn from(wire: v1::Heartbeat) -> Self {
        Self { uptime: Duration::from_millis(wire.uptime_ms), peak_rss_bytes: wire.peak_rss_bytes }
    }
}

impl From<Vitals> for v1::Heartbeat {
    fn from(vitals: Vitals) -> Self {
        Self { uptime_ms: millis(vitals.uptime), peak_rss_bytes: vitals.peak_rss_bytes }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use landfall_api::{
        DiskId, ErrorCode, MachineFacts, Problem, WipeLevel, WipeReport,
        message::{ActionRef, ActionResult, CloudInitResult, DiskReport, KexecResult, UnreadableDisk, WipeResult},
    };
    use uuid::Uuid;

    use super::*;

    #[test]
    fn every_message_to_the_coordinator_survives_the_wire() {
        let report = DiskReport {
            generation: 2,
            disks: vec![DiskId { serial: "D".into(), ..DiskId::default() }],
            receipts: vec![crate::convert::disk::tests::receipt()],
            unreadable: vec![UnreadableDisk { disk: DiskId::default(), reason: "r".into() }],
        };
        for message in [
            ToCoordinator::Disks(report),
            ToCoordinator::Facts(Box::new(MachineFacts { memory_bytes: 5, ..MachineFacts::default() })),
            ToCoordinator::Heartbeat(Vitals { uptime: Duration::from_secs(1), peak_rss_bytes: 2 }),
            ToCoordinator::FenceAck { epoch: 3 },
        ] {
            let wire = v1::SessionRequest::try_from(message.clone()).unwrap();
            assert_eq!(ToCoordinator::try_from(wire), Ok(message));
        }
    }

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
        let wiped = WipeReport {
            disk: DiskId { serial: "D".into(), ..DiskId::default() },
            asked: WipeLevel::Secure,
            level: WipeLevel::Zero,
            method: "zeroes".into(),
            started_at: Timestamp::new(1_700_000_000, 5).unwrap(),
            ended_at: Timestamp::new(1_700_000_900, 0).unwrap(),
            samples: 33,
            limits: vec!["it is frozen".into()],
            workflow: String::new(),
        };
        let results = [
            ActionResult::CloudInit(CloudInitResult { root_device: "vda1".into() }),
            ActionResult::Hold,
            ActionResult::Reboot,
            ActionResult::PowerOff,
            ActionResult::Wipe(WipeResult { disks: vec![wiped.disk.clone()] }),
            ActionResult::Kexec(kexec),
        ];
        let problem = Problem::new(ErrorCode::DeviceIo, "m");
        let receipt = crate::convert::disk::tests::receipt();
        let others = [
            EventBody::Started,
            EventBody::Skipped,
            EventBody::Failed { problem, retryable: true },
            EventBody::ReceiptWritten { receipt },
            EventBody::DiskWiped { report: wiped },
        ];
        for body in results.map(|result| EventBody::Finished { result }).into_iter().chain(others) {
            let sent = event(body);
            assert_eq!(EventRecord::try_from(v1::Event::from(sent.clone())), Ok(sent));
        }
    }

    #[test]
    fn an_invalid_event_is_refused_by_its_field() {
        type Spoil = fn(&mut v1::Event);
        let cases: [(&str, Spoil); 7] = [
            ("event.attempt", |e| e.attempt = 0),
            ("event.seq", |e| e.seq = 0),
            ("event.time", |e| e.time = None),
            ("event.workflow_uid", |e| e.workflow_uid = "x".into()),
            ("event.event", |e| e.event = None),
            ("event.disk_wiped.disk", |e| e.event = Some(Wire::DiskWiped(v1::WipeReport::default()))),
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
