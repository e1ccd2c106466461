//! From the coordinator.

mod image;

use std::{collections::HashMap, time::Duration};

use jiff::Timestamp;
use landfall_api::{Digest, DiskId, DiskReceipt, DiskSelector, ErrorCode, Problem, Receipt, ReceiptState, stages};
use landfall_proto::v1;
use uuid::Uuid;

use super::{ConvertError, Within as _};
use crate::{Action, ActionKind, Assignment, ClearDisks, CloudInit, Control, Kexec, PhoneHome, Retry, Secret, Start};

/// A positive duration; absent or zero is an error, never "now" or "for ever".
pub(crate) fn duration(field: &str, wire: Option<prost_types::Duration>) -> Result<Duration, ConvertError> {
    let wire = wire.ok_or_else(|| ConvertError::missing(field))?;
    let duration = Duration::try_from(wire).map_err(|e| ConvertError::new(field, e))?;
    if duration.is_zero() { Err(ConvertError::new(field, "it is zero")) } else { Ok(duration) }
}

pub(crate) fn timestamp(field: &str, wire: Option<prost_types::Timestamp>) -> Result<Timestamp, ConvertError> {
    let wire = wire.ok_or_else(|| ConvertError::missing(field))?;
    Timestamp::new(wire.seconds, wire.nanos).map_err(|e| ConvertError::new(field, e))
}

pub(crate) fn uuid(field: &str, wire: &str) -> Result<Uuid, ConvertError> {
    wire.parse().map_err(|e| ConvertError::new(field, e))
}

fn digest(field: &str, wire: &str) -> Result<Option<Digest>, ConvertError> {
    if wire.is_empty() { Ok(None) } else { wire.parse().map(Some).map_err(|e| ConvertError::new(field, e)) }
}

pub(crate) fn problem(wire: v1::Problem) -> Problem {
    Problem {
        code: ErrorCode::from_wire(&wire.code),
        message: wire.message,
        causes: wire.causes,
        hint: wire.hint,
        subject: wire.subject,
        last_log_lines: wire.last_log_lines,
    }
}

fn selector(wire: HashMap<String, String>) -> DiskSelector {
    DiskSelector(wire.into_iter().map(|(field, text)| (field, serde_json::Value::String(text))).collect())
}

fn disk_id(wire: v1::DiskId) -> DiskId {
    DiskId {
        wwn: wire.wwn,
        serial: wire.serial,
        path: wire.path,
        name: wire.name,
        model: wire.model,
        size_bytes: wire.size_bytes,
    }
}

fn receipt(wire: v1::Receipt) -> Result<Receipt, ConvertError> {
    let state = match wire.state() {
        v1::ReceiptState::Intent => ReceiptState::Intent,
        v1::ReceiptState::Done => ReceiptState::Done,
        v1::ReceiptState::Unspecified => return Err(ConvertError::missing("state")),
    };
    Ok(Receipt {
        machine_uid: uuid("machine_uid", &wire.machine_uid)?,
        workflow_uid: uuid("workflow_uid", &wire.workflow_uid)?,
        workflow_name: wire.workflow_name,
        generation: wire.generation,
        action_index: wire.action_index,
        image_digest: digest("image_digest", &wire.image_digest)?,
        state,
        written_at: timestamp("written_at", wire.written_at)?,
    })
}

pub(crate) fn disk_receipt(wire: v1::DiskReceipt) -> Result<DiskReceipt, ConvertError> {
    Ok(DiskReceipt {
        disk: disk_id(wire.disk.ok_or_else(|| ConvertError::missing("disk"))?),
        receipt: receipt(wire.receipt.ok_or_else(|| ConvertError::missing("receipt"))?).within("receipt")?,
    })
}

