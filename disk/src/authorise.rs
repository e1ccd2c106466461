//! May this disk be written? The compare of compare-and-swap, and the rule for disks that are not blank. Pure.

use landfall_api::{Digest, DiskId, DiskReceipt, Receipt, ReceiptState};

use crate::{Authority, WriteError};

/// What the receipts say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Write.
    Write,
    /// This same action has already committed.
    AlreadyDone,
}

/// Decides from the receipt on the disk, from its other content (`content`; `None`: blank), and from the digest that
/// names the image.
pub(crate) fn authorise(
    disk: &DiskId, authority: &Authority, found: Option<&DiskReceipt>, content: Option<&str>,
    image_digest: Option<Digest>,
) -> Result<Decision, WriteError> {
    let Authority { receipt: intent, expected, person_authorised, .. } = authority;
    let device = || disk.name.clone();
    let found = found.map(|mark| &mark.receipt);
    let same_run = |r: &Receipt| {
        (r.machine_uid, r.workflow_uid, r.action_index)
            == (intent.machine_uid, intent.workflow_uid, intent.action_index)
    };
    if let Some(receipt) = found.filter(|r| same_run(r)) {
        // Even with --force the same write is not repeated: --force applies to this workflow, and this workflow has
        // done it.
        if receipt.state == ReceiptState::Done && receipt.image_digest == image_digest {
            return Ok(Decision::AlreadyDone);
        }
        if receipt.state == ReceiptState::Intent {
            return Ok(Decision::Write);
        }
    }
    if authority.forced() {
        return Ok(Decision::Write);
    }
    let expected = expected.iter().find(|mark| mark.disk.same_disk(disk)).map(|mark| &mark.receipt);
    let agree = match (found, expected) {
        (None, None) => true,
        (Some(found), Some(expected)) => same_mark(found, expected),
        (None, Some(_)) | (Some(_), None) => false,
    };
    if !agree {
        return Err(WriteError::ReceiptMismatch { device: device(), found: words(found), expected: words(expected) });
    }
    // An expected receipt does not allow it either: a rule or a file must never replace an installed system.
    let there = content.map(str::to_owned).or_else(|| found.map(|found| words(Some(found))));
    match there {
        Some(found) if !person_authorised => Err(WriteError::NotBlank { device: device(), found }),
        _ => Ok(Decision::Write),
    }
}

/// Equal in everything but the time, which passes through formats of different precision, and the name, which is for
/// people.
pub(crate) fn same_mark(a: &Receipt, b: &Receipt) -> bool {
    (a.machine_uid, a.workflow_uid, a.generation, a.action_index, a.image_digest, a.state)
        == (b.machine_uid, b.workflow_uid, b.generation, b.action_index, b.image_digest, b.state)
}

/// A receipt, for people.
pub(crate) fn words(receipt: Option<&Receipt>) -> String {
    receipt.map_or("none".into(), |r| {
        let state = match r.state {
            ReceiptState::Intent => "begun",
            ReceiptState::Done => "done",
        };
        format!("workflow {} ({}) action {} {state}", r.workflow_name, r.workflow_uid, r.action_index)
    })
}

#[cfg(test)]
mod tests {
    use landfall_api::ErrorCode;
    use uuid::Uuid;

    use super::*;
    use crate::receipt::tests::mark;

    /// What names the image of [`mark`].
    fn image() -> Option<Digest> {
        mark(ReceiptState::Done, 0).receipt.image_digest
    }

    /// A rule's, of another workflow than that of [`mark`], with no receipt expected.
    fn by_rule() -> Authority {
        let mut rule = Authority::of_tests(false);
        rule.receipt.workflow_uid = Uuid::from_u128(7);
        rule
    }

    fn code(authority: &Authority, found: Option<&DiskReceipt>, content: Option<&str>) -> Result<Decision, ErrorCode> {
        let disk = mark(ReceiptState::Intent, 0).disk;
        authorise(&disk, authority, found, content, image()).map_err(|e| e.code())
    }

    #[test]
    fn only_a_blank_disk_is_written_without_a_persons_request() {
        let rule = by_rule();
        assert_eq!(code(&rule, None, None), Ok(Decision::Write));
        assert_eq!(code(&rule, None, Some("a GPT")), Err(ErrorCode::DiskNotBlank));
        let person = Authority { person_authorised: true, ..rule };
        assert_eq!(code(&person, None, Some("a GPT")), Ok(Decision::Write));
    }

    #[test]
    fn a_receipt_must_be_the_expected_one_for_every_caller() {
        let person = Authority { person_authorised: true, ..by_rule() };
        let old = mark(ReceiptState::Done, 0);
        assert_eq!(code(&person, Some(&old), Some("a GPT")), Err(ErrorCode::ReceiptMismatch));
        let person = Authority { expected: vec![old.clone()], ..person };
        assert_eq!(code(&person, Some(&old), Some("a GPT")), Ok(Decision::Write));
        assert_eq!(code(&person, None, None), Err(ErrorCode::ReceiptMismatch), "a receipt that has vanished");
        let mut begun = old.clone();
        begun.receipt.state = ReceiptState::Intent;
        assert_eq!(code(&person, Some(&begun), None), Err(ErrorCode::ReceiptMismatch), "another state");
        let mut elsewhere = vec![old.clone()];
        elsewhere[0].disk.serial = "other".into();
        let person = Authority { expected: elsewhere, ..person };
        assert_eq!(code(&person, Some(&old), None), Err(ErrorCode::ReceiptMismatch), "expected on another disk");
        let forced = Authority { force: true, ..person };
        assert_eq!(code(&forced, Some(&old), None), Ok(Decision::Write));
    }

    #[test]
    fn a_rule_never_replaces_an_installed_system_even_with_force() {
        let old = mark(ReceiptState::Done, 0);
        let rule = Authority { expected: vec![old.clone()], ..by_rule() };
        assert_eq!(code(&rule, Some(&old), Some("a GPT")), Err(ErrorCode::DiskNotBlank));
        assert_eq!(code(&rule, Some(&old), None), Err(ErrorCode::DiskNotBlank));
        let forced = Authority { force: true, ..rule };
        assert_eq!(code(&forced, Some(&old), Some("a GPT")), Err(ErrorCode::DiskNotBlank), "force is a person's");
        let person = Authority { person_authorised: true, ..forced };
        assert_eq!(code(&person, Some(&old), Some("a GPT")), Ok(Decision::Write));
    }

    #[test]
    fn an_interrupted_workflow_continues_and_a_finished_one_does_not() {
        let mut rule = by_rule();
        rule.receipt.workflow_uid = Uuid::from_u128(2);
        let mut own = mark(ReceiptState::Intent, 0);
        assert_eq!(code(&rule, Some(&own), Some("whatever")), Ok(Decision::Write));
        own.receipt.state = ReceiptState::Done;
        for force in [false, true] {
            assert_eq!(
                code(&Authority { force, ..rule.clone() }, Some(&own), Some("a GPT")),
                Ok(Decision::AlreadyDone)
            );
        }
        let other = authorise(&own.disk, &rule, Some(&own), Some("a GPT"), None).map_err(|e| e.code());
        assert_eq!(other, Err(ErrorCode::ReceiptMismatch), "another image");
    }
}
