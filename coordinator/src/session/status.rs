//! A problem as a gRPC status: the code for programs that know no more, the whole problem beside it.

use landfall_api::{ErrorCode, Problem};
use landfall_proto::{ConvertError, PROBLEM_METADATA, v1};
use prost::Message as _;
use tonic::{Code, Status, metadata::MetadataValue};

/// A message of an agent that is none to this coordinator.
pub(super) fn invalid(error: &ConvertError) -> Problem {
    Problem::new(ErrorCode::VersionSkew, format!("the agent's {} is invalid: {}", error.field(), error.what()))
        .at(error.field())
        .hint("build the boot image and the coordinator from one release")
}

/// The status of a refused call.
pub(super) fn of(problem: Problem) -> Status {
    let code = match problem.code {
        ErrorCode::Unauthenticated | ErrorCode::Revoked => Code::Unauthenticated,
        ErrorCode::Forbidden | ErrorCode::TokenRefused | ErrorCode::Unapproved | ErrorCode::AmbiguousIdentity => {
            Code::PermissionDenied
        }
        ErrorCode::NotFound => Code::NotFound,
        ErrorCode::InvalidDocument | ErrorCode::VersionSkew => Code::InvalidArgument,
        ErrorCode::LimitReached => Code::ResourceExhausted,
        ErrorCode::StoreUnavailable => Code::Unavailable,
        ErrorCode::Fenced => Code::Aborted,
        _ => Code::Internal,
    };
    let mut status = Status::new(code, problem.to_string());
    let encoded = v1::Problem::from(problem).encode_to_vec();
    status.metadata_mut().insert_bin(PROBLEM_METADATA, MetadataValue::from_bytes(&encoded));
    status
}