pub(crate) fn assignment(wire: v1::Assignment) -> Result<Assignment, ConvertError> {
    let actions: Vec<_> = wire
        .actions
        .into_iter()
        .enumerate()
        .map(|(index, wire)| action(wire).within(&format!("assignment.actions[{index}]")))
        .collect::<Result<_, _>>()?;
    if actions.is_empty() {
        return Err(ConvertError::new("assignment.actions", "it is empty"));
    }
    if wire.start_index as usize > actions.len() {
        return Err(ConvertError::new("assignment.start_index", "it is behind the last action"));
    }
    if wire.start_attempt == 0 {
        return Err(ConvertError::new("assignment.start_attempt", "attempts count from 1"));
    }
    let first = Start { index: wire.start_index, attempt: wire.start_attempt };
    let starts = starts(first, &wire.starts, &actions)?;
    Ok(Assignment {
        epoch: wire.epoch,
        workflow_uid: uuid("assignment.workflow_uid", &wire.workflow_uid)?,
        workflow_name: wire.workflow_name,
        machine_uid: uuid("assignment.machine_uid", &wire.machine_uid)?,
        generation: wire.generation,
        lease: duration("assignment.lease", wire.lease)?,
        actions,
        start_index: wire.start_index,
        start_attempt: wire.start_attempt,
        starts,
        earlier_runs: wire
            .earlier_runs
            .iter()
            .map(|text| uuid("assignment.earlier_runs", text))
            .collect::<Result<_, _>>()?,
        expected_receipts: wire
            .expected_receipts
            .into_iter()
            .map(|wire| disk_receipt(wire).within("assignment.expected_receipts"))
            .collect::<Result<_, _>>()?,
        person_authorised: wire.person_authorised,
        force: wire.force,
    })
}

/// All in one stage, and no two in one branch: otherwise actions would run at the same time that must not.
fn starts(first: Start, listed: &[v1::Start], actions: &[Action]) -> Result<Vec<Start>, ConvertError> {
    const FIELD: &str = "assignment.starts";
    let listed: Vec<Start> = match listed {
        [] if first.index as usize == actions.len() => return Ok(Vec::new()),
        [] => vec![first],
        some => some.iter().map(|start| Start { index: start.index, attempt: start.attempt }).collect(),
    };
    if !listed.contains(&first) {
        return Err(ConvertError::new(FIELD, "start_index and start_attempt are not among them"));
    }
    if listed.iter().any(|start| start.attempt == 0) {
        return Err(ConvertError::new(FIELD, "attempts count from 1"));
    }
    let at = first.index as usize;
    let own = stages(actions.iter().map(|a| a.branch.as_deref())).into_iter().find(|stage| stage.span().contains(&at));
    let lanes = own.map(|stage| stage.lanes).unwrap_or_default();
    let lane = |start: &Start| lanes.iter().position(|lane| lane.contains(&(start.index as usize)));
    let mut used: Vec<Option<usize>> = listed.iter().map(lane).collect();
    used.sort_unstable();
    if used.contains(&None) || used.windows(2).any(|pair| pair.first() == pair.last()) {
        return Err(ConvertError::new(FIELD, "they are not one of each branch of one stage"));
    }
    Ok(listed)
}

pub(crate) fn control(wire: v1::RunControl) -> Control {
    Control { paused: wire.paused, released: wire.released_holds }
}

