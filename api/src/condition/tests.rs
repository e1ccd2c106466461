//! Conditions as they are stored.

use super::*;

fn condition(kind: &str, reason: &str) -> Condition {
    let json = format!(
        r#"{{"type":"{kind}","status":"True","reason":"{reason}","message":"","since":"2026-01-01T00:00:00Z","observedGeneration":1}}"#
    );
    let condition: Condition = serde_json::from_str(&json).unwrap();
    assert_eq!(serde_json::to_string(&condition).unwrap(), json, "it is stored as it was");
    condition
}

#[test]
fn words_are_stored_as_they_are_written() {
    for (kind, about) in ConditionType::KNOWN {
        assert_eq!(condition(kind.as_str(), "Idle").kind, *kind);
        assert!(!about.is_empty() && !kind.reasons().is_empty(), "{kind} has a meaning and reasons");
    }
    for (reason, _) in Reason::KNOWN {
        assert_eq!(condition("Connected", reason.as_str()).reason, *reason);
    }
    for code in ErrorCode::ALL {
        assert_eq!(condition("Provisioned", code.as_str()).reason, Reason::from(*code));
    }
}

#[test]
fn a_newer_versions_words_are_kept() {
    let newer = condition("Attested", "QuoteFits");
    assert_eq!(newer.kind, ConditionType::Other("Attested".into()));
    assert_eq!(newer.reason, Reason::Other("QuoteFits".into()));
}

#[test]
fn every_reason_belongs_to_a_condition() {
    for (reason, _) in Reason::KNOWN {
        assert!(ConditionType::KNOWN.iter().any(|(kind, _)| kind.may_be(reason)), "{reason} is of no condition");
    }
    assert!(ConditionType::Provisioned.may_be(&Reason::from(ErrorCode::Truncated)));
    assert!(!ConditionType::Silent.may_be(&Reason::from(ErrorCode::Truncated)));
}
