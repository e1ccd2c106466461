//! The first message of a session, and the answer to it.

use landfall_api::message::{ActionRef, Hello, Refusal, Welcome};
use landfall_api::{ErrorCode, Problem};

use super::codec::*;
use crate::v1;

wire! {
    Hello = v1::Hello {
        identity: one, boot_id: text, disks: list, receipts: list, unreadable: list, scanning, last_epoch,
        running: one_if_any, enrolled_boottime_ms, holds: parsed_if_any, boottime: millis(boottime_ms),
        ..versions: v1::Versions { software, protocol }
    }
    ActionRef = v1::RunningAction { workflow_uid: parsed, action_index, attempt }
    Welcome = v1::Welcome {
        epoch, time: moment, heartbeat_interval: span, others,
        ..versions: v1::Versions { software, protocol }
    }
    Refusal = v1::Refused { retry_after: span_if_any, problem: said }
}

codec! {
    /// A refusal counts, also one that does not say why.
    said: Option<v1::Problem> => Problem,
        |_, wire| {
            let unsaid = "the coordinator refuses the session and does not say why";
            Ok(wire.map_or_else(|| Problem::new(ErrorCode::Internal, unsaid), Problem::from))
        },
        |problem| Some(problem.into());
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use landfall_api::DiskId;
    use landfall_api::message::{Identity, UnreadableDisk};
    use uuid::Uuid;

    use super::*;
    use crate::convert::testing::{refused, survives};

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
            survives::<v1::Hello, _>(hello);
        }
    }

    #[test]
    fn an_invalid_hello_is_refused_by_its_field() {
        refused::<v1::Hello, _>(
            Hello { boot_id: "b".into(), ..Hello::default() },
            &[
                ("identity", |h| h.identity = None),
                ("boot_id", |h| h.boot_id.clear()),
                ("holds", |h| h.holds = "x".into()),
                ("running.workflow_uid", |h| h.running = Some(v1::RunningAction::default())),
            ],
        );
    }

    #[test]
    fn a_refusal_needs_no_reason_but_no_zero_wait() {
        let unsaid = Refusal::try_from(v1::Refused::default()).unwrap();
        assert_eq!((unsaid.problem.code, unsaid.retry_after), (ErrorCode::Internal, None));
        let zero = v1::Refused { problem: None, retry_after: Some(prost_types::Duration::default()) };
        assert_eq!(Refusal::try_from(zero).unwrap_err().field(), "retry_after");
    }
}