fn action(wire: v1::Action) -> Result<Action, ConvertError> {
    use v1::action::Kind;
    let kind = match wire.kind.ok_or_else(|| ConvertError::missing("kind"))? {
        Kind::WriteImage(wire) => ActionKind::WriteImage(image::write_image(wire).within("write_image")?),
        Kind::CloudInit(wire) => ActionKind::CloudInit(cloud_init(wire).within("cloud_init")?),
        Kind::Hold(wire) => ActionKind::Hold { message: wire.message },
        Kind::Reboot(v1::Reboot {}) => ActionKind::Reboot,
        Kind::PowerOff(v1::PowerOff {}) => ActionKind::PowerOff,
        Kind::ClearDisks(wire) => {
            ActionKind::ClearDisks(ClearDisks { disks: wire.disks.into_iter().map(|d| selector(d.fields)).collect() })
        }
        Kind::Kexec(wire) => ActionKind::Kexec(Kexec {
            cmdline: Some(wire.cmdline).filter(|line| !line.is_empty()),
            disk: Some(wire.disk).filter(|d| !d.is_empty()).map(selector),
        }),
    };
    Ok(Action {
        name: wire.name,
        timeout: duration("timeout", wire.timeout)?,
        retry: retry(wire.retry.ok_or_else(|| ConvertError::missing("retry"))?).within("retry")?,
        branch: Some(wire.branch).filter(|branch| !branch.is_empty()),
        kind,
    })
}

fn retry(wire: v1::RetryPolicy) -> Result<Retry, ConvertError> {
    if wire.max_attempts == 0 {
        return Err(ConvertError::new("max_attempts", "it is zero"));
    }
    Ok(Retry {
        max_attempts: wire.max_attempts,
        initial_backoff: duration("initial_backoff", wire.initial_backoff)?,
        max_backoff: duration("max_backoff", wire.max_backoff)?,
    })
}

fn cloud_init(wire: v1::CloudInit) -> Result<CloudInit, ConvertError> {
    Ok(CloudInit {
        user_data: Secret::new(wire.user_data),
        meta_data: wire.meta_data,
        network_config: wire.network_config,
        phone_home: wire.phone_home.map(phone_home).transpose().within("phone_home")?,
        disk: Some(wire.disk).filter(|d| !d.is_empty()).map(selector),
    })
}

