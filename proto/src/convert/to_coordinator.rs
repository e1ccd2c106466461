//! What an agent says on its open session: events and heartbeats here. A hello, disks, facts, results and problems have
//! files of their own.

use landfall_api::message::{EventBody, EventRecord, ToCoordinator, Vitals};

use super::{ConvertError, Within as _, codec::*};
use crate::v1::{self, event::Event as Wire, session_request::Message as Up};

impl TryFrom<v1::SessionRequest> for ToCoordinator {
    type Error = ConvertError;

    fn try_from(wire: v1::SessionRequest) -> Result<Self, ConvertError> {
        Ok(match wire.message.ok_or_else(|| ConvertError::missing("message"))? {
            Up::Hello(wire) => Self::Hello(wire.try_into().within("hello")?),
            Up::DiskReport(wire) => Self::Disks(wire.try_into().within("disk_report")?),
            Up::Facts(wire) => Self::Facts(Box::new(wire.try_into().within("facts")?)),
            Up::Heartbeat(wire) => Self::Heartbeat(wire.try_into()?),
            Up::Event(wire) => Self::Event(wire.try_into().within("event")?),
            Up::Checked(wire) => Self::Checked {
                list_uid: parsed::from("checked.list_uid", wire.list_uid)?,
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
                list_uid: parsed::to(list_uid),
                problem: problem.map(|problem| (*problem).into()),
            }),
            ToCoordinator::FenceAck { epoch } => Up::FenceAck(v1::FenceAck { epoch }),
        };
        Ok(Self { message: Some(message) })
    }
}

wire! {
    EventRecord = v1::Event, checked by counts {
        body: oneof(event), workflow_uid: parsed, action_index, attempt, seq, time: moment,
    }
    Vitals = v1::Heartbeat { uptime: millis(uptime_ms), peak_rss_bytes }
}

fn counts(wire: &v1::Event) -> Result<(), ConvertError> {
    match (wire.attempt, wire.seq) {
        (0, _) => Err(ConvertError::new("attempt", "attempts count from 1")),
        (_, 0) => Err(ConvertError::new("seq", "events count from 1")),
        _ => Ok(()),
    }
}

impl TryFrom<Wire> for EventBody {
    type Error = ConvertError;

    fn try_from(wire: Wire) -> Result<Self, ConvertError> {
        Ok(match wire {
            Wire::Started(v1::ActionStarted {}) => Self::Started,
            Wire::Finished(v1::ActionFinished { result }) => {
                let result = result.ok_or_else(|| ConvertError::missing("finished.result"))?;
                Self::Finished { result: result.try_into().within("finished")? }
            }
            Wire::Failed(v1::ActionFailed { problem, retryable }) => Self::Failed {
                problem: problem.ok_or_else(|| ConvertError::missing("failed.problem"))?.into(),
                retryable,
            },
            Wire::Skipped(v1::ActionSkipped {}) => Self::Skipped,
            Wire::ReceiptWritten(receipt) => {
                Self::ReceiptWritten { receipt: receipt.try_into().within("receipt_written")? }
            }
            Wire::DiskWiped(report) => Self::DiskWiped { report: report.try_into().within("disk_wiped")? },
            Wire::HealthTested(report) => Self::HealthTested { report: report.try_into().within("health_tested")? },
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
            EventBody::HealthTested { report } => Self::HealthTested(report.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use landfall_api::message::ActionRef;
    use uuid::Uuid;

    use super::*;
    use crate::convert::testing::refused;

    #[test]
    fn an_invalid_event_is_refused_by_its_field() {
        fn event_of(wire: &mut v1::SessionRequest) -> &mut v1::Event {
            match &mut wire.message {
                Some(Up::Event(event)) => event,
                _ => unreachable!(),
            }
        }
        let action = ActionRef { workflow_uid: Uuid::from_u128(1), action_index: 2, attempt: 3 };
        refused::<v1::SessionRequest, _>(
            ToCoordinator::Event(EventRecord::of(action, 4, Timestamp::UNIX_EPOCH, EventBody::Started)),
            &[
                ("event.attempt", |w| event_of(w).attempt = 0),
                ("event.seq", |w| event_of(w).seq = 0),
                ("event.time", |w| event_of(w).time = None),
                ("event.workflow_uid", |w| event_of(w).workflow_uid = "x".into()),
                ("event.event", |w| event_of(w).event = None),
                ("event.disk_wiped.disk", |w| event_of(w).event = Some(Wire::DiskWiped(v1::WipeReport::default()))),
                ("event.finished.result", |w| {
                    event_of(w).event = Some(Wire::Finished(v1::ActionFinished { result: None }))
                }),
            ],
        );
    }
}
