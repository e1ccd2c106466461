//! A problem as an HTTP answer.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use landfall_api::{ErrorCode, Problem};

use landfall_edge::metrics::refused;
use landfall_store::StoreError;

/// A refused or failed request: a status, and the problem as its JSON body.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    problem: Box<Problem>,
}

/// The code of a refused request, in its response's extensions for the audit log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failure(pub(super) ErrorCode);

impl Refusal {
    pub(super) fn with_status(status: StatusCode, problem: Problem) -> Self {
        Self { status, problem: Box::new(problem) }
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::with_status(status_of(problem.code), problem)
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Problem::from(error).into()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        if self.status.is_server_error() {
            tracing::error!(service = "operator", status = self.status.as_u16(), problem = %self.problem, "request failed");
        }
        refused("api", self.problem.code);
        let failure = Failure(self.problem.code);
        (self.status, Extension(failure), Json(self.problem)).into_response()
    }
}

fn status_of(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::Unauthenticated | ErrorCode::TokenRefused | ErrorCode::Revoked => StatusCode::UNAUTHORIZED,
        ErrorCode::Forbidden => StatusCode::FORBIDDEN,
        ErrorCode::Expired => StatusCode::GONE,
        ErrorCode::LimitReached => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::Conflict
        | ErrorCode::AlreadyExists
        | ErrorCode::MachineBusy
        | ErrorCode::WorkflowEnded
        | ErrorCode::AmbiguousIdentity
        | ErrorCode::ReceiptMismatch
        | ErrorCode::DiskNotBlank
        | ErrorCode::Unapproved
        | ErrorCode::Unmanaged
        | ErrorCode::Maintenance => StatusCode::CONFLICT,
        ErrorCode::StoreUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        // What is left is said of the request's own content: a document, a template, an image's URL.
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}
