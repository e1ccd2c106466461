//! Assignments.

use landfall_api::message::{ActionRef, AssignedAction, Assignment, KnownResult, Retry, Start, ToolsLayer};
use landfall_api::{ActionOutcome, When, stages};

use super::{ConvertError, Within as _, codec::*};
use crate::v1;

/// The attempt that an assignment starts with, also where the rest of it does not convert: the attempt whose failure is to
/// say why. `None` for any other message, and for an assignment without even a workflow's uid.
pub fn named_attempt(wire: &v1::SessionResponse) -> Option<ActionRef> {
    match &wire.message {
        Some(v1::session_response::Message::Assignment(wire)) => Some(ActionRef {
            workflow_uid: wire.workflow_uid.parse().ok()?,
            action_index: wire.start_index,
            attempt: wire.start_attempt.max(1),
        }),
        _ => None,
    }
}

impl TryFrom<v1::Assignment> for Assignment {
    type Error = ConvertError;

    fn try_from(wire: v1::Assignment) -> Result<Self, ConvertError> {
        let actions: Vec<AssignedAction> = wire
            .actions
            .into_iter()
            .enumerate()
            .map(|(index, wire)| wire.try_into().within(&format!("actions[{index}]")))
            .collect::<Result<_, _>>()?;
        if actions.is_empty() {
            return Err(ConvertError::new("actions", "it is empty"));
        }
        if wire.start_index as usize > actions.len() {
            return Err(ConvertError::new("start_index", "it lies behind the last action"));
        }
        if wire.start_attempt == 0 {
            return Err(ConvertError::new("start_attempt", "attempts count from 1"));
        }
        let first = Start { index: wire.start_index, attempt: wire.start_attempt };
        let starts = starts(first, &wire.starts, &actions)?;
        Ok(Self {
            epoch: wire.epoch,
            workflow_uid: parsed::from("workflow_uid", wire.workflow_uid)?,
            workflow_name: wire.workflow_name,
            machine_uid: parsed::from("machine_uid", wire.machine_uid)?,
            generation: wire.generation,
            lease: span::from("lease", wire.lease)?,
            counts_from: millis_if_any::from("counts_from_ms", wire.counts_from_ms)?,
            actions,
            start_index: wire.start_index,
            start_attempt: wire.start_attempt,
            starts,
            earlier_runs: all_parsed::from("earlier_runs", wire.earlier_runs)?,
            expected_receipts: list::from("expected_receipts", wire.expected_receipts)?,
            person_authorised: wire.person_authorised,
            force: wire.force,
            tools: one_if_any::from("tools", wire.tools)?,
            precheck: !wire.skips_precheck,
            results: list::from("results", wire.results)?,
        })
    }
}

impl From<Assignment> for v1::Assignment {
    fn from(assigned: Assignment) -> Self {
        // One start needs no list, and an agent of protocol 1 knows of none.
        let starts = assigned.starts.iter().filter(|_| assigned.starts.len() > 1);
        Self {
            epoch: assigned.epoch,
            workflow_uid: parsed::to(assigned.workflow_uid),
            workflow_name: assigned.workflow_name,
            machine_uid: parsed::to(assigned.machine_uid),
            generation: assigned.generation,
            lease: span::to(assigned.lease),
            counts_from_ms: millis_if_any::to(assigned.counts_from),
            actions: list::to(assigned.actions),
            start_index: assigned.start_index,
            start_attempt: assigned.start_attempt,
            starts: starts.map(|start| v1::Start { index: start.index, attempt: start.attempt }).collect(),
            earlier_runs: all_parsed::to(assigned.earlier_runs),
            expected_receipts: list::to(assigned.expected_receipts),
            person_authorised: assigned.person_authorised,
            force: assigned.force,
            tools: one_if_any::to(assigned.tools),
            skips_precheck: !assigned.precheck,
            results: list::to(assigned.results),
        }
    }
}

wire! {
    ToolsLayer = v1::ToolsLayer, checked by layer_size { digest: digest, url: text, other_urls, size_bytes }
    AssignedAction = v1::Action {
        kind: oneof, name, timeout: span, retry: one, branch: text_if_any, when: condition_if_any,
    }
    Retry = v1::RetryPolicy, checked by attempts { max_attempts, initial_backoff: span, max_backoff: span }
}

fn layer_size(wire: &v1::ToolsLayer) -> Result<(), ConvertError> {
    if (1..=ToolsLayer::MAX_BYTES).contains(&wire.size_bytes) {
        return Ok(());
    }
    let what = format!("it is {}; a layer has 1 to {} bytes", wire.size_bytes, ToolsLayer::MAX_BYTES);
    Err(ConvertError::new("size_bytes", what))
}

fn attempts(wire: &v1::RetryPolicy) -> Result<(), ConvertError> {
    if wire.max_attempts == 0 { Err(ConvertError::new("max_attempts", "it is zero")) } else { Ok(()) }
}

