//! To the agent.

mod image;

use std::{collections::HashMap, time::Duration};

use jiff::Timestamp;
use landfall_api::{ActionSpec, DiskId, DiskReceipt, DiskSelector, Problem, ReceiptState};
use landfall_machine::run::policy;
use landfall_proto::{PROTOCOL, v1};

use crate::engine::{AssignedAction, Assignment, Enrolment, Refusal, Seed, ToAgent};

/// This coordinator's versions.
pub(crate) fn versions() -> v1::Versions {
    v1::Versions { software: env!("CARGO_PKG_VERSION").to_owned(), protocol: PROTOCOL }
}

/// A moment.
pub(crate) fn timestamp_to_wire(at: Timestamp) -> prost_types::Timestamp {
    // The wire counts nanoseconds forward from the second, jiff towards zero.
    let nanos = at.as_nanosecond();
    let seconds = i64::try_from(nanos.div_euclid(1_000_000_000)).unwrap_or(0);
    prost_types::Timestamp { seconds, nanos: i32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap_or(0) }
}

fn duration(span: Duration) -> prost_types::Duration {
    // A `Duration` too long for the wire is longer than any machine lives.
    prost_types::Duration::try_from(span).unwrap_or(prost_types::Duration { seconds: i64::MAX, nanos: 0 })
}

/// A failure.
pub(crate) fn problem_to_wire(problem: Problem) -> v1::Problem {
    v1::Problem {
        code: problem.code.as_str().to_owned(),
        message: problem.message,
        causes: problem.causes,
        hint: problem.hint,
        subject: problem.subject,
        last_log_lines: problem.last_log_lines,
    }
}

/// The answer to Enroll.
pub(crate) fn enrolment(enrolment: Enrolment, now: Timestamp) -> v1::EnrollResponse {
    use v1::enroll_response::Outcome;
    let outcome = match enrolment {
        Enrolment::Granted(enrolled) => Outcome::Credentials(v1::Credentials {
            machine_name: enrolled.machine,
            machine_uid: enrolled.machine_uid.to_string(),
            certificate_chain_der: enrolled.chain_der,
        }),
        Enrolment::Waiting { reason, retry_after } => {
            Outcome::Waiting(v1::Waiting { reason, retry_after: Some(duration(retry_after)) })
        }
    };
    v1::EnrollResponse { coordinator_time: Some(timestamp_to_wire(now)), outcome: Some(outcome) }
}

/// The first answer of an accepted session.
pub(crate) fn welcome(epoch: u64, now: Timestamp, heartbeat: Duration) -> v1::SessionResponse {
    wrap(v1::session_response::Message::Welcome(v1::Welcome {
        epoch,
        time: Some(timestamp_to_wire(now)),
        heartbeat_interval: Some(duration(heartbeat)),
        versions: Some(versions()),
    }))
}

/// The only answer of a session that is not accepted.
pub(crate) fn refused(refusal: Refusal) -> v1::SessionResponse {
    wrap(v1::session_response::Message::Refused(v1::Refused {
        problem: Some(problem_to_wire(refusal.problem)),
        retry_after: refusal.retry_after.map(duration),
    }))
}

/// Anything the engine tells a connected agent.
pub(crate) fn response(message: ToAgent) -> v1::SessionResponse {
    use v1::session_response::Message;
    wrap(match message {
        ToAgent::Assign(assigned) => Message::Assignment(assignment(*assigned)),
        ToAgent::LeaseRenewal { epoch, lease } => {
            Message::LeaseRenewal(v1::LeaseRenewal { epoch, lease: Some(duration(lease)) })
        }
        ToAgent::Control { workflow_uid, paused, released } => Message::RunControl(v1::RunControl {
            workflow_uid: workflow_uid.to_string(),
            paused,
            released_holds: released,
        }),
        ToAgent::Cancel { workflow_uid, reason } => {
            Message::Cancel(v1::Cancel { workflow_uid: workflow_uid.to_string(), reason })
        }
        ToAgent::Fenced { epoch, reason } => Message::Fenced(v1::Fenced { epoch, reason }),
        ToAgent::Idle { boot_disk } => Message::Idle(v1::Idle { boot_disk }),
    })
}

fn wrap(message: v1::session_response::Message) -> v1::SessionResponse {
    v1::SessionResponse { message: Some(message) }
}

fn assignment(assigned: Assignment) -> v1::Assignment {
    // One start needs no list, and an agent of protocol 1 knows of none.
    let starts = assigned.starts.iter().filter(|_| assigned.starts.len() > 1);
    v1::Assignment {
        epoch: assigned.epoch,
        workflow_uid: assigned.workflow_uid.to_string(),
        workflow_name: assigned.workflow_name,
        machine_uid: assigned.machine_uid.to_string(),
        generation: assigned.generation,
        lease: Some(duration(assigned.lease)),
        actions: assigned.actions.into_iter().map(action).collect(),
        start_index: assigned.start_index,
        start_attempt: assigned.start_attempt,
        starts: starts.map(|start| v1::Start { index: start.index, attempt: start.attempt }).collect(),
        earlier_runs: assigned.earlier_runs.iter().map(ToString::to_string).collect(),
        expected_receipts: assigned.expected_receipts.iter().map(disk_receipt).collect(),
        person_authorised: assigned.person_authorised,
        force: assigned.force,
    }
}

