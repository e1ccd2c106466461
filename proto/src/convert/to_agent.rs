//! What the coordinator says on an open session. An assignment, a welcome and a refusal have files of their own.

use landfall_api::message::{Ack, ActionRef, Control, Ended, ToAgent};

use super::{ConvertError, Within as _, codec::*};
use crate::v1::{self, session_response::Message as Down};

impl TryFrom<v1::SessionResponse> for ToAgent {
    type Error = ConvertError;

    fn try_from(wire: v1::SessionResponse) -> Result<Self, ConvertError> {
        Ok(match wire.message.ok_or_else(|| ConvertError::missing("message"))? {
            Down::Welcome(wire) => Self::Welcome(Box::new(wire.try_into().within("welcome")?)),
            Down::Refused(wire) => Self::Refused(Box::new(wire.try_into().within("refused")?)),
            Down::Assignment(wire) => Self::Assign(Box::new(wire.try_into().within("assignment")?)),
            Down::Check(wire) => Self::Check(Box::new(one::from("check.list", wire.list)?)),
            Down::Inspect(wire) => Self::Inspect(parsed::from("inspect.uid", wire.uid)?),
            Down::Ack(wire) => Self::Ack(wire.try_into().within("ack")?),
            Down::LeaseRenewal(wire) => Self::LeaseRenewal {
                epoch: wire.epoch,
                lease: span::from("lease_renewal.lease", wire.lease)?,
                counts_from: millis_if_any::from("counts_from_ms", wire.counts_from_ms)?,
            },
            Down::Cancel(wire) => Self::Cancel {
                workflow_uid: parsed::from("cancel.workflow_uid", wire.workflow_uid)?,
                reason: wire.reason,
            },
            Down::Fenced(wire) => Self::Fenced { epoch: wire.epoch, reason: wire.reason },
            Down::Idle(wire) => {
                let ended = wire.ended.map(Ended::try_from).transpose().within("idle.ended")?;
                Self::Idle { boot_disk: wire.boot_disk, ended }
            }
            Down::RunControl(wire) => Self::Control {
                workflow_uid: parsed::from("run_control.workflow_uid", wire.workflow_uid)?,
                control: Control { paused: wire.paused, released: wire.released_holds },
            },
        })
    }
}

impl From<ToAgent> for v1::SessionResponse {
    fn from(message: ToAgent) -> Self {
        let message = match message {
            ToAgent::Welcome(welcome) => Down::Welcome((*welcome).into()),
            ToAgent::Refused(refusal) => Down::Refused((*refusal).into()),
            ToAgent::Assign(assigned) => Down::Assignment((*assigned).into()),
            ToAgent::Check(list) => Down::Check(v1::Check { list: one::to(*list) }),
            ToAgent::Inspect(uid) => Down::Inspect(v1::Inspect { uid: uid.to_string() }),
            ToAgent::Ack(ack) => Down::Ack(ack.into()),
            ToAgent::LeaseRenewal { epoch, lease, counts_from } => Down::LeaseRenewal(v1::LeaseRenewal {
                epoch,
                lease: span::to(lease),
                counts_from_ms: millis_if_any::to(counts_from),
            }),
            ToAgent::Control { workflow_uid, control: Control { paused, released } } => {
                let workflow_uid = workflow_uid.to_string();
                Down::RunControl(v1::RunControl { workflow_uid, paused, released_holds: released })
            }
            ToAgent::Cancel { workflow_uid, reason } => {
                Down::Cancel(v1::Cancel { workflow_uid: workflow_uid.to_string(), reason })
            }
            ToAgent::Fenced { epoch, reason } => Down::Fenced(v1::Fenced { epoch, reason }),
            ToAgent::Idle { boot_disk, ended } => Down::Idle(v1::Idle { boot_disk, ended: ended.map(Into::into) }),
        };
        Self { message: Some(message) }
    }
}

impl TryFrom<v1::WorkflowEnd> for Ended {
    type Error = ConvertError;

    fn try_from(wire: v1::WorkflowEnd) -> Result<Self, ConvertError> {
        Ok(Self { workflow_uid: parsed::from("workflow_uid", wire.workflow_uid)?, problem: wire.problem })
    }
}

impl From<Ended> for v1::WorkflowEnd {
    fn from(ended: Ended) -> Self {
        Self { workflow_uid: ended.workflow_uid.to_string(), problem: ended.problem }
    }
}

impl TryFrom<v1::Ack> for Ack {
    type Error = ConvertError;

    fn try_from(wire: v1::Ack) -> Result<Self, ConvertError> {
        let workflow_uid = parsed::from("workflow_uid", wire.workflow_uid)?;
        let action = ActionRef { workflow_uid, action_index: wire.action_index, attempt: wire.attempt };
        Ok(Self { action, seq: wire.seq })
    }
}

impl From<Ack> for v1::Ack {
    fn from(ack: Ack) -> Self {
        Self {
            workflow_uid: ack.action.workflow_uid.to_string(),
            action_index: ack.action.action_index,
            attempt: ack.action.attempt,
            seq: ack.seq,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use landfall_api::message::ToCoordinator;

    use super::*;
    use crate::convert::testing::survives;

    #[test]
    fn a_renewal_counts_from_its_own_moment() {
        let second = Duration::from_secs(1);
        survives::<v1::SessionResponse, _>(ToAgent::LeaseRenewal {
            epoch: 1,
            lease: second,
            counts_from: Some(second),
        });
    }

    #[test]
    fn a_request_to_look_again_is_kept() {
        survives::<v1::SessionResponse, _>(ToAgent::Inspect(uuid::Uuid::from_u128(1)));
    }

    #[test]
    fn a_message_of_an_unknown_kind_is_refused() {
        let up = ToCoordinator::try_from(v1::SessionRequest { message: None }).unwrap_err();
        let down = ToAgent::try_from(v1::SessionResponse { message: None }).unwrap_err();
        assert_eq!((up.field(), down.field()), ("message", "message"));
    }
}