fn phone_home(wire: v1::PhoneHome) -> Result<PhoneHome, ConvertError> {
    let pin = |text: &String| text.parse().map_err(|e| ConvertError::new("ca_pins", e));
    let ca_pins = wire.ca_pins.iter().map(pin).collect::<Result<Vec<_>, _>>()?;
    if ca_pins.is_empty() {
        return Err(ConvertError::missing("ca_pins"));
    }
    Ok(PhoneHome { url: wire.url, bearer_token: Secret::new(wire.bearer_token), ca_pins })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::{outgoing, receipt_to_wire};

    fn wire() -> v1::Assignment {
        let second = Some(prost_types::Duration { seconds: 1, nanos: 0 });
        let uid = Uuid::from_u128(7).to_string();
        v1::Assignment {
            epoch: 3,
            workflow_uid: uid.clone(),
            workflow_name: "w".into(),
            machine_uid: uid,
            lease: second,
            start_attempt: 1,
            actions: vec![v1::Action {
                name: "write".into(),
                timeout: second,
                retry: Some(v1::RetryPolicy { max_attempts: 1, initial_backoff: second, max_backoff: second }),
                branch: String::new(),
                kind: Some(v1::action::Kind::WriteImage(v1::WriteImage {
                    disk: HashMap::from([("size".into(), ">= 1 GiB".into())]),
                    url: "http://h/i".into(),
                    digest: format!("sha256:{}", "0a".repeat(32)),
                    ..v1::WriteImage::default()
                })),
            }],
            ..v1::Assignment::default()
        }
    }

    #[test]
    fn starts_are_one_of_each_branch_of_one_stage() {
        let listed = |branches: &[&str], first: u32, starts: &[(u32, u32)]| {
            let mut wire = wire();
            let action = wire.actions.remove(0);
            wire.actions = branches.iter().map(|b| v1::Action { branch: (*b).into(), ..action.clone() }).collect();
            wire.start_index = first;
            wire.starts =
                starts.iter().map(|(index, attempt)| v1::Start { index: *index, attempt: *attempt }).collect();
            assignment(wire).map(|a| a.starts.iter().map(|s| (s.index, s.attempt)).collect::<Vec<_>>())
        };
        let branches = ["a", "b", "a", "", "c"];
        assert_eq!(listed(&branches, 0, &[(0, 1), (1, 4)]).unwrap(), [(0, 1), (1, 4)]);
        assert_eq!(listed(&branches, 3, &[]).unwrap(), [(3, 1)]);
        assert_eq!(listed(&branches, 5, &[]).unwrap(), []);
        for bad in [
            &[(0, 1), (2, 1)][..], // one branch twice
            &[(0, 1), (0, 1)],     // the same twice
            &[(0, 1), (3, 1)],     // two stages
            &[(0, 1), (9, 1)],     // not there
            &[(0, 1), (1, 0)],     // no attempt
            &[(1, 1)],             // not the first
        ] {
            assert!(listed(&branches, 0, bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_assignment_arrives_whole() {
        let got = assignment(wire()).unwrap();
        assert_eq!((got.epoch, got.lease, got.start_attempt), (3, Duration::from_secs(1), 1));
        let ActionKind::WriteImage(write) = &got.actions[0].kind else { panic!("{got:?}") };
        assert!(matches!(write.proof, crate::ImageProof::Stored(_)) && write.format.is_none() && !write.read_back);
        assert_eq!(write.urls, ["http://h/i"]);
        assert_eq!(write.disk.0["size"], ">= 1 GiB");
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_its_field() {
        type Spoil = fn(&mut v1::Assignment);
        fn image(a: &mut v1::Assignment) -> &mut v1::WriteImage {
            match &mut a.actions[0].kind {
                Some(v1::action::Kind::WriteImage(w)) => w,
                _ => unreachable!(),
            }
        }
        let cases: [(&str, Spoil); 9] = [
            ("assignment.lease", |a| a.lease = None),
            ("assignment.lease", |a| a.lease = Some(prost_types::Duration::default())),
            ("assignment.workflow_uid", |a| a.workflow_uid = "x".into()),
            ("assignment.actions", |a| a.actions.clear()),
            ("assignment.start_index", |a| a.start_index = 2),
            ("assignment.start_attempt", |a| a.start_attempt = 0),
            ("assignment.actions[0].kind", |a| a.actions[0].kind = None),
            ("assignment.actions[0].write_image.digest", |a| image(a).digest.clear()),
            ("assignment.actions[0].write_image.digest_waived", |a| image(a).digest_waived = true),
        ];
        for (field, spoil) in cases {
            let mut wire = wire();
            spoil(&mut wire);
            let problem = assignment(wire).unwrap_err().to_problem();
            assert_eq!((problem.subject.as_str(), problem.code), (field, ErrorCode::VersionSkew));
        }
    }

    #[test]
    fn an_empty_kexec_uses_the_written_disk_and_default_line() {
        let arrived = |kexec: v1::Kexec| {
            let mut wire = wire();
            wire.actions[0].kind = Some(v1::action::Kind::Kexec(kexec));
            assignment(wire).unwrap().actions.remove(0).kind
        };
        assert_eq!(arrived(v1::Kexec::default()), ActionKind::Kexec(Kexec::default()));
        let disk = HashMap::from([("serial".into(), "D1".into())]);
        let ActionKind::Kexec(kexec) = arrived(v1::Kexec { cmdline: "root=/dev/vda1".into(), disk }) else { panic!() };
        assert_eq!(
            (kexec.cmdline.as_deref(), &kexec.disk.unwrap().0["serial"]),
            (Some("root=/dev/vda1"), &"D1".into())
        );
    }

    #[test]
    fn a_receipt_survives_the_wire_in_both_directions() {
        let receipt = DiskReceipt {
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
        };
        assert_eq!(disk_receipt(receipt_to_wire(&receipt)), Ok(receipt));
        let trouble = Problem::new(ErrorCode::DigestMismatch, "m").hint("h").at("s");
        assert_eq!(problem(outgoing::problem_to_wire(trouble.clone())), trouble);
    }
}
