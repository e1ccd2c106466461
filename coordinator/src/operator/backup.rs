//! A backup of the running coordinator.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use landfall_api::{ErrorCode, Problem};

use super::problem::Refusal;
use crate::backup;
use crate::backup::BackupError;
use crate::state::Coordinator;

pub(super) async fn backup(State(coordinator): State<Arc<Coordinator>>) -> Result<Response, Refusal> {
    let Some(upkeep) = coordinator.store.upkeep() else {
        let problem = Problem::new(ErrorCode::NotFound, "this coordinator's store is not on its own disk");
        return Err(problem.hint("back up the store at its own place").into());
    };
    let stream = backup::stream(upkeep, &coordinator.config.data_dir).await.map_err(problem)?;
    let headers = [
        (header::CONTENT_TYPE, "application/x-tar"),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"landfall-backup.tar\""),
    ];
    Ok((headers, Body::from_stream(stream)).into_response())
}

fn problem(error: BackupError) -> Problem {
    match error {
        BackupError::Store(error) => error.into(),
        BackupError::Io { .. } => Problem::new(ErrorCode::StoreUnavailable, error.to_string())
            .caused_by(&error)
            .hint("a backup needs room for a copy of the database in the data directory"),
        other => Problem::new(ErrorCode::Internal, other.to_string()).caused_by(&other),
    }
}