codec! {
    /// One that is not understood is never taken as one that holds.
    condition_if_any: String => Option<When>,
        |field, wire| {
            let parse = |text: String| When::parse(&text).map_err(|fault| ConvertError::new(field, fault.message));
            text_if_any::from(field, wire)?.map(parse).transpose()
        },
        |when| when.map(|when| when.to_string()).unwrap_or_default();
}

/// All in one stage, and no two in one branch: else something would run at once that must not.
fn starts(first: Start, listed: &[v1::Start], actions: &[AssignedAction]) -> Result<Vec<Start>, ConvertError> {
    const FIELD: &str = "starts";
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

impl TryFrom<v1::KnownResult> for KnownResult {
    type Error = ConvertError;

    fn try_from(wire: v1::KnownResult) -> Result<Self, ConvertError> {
        let status = u16::try_from(wire.status).map_err(|error| ConvertError::new("status", error))?;
        let status = Some(status).filter(|status| *status != 0);
        let outcome = ActionOutcome { succeeded: wire.succeeded, status, body: wire.body };
        Ok(Self { index: wire.action_index, outcome })
    }
}

impl From<KnownResult> for v1::KnownResult {
    fn from(KnownResult { index, outcome }: KnownResult) -> Self {
        let ActionOutcome { succeeded, status, body } = outcome;
        Self { action_index: index, succeeded, status: status.map_or(0, u32::from), body }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::{collections::HashMap, time::Duration};

    use landfall_api::ImageProof;
    use landfall_api::message::{ActionKind, ToAgent};
    use uuid::Uuid;

    use super::*;

    pub(in crate::convert) fn wire() -> v1::Assignment {
        let second = Some(prost_types::Duration { seconds: 1, nanos: 0 });
        let uid = Uuid::from_u128(7).to_string();
        v1::Assignment {
            epoch: 3,
            workflow_uid: uid.clone(),
            workflow_name: "w".into(),
            machine_uid: uid,
            lease: second,
            start_attempt: 1,
            tools: Some(v1::ToolsLayer {
                url: "http://h/tools".into(),
                digest: format!("sha256:{}", "0b".repeat(32)),
                size_bytes: 64 << 20,
                other_urls: vec!["http://i/tools".into()],
            }),
            actions: vec![v1::Action {
                name: "write".into(),
                timeout: second,
                retry: Some(v1::RetryPolicy { max_attempts: 1, initial_backoff: second, max_backoff: second }),
                branch: String::new(),
                when: String::new(),
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
            Assignment::try_from(wire).map(|a| a.starts.iter().map(|s| (s.index, s.attempt)).collect::<Vec<_>>())
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
    fn an_assignment_survives_the_wire() {
        let got = Assignment::try_from(wire()).unwrap();
        assert_eq!((got.epoch, got.lease, got.start_attempt), (3, Duration::from_secs(1), 1));
        let ActionKind::WriteImage(write) = &got.actions[0].kind else { panic!("{got:?}") };
        assert!(matches!(write.image.proof, ImageProof::Stored(_)) && write.image.format.is_none() && !write.read_back);
        assert_eq!(write.image.urls, ["http://h/i"]);
        assert_eq!(write.disk.0["size"], ">= 1 GiB");
        assert_eq!(v1::Assignment::from(got), wire());
    }

    #[test]
    fn what_does_not_convert_is_refused_by_its_field() {
        type Spoil = fn(&mut v1::Assignment);
        fn image(a: &mut v1::Assignment) -> &mut v1::WriteImage {
            match &mut a.actions[0].kind {
                Some(v1::action::Kind::WriteImage(w)) => w,
                _ => unreachable!(),
            }
        }
        fn layer(size_bytes: u64, digest: String) -> Option<v1::ToolsLayer> {
            Some(v1::ToolsLayer { url: "http://h/tools".into(), digest, size_bytes, other_urls: Vec::new() })
        }
        let cases: [(&str, Spoil); 12] = [
            ("assignment.tools.digest", |a| a.tools = layer(1, String::new())),
            ("assignment.tools.size_bytes", |a| a.tools = layer(0, format!("sha256:{}", "0b".repeat(32)))),
            ("assignment.tools.size_bytes", |a| a.tools = layer(65 << 20, format!("sha256:{}", "0b".repeat(32)))),
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
            let message = Some(v1::session_response::Message::Assignment(wire));
            let wire = v1::SessionResponse { message };
            let named = named_attempt(&wire).map(|attempt| attempt.workflow_uid);
            assert_eq!(named, Some(Uuid::from_u128(7)).filter(|_| field != "assignment.workflow_uid"));
            assert_eq!(ToAgent::try_from(wire).unwrap_err().field(), field);
        }
    }
}
