//! A refused or broken call, as a person reads it.

use landfall_api::{ErrorCode, Problem, message::Welcome};
use landfall_pin::rustls_error;
use landfall_proto::{ConvertError, OLDEST_PROTOCOL, PROBLEM_METADATA, v1};
use prost::Message as _;
use tonic::{Code, Status};

use crate::{Target, error::refuses_credentials};

/// Whether the coordinator says why; otherwise its connection broke.
pub(crate) fn is_said(status: &Status) -> bool {
    status.metadata().get_bin(PROBLEM_METADATA).is_some()
}

/// The coordinator's problem beside the status, else the status's own message.
pub(crate) fn problem_of(target: &Target, status: &Status) -> Problem {
    let said = status
        .metadata()
        .get_bin(PROBLEM_METADATA)
        .and_then(|value| value.to_bytes().ok())
        .and_then(|bytes| v1::Problem::decode(bytes).ok());
    if let Some(said) = said {
        return said.into();
    }
    let (code, hint) = match status.code() {
        _ if credentials_refused(status) => {
            (ErrorCode::Unauthenticated, "the agent must enrol again: restart the machine")
        }
        Code::PermissionDenied => (ErrorCode::Forbidden, "read the coordinator's log for the reason"),
        Code::Unimplemented => (ErrorCode::VersionSkew, "agent and coordinator have different releases"),
        Code::ResourceExhausted => (ErrorCode::LimitReached, "the coordinator is busy; the agent tries again"),
        Code::Unavailable | Code::Cancelled | Code::Unknown | Code::DeadlineExceeded => {
            (ErrorCode::SourceUnreachable, "the connection broke; the agent tries again")
        }
        _ => (ErrorCode::Internal, "read the coordinator's log"),
    };
    let message = match status.message() {
        "" => format!("the coordinator answered {:?}", status.code()),
        text => text.to_owned(),
    };
    Problem::new(code, message).caused_by(status).hint(hint).at(target.to_string())
}

/// A message of the coordinator that is none to this agent.
pub(crate) fn invalid(error: &ConvertError) -> Problem {
    let message = format!("the coordinator's {} is invalid to this agent: {}", error.field(), error.what());
    Problem::new(ErrorCode::VersionSkew, message).at(error.field()).hint(
        "agent and coordinator are of different versions: build the boot image and the coordinator from one release",
    )
}

/// Whether the same call may succeed later without an action of a person.
pub(crate) fn retryable(status: &Status) -> bool {
    !credentials_refused(status)
        && !matches!(
            status.code(),
            Code::InvalidArgument
                | Code::NotFound
                | Code::AlreadyExists
                | Code::PermissionDenied
                | Code::FailedPrecondition
                | Code::OutOfRange
                | Code::Unimplemented
                | Code::DataLoss
                | Code::Unauthenticated
        )
}

/// Whether the coordinator does not accept this agent's certificate (any more). With TLS 1.3 that arrives only after
/// the handshake, as an alert on the first read.
pub(crate) fn credentials_refused(status: &Status) -> bool {
    status.code() == Code::Unauthenticated || rustls_error(status).is_some_and(refuses_credentials)
}

/// Refuses a coordinator older than this agent. A newer one knows this agent's revision from its hello, and refuses it
/// itself if it must.
pub(crate) fn check_versions(target: &Target, welcome: &Welcome) -> Result<(), Problem> {
    let Welcome { software, protocol, .. } = welcome;
    let software = if software.is_empty() { "unknown" } else { software };
    let protocol = *protocol;
    if protocol >= OLDEST_PROTOCOL {
        return Ok(());
    }
    let message = format!(
        "the coordinator (version {software}) speaks protocol {protocol}, this agent needs at least {OLDEST_PROTOCOL}"
    );
    Err(Problem::new(ErrorCode::VersionSkew, message).hint("upgrade landfall-coordinator").at(target.to_string()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use landfall_proto::PROTOCOL;

    use super::*;

    fn target() -> Target {
        Target::new("https://127.0.0.1:1", vec![crate::pin_of_spki(b"ca")]).unwrap()
    }

    #[test]
    fn an_older_coordinator_is_named_as_the_one_to_upgrade() {
        let versions = |protocol| Welcome {
            epoch: 1,
            time: Timestamp::UNIX_EPOCH,
            heartbeat_interval: Duration::from_secs(1),
            software: "0.9".into(),
            protocol,
            others: Vec::new(),
        };
        for taken in [OLDEST_PROTOCOL, PROTOCOL, PROTOCOL + 1] {
            assert_eq!(check_versions(&target(), &versions(taken)), Ok(()));
        }
        let unsaid = Welcome { software: String::new(), ..versions(0) };
        for old in [unsaid, versions(OLDEST_PROTOCOL - 1)] {
            let problem = check_versions(&target(), &old).unwrap_err();
            assert_eq!(problem.code, ErrorCode::VersionSkew);
            assert!(problem.hint.contains("landfall-coordinator"), "{problem}");
        }
    }

    #[test]
    fn the_coordinators_own_words_win_over_the_status() {
        let said = v1::Problem { code: "TokenRefused".into(), message: "spent".into(), ..v1::Problem::default() };
        let mut status = Status::permission_denied("x");
        let value = tonic::metadata::MetadataValue::from_bytes(&said.encode_to_vec());
        status.metadata_mut().insert_bin(PROBLEM_METADATA, value);
        let problem = problem_of(&target(), &status);
        assert_eq!((problem.code, problem.message.as_str()), (ErrorCode::TokenRefused, "spent"));
        assert!(!retryable(&status) && retryable(&Status::unavailable("x")));
        assert_eq!(problem_of(&target(), &Status::unavailable("x")).code, ErrorCode::SourceUnreachable);
    }
}
