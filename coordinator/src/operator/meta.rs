//! What the API says of itself.

use axum::Json;
use axum::extract::Path;
use axum::http::{StatusCode, Uri};
use landfall_api::{ErrorCode, Kind, NO_SUCH_ROUTE, Problem};
use serde_json::Value;

use super::{caller::Operator, problem::Refusal};

pub(super) async fn openapi() -> Json<Value> {
    Json(landfall_api::openapi(env!("CARGO_PKG_VERSION")))
}

pub(super) async fn schema(Path(kind): Path<String>) -> Result<Json<Value>, Refusal> {
    let kind = Kind::from_word(&kind).ok_or_else(|| {
        let hint = format!("the kinds are {}", Kind::ALL.map(Kind::singular).join(", "));
        Problem::new(ErrorCode::NotFound, format!("there is no kind \"{kind}\"")).hint(hint)
    })?;
    Ok(Json(landfall_api::schema(kind)))
}

pub(super) async fn nowhere(uri: Uri) -> Refusal {
    Problem::new(ErrorCode::NotFound, NO_SUCH_ROUTE).at(uri.path()).hint("GET /openapi.json lists all routes").into()
}

/// Below the table's rows, so it asks by itself who calls: the extractor does.
pub(super) async fn wrong_method(_: Operator, uri: Uri) -> Refusal {
    let problem = Problem::new(ErrorCode::InvalidDocument, "this route does not support that method")
        .at(uri.path())
        .hint("GET /openapi.json lists each route with its methods");
    Refusal::with_status(StatusCode::METHOD_NOT_ALLOWED, problem)
}