fn action(assigned: AssignedAction) -> v1::Action {
    use v1::action::Kind;
    let AssignedAction { action, seed } = assigned;
    let timeout = Some(duration(policy::timeout(&action)));
    let retry = Some(v1::RetryPolicy {
        max_attempts: policy::max_attempts(&action),
        initial_backoff: Some(duration(policy::initial_backoff(&action))),
        max_backoff: Some(duration(policy::max_backoff(&action))),
    });
    let kind = match action.spec {
        ActionSpec::WriteImage(spec) => Kind::WriteImage(image::write_image(spec)),
        ActionSpec::CloudInit(spec) => Kind::CloudInit(cloud_init(spec.disk.as_ref(), seed)),
        ActionSpec::Hold(spec) => Kind::Hold(v1::Hold { message: spec.message }),
        ActionSpec::Reboot(_) => Kind::Reboot(v1::Reboot {}),
        ActionSpec::PowerOff(_) => Kind::PowerOff(v1::PowerOff {}),
        ActionSpec::ClearDisks(spec) => {
            let disks = spec.disks.iter().map(|disk| v1::Selector { fields: self::selector(disk) }).collect();
            Kind::ClearDisks(v1::ClearDisks { disks })
        }
        ActionSpec::Kexec(spec) => Kind::Kexec(v1::Kexec {
            cmdline: spec.cmdline.unwrap_or_default(),
            disk: spec.disk.as_ref().map(selector).unwrap_or_default(),
        }),
    };
    v1::Action { name: action.name, timeout, retry, branch: action.branch.unwrap_or_default(), kind: Some(kind) }
}

fn cloud_init(disk: Option<&DiskSelector>, seed: Option<Seed>) -> v1::CloudInit {
    let disk = disk.map(selector).unwrap_or_default();
    match seed {
        None => v1::CloudInit { disk, ..v1::CloudInit::default() },
        Some(seed) => v1::CloudInit {
            user_data: seed.user_data,
            meta_data: seed.meta_data,
            network_config: seed.network_config,
            phone_home: seed.phone_home.map(|unit| v1::PhoneHome {
                url: unit.url,
                bearer_token: unit.bearer,
                ca_pins: unit.ca_pins,
            }),
            disk,
        },
    }
}

/// Every expression as text: the wire's map holds strings, and a selector reads `4096` and `"4096"` alike.
fn selector(selector: &DiskSelector) -> HashMap<String, String> {
    let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    selector.0.iter().map(|(field, value)| (field.clone(), text(value))).collect()
}

fn disk_id(id: &DiskId) -> v1::DiskId {
    v1::DiskId {
        wwn: id.wwn.clone(),
        serial: id.serial.clone(),
        path: id.path.clone(),
        name: id.name.clone(),
        model: id.model.clone(),
        size_bytes: id.size_bytes,
    }
}

fn disk_receipt(marked: &DiskReceipt) -> v1::DiskReceipt {
    let receipt = &marked.receipt;
    let state = match receipt.state {
        ReceiptState::Intent => v1::ReceiptState::Intent,
        ReceiptState::Done => v1::ReceiptState::Done,
    };
    v1::DiskReceipt {
        disk: Some(disk_id(&marked.disk)),
        receipt: Some(v1::Receipt {
            machine_uid: receipt.machine_uid.to_string(),
            workflow_uid: receipt.workflow_uid.to_string(),
            workflow_name: receipt.workflow_name.clone(),
            generation: receipt.generation,
            action_index: receipt.action_index,
            image_digest: receipt.image_digest.map(|digest| digest.to_string()).unwrap_or_default(),
            state: state.into(),
            written_at: Some(timestamp_to_wire(receipt.written_at)),
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_are_always_sent_to_the_agent() {
        let spec = json!({"name": "write", "writeImage": {"disk": {"rotational": false, "size": ">= 1GiB"},
            "image": {"url": "http://h/i", "digestWaived": true}}});
        let wire = action(AssignedAction { action: serde_json::from_value(spec).unwrap(), seed: None });
        assert!(wire.timeout.is_some_and(|timeout| timeout.seconds > 0));
        assert!(wire.retry.is_some_and(|retry| retry.max_attempts >= 1 && retry.max_backoff.is_some()));
        let Some(v1::action::Kind::WriteImage(write)) = wire.kind else { panic!() };
        assert_eq!((write.disk["rotational"].as_str(), write.disk["size"].as_str()), ("false", ">= 1GiB"));
        assert!(write.digest.is_empty() && write.digest_waived);
    }

    #[test]
    fn kexec_converts_with_and_without_disk_and_command_line() {
        let wire = |spec: serde_json::Value| {
            let spec = json!({"name": "k", "kexec": spec});
            match action(AssignedAction { action: serde_json::from_value(spec).unwrap(), seed: None }).kind {
                Some(v1::action::Kind::Kexec(kexec)) => kexec,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(wire(json!({})), v1::Kexec::default());
        let said = wire(json!({"cmdline": "root=/dev/vda1 ro", "disk": {"serial": "D1"}}));
        assert_eq!((said.cmdline.as_str(), said.disk["serial"].as_str()), ("root=/dev/vda1 ro", "D1"));
    }

    #[test]
    fn a_moment_before_1970_keeps_its_nanoseconds_positive() {
        let wire = timestamp_to_wire(Timestamp::from_nanosecond(-1).unwrap());
        assert_eq!((wire.seconds, wire.nanos), (-1, 999_999_999));
    }
}
