//! A machine's serial console: an answer that goes on for as long as it is read, and requests beside it with what is typed.
//!
//! Two plain kinds of request, and no upgraded connection: they are the same over HTTP/1.1, HTTP/2 and the Unix socket, pass proxies as
//! a followed log does, and each is checked for who calls.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use jiff::Timestamp;
use landfall_api::{ConsoleInput, ConsoleLine, ConsoleRequest, ConsoleTaken};

use super::body::JsonBody;
use super::caller::Operator;
use super::guard::{About, Asked};
use super::problem::Refusal;
use super::watch::{Lines, blanks, lines};
use crate::engine::OpenConsole;
use crate::state::Coordinator;

pub(super) async fn open(
    operator: Operator, State(coordinator): State<Arc<Coordinator>>, Path(machine): Path<String>,
    Extension(asked): Extension<Asked>, JsonBody(request): JsonBody<ConsoleRequest>,
) -> Result<Response, Refusal> {
    let console = coordinator.engine.power().open_console(&machine, &operator.name, request).await?;
    let about = |detail: &str| About { subject: format!("machine/{machine}"), detail: detail.to_owned() };
    let (opened, closed) = (about("console opened"), about("console closed"));
    let (lines, response) = lines();
    tokio::spawn(async move {
        pass(console, &lines).await;
        coordinator.store.audit().note(Timestamp::now(), asked.ended(closed)).await;
    });
    Ok((Extension(opened), response).into_response())
}

/// Passes on the console's lines until it ends or the reader goes.
async fn pass(mut console: OpenConsole, lines: &Lines) {
    if !lines.send(&ConsoleLine::Opened(console.id)).await {
        return;
    }
    let mut blanks = blanks();
    loop {
        tokio::select! {
            line = console.next() => match line {
                Some(line) => if !lines.send(&line).await { return },
                None => return,
            },
            _ = blanks.tick() => if !lines.blank().await { return },
            () = lines.closed() => return,
        }
    }
}

pub(super) async fn input(
    operator: Operator, State(coordinator): State<Arc<Coordinator>>, Path(machine): Path<String>,
    JsonBody(input): JsonBody<ConsoleInput>,
) -> Result<Json<ConsoleTaken>, Refusal> {
    Ok(Json(coordinator.engine.power().type_at_console(&machine, &operator.name, input).await?))
}
