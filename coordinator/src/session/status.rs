//! A problem as a gRPC status: the code for programs that know no more, the whole problem beside it.

use landfall_api::{ErrorCode, Problem};
use landfall_proto::PROBLEM_METADATA;
use prost::Message as _;
use tonic::{Code, Status, metadata::MetadataValue};

use super::convert;

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
    let encoded = convert::problem_to_wire(problem).encode_to_vec();
    status.metadata_mut().insert_bin(PROBLEM_METADATA, MetadataValue::from_bytes(&encoded));
    status
}
