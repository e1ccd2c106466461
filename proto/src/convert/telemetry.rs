//! Progress and log lines.

use landfall_api::Progress;
use landfall_api::message::{ActionRef, LogLine, Telemetry};

use super::{ConvertError, codec::*};
use crate::v1::{self, telemetry_request::Item};

impl TryFrom<v1::TelemetryRequest> for Telemetry {
    type Error = ConvertError;

    fn try_from(wire: v1::TelemetryRequest) -> Result<Self, ConvertError> {
        let workflow_uid = parsed::from("telemetry.workflow_uid", wire.workflow_uid)?;
        let (action_index, attempt) = (wire.action_index, wire.attempt);
        Ok(match wire.item.ok_or_else(|| ConvertError::missing("telemetry.item"))? {
            Item::Progress(wire) => {
                Self::Progress { action: ActionRef { workflow_uid, action_index, attempt }, progress: wire.try_into()? }
            }
            Item::Log(wire) => Self::Log {
                workflow_uid,
                line: LogLine {
                    time: moment::from("telemetry.log.time", wire.time)?,
                    level: parsed::from("telemetry.log.level", wire.level)?,
                    action_index,
                    attempt,
                    message: wire.message,
                },
            },
        })
    }
}

impl From<Telemetry> for v1::TelemetryRequest {
    fn from(telemetry: Telemetry) -> Self {
        let (workflow_uid, action_index, attempt, item) = match telemetry {
            Telemetry::Progress { action, progress } => {
                (action.workflow_uid, action.action_index, action.attempt, Item::Progress(progress.into()))
            }
            Telemetry::Log { workflow_uid, line: LogLine { time, level, action_index, attempt, message } } => {
                let line = v1::LogLine { time: moment::to(time), level: parsed::to(level), message };
                (workflow_uid, action_index, attempt, Item::Log(line))
            }
        };
        Self { workflow_uid: workflow_uid.to_string(), action_index, attempt, item: Some(item) }
    }
}

wire! {
    Progress = v1::Progress {
        stored_bytes, stored_total, raw_bytes, raw_total, written_bytes, bytes_per_second, stage, eta_seconds, slowest,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use landfall_api::message::LogLevel;
    use uuid::Uuid;

    use super::*;
    use crate::convert::testing::survives;

    fn line(level: LogLevel) -> Telemetry {
        Telemetry::Log {
            workflow_uid: Uuid::from_u128(1),
            line: LogLine { time: Timestamp::UNIX_EPOCH, level, action_index: 2, attempt: 3, message: "m".into() },
        }
    }

    #[test]
    fn telemetry_survives_the_wire() {
        let action = ActionRef { workflow_uid: Uuid::from_u128(1), action_index: 2, attempt: 3 };
        let progress = Progress { raw_bytes: 5, stage: "write".into(), ..Progress::default() };
        let lines = LogLevel::ALL.map(line);
        for telemetry in lines.into_iter().chain([Telemetry::Progress { action, progress }]) {
            survives::<v1::TelemetryRequest, _>(telemetry);
        }
    }

    #[test]
    fn a_level_that_does_not_exist_is_refused() {
        let mut wire = v1::TelemetryRequest::from(line(LogLevel::Info));
        let Some(Item::Log(said)) = &mut wire.item else { panic!() };
        said.level = "loud".into();
        assert_eq!(Telemetry::try_from(wire).unwrap_err().field(), "telemetry.log.level");
    }
}
