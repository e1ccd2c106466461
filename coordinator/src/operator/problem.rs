//! A problem as an HTTP answer.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use landfall_api::{ErrorCode, Problem};

use crate::store::StoreError;

/// A refused or failed request: a status, and the problem as its JSON body.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    problem: Box<Problem>,
}

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
        (self.status, Json(self.problem)).into_response()
    }
}

fn status_of(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::Unauthenticated | ErrorCode::TokenRefused => StatusCode::UNAUTHORIZED,
        ErrorCode::Forbidden => StatusCode::FORBIDDEN,
        ErrorCode::Expired => StatusCode::GONE,
        ErrorCode::LimitReached => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::Conflict
        | ErrorCode::AlreadyExists
        | ErrorCode::MachineBusy
        | ErrorCode::WorkflowEnded
        | ErrorCode::AmbiguousIdentity
        | ErrorCode::ReceiptMismatch
        | ErrorCode::DiskNotBlank => StatusCode::CONFLICT,
        ErrorCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        // What is left is said of the request's own content: a document, a template, an image's URL.
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}
