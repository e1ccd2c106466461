//! A boot token for an agent that has none, since its boot medium or signed kernel image is the same for every machine. It is on the
//! TLS port: the agent knows the coordinator by the pin, and no other host reads the answer. That port is open to more hosts than the
//! one with the boot scripts, so more is asked of the address: it must be known to be the machine's, by the kernel's table of
//! neighbours, or behind a relay by a lease of ours.
//!
//! | answer | meaning |
//! |---|---|
//! | 200 | the token |
//! | 409 | the machine has nothing to run; ask again later |
//! | 404 | no token is made: a person or a rule approves the machine's key, now or when it has a workflow |

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use http::StatusCode;
use landfall_api::{BOOT_TOKEN_PATH, MacAddr};
use serde::Deserialize;
use tokio::time::timeout;
use uuid::Uuid;

use super::file::plain;
use super::{Asks, BootHttp, Client, DECISION_LIMIT, decide, for_one, one_machine, too_many};
use crate::neighbours::Behind;
use crate::policy::Decision;

#[derive(Debug, Deserialize)]
struct TokenQuery {
    mac: MacAddr,
    uuid: Option<Uuid>,
}

/// The route. Its listener puts the remote `SocketAddr` into every request's extensions.
pub fn router(shared: Arc<BootHttp>) -> Router {
    Router::new().route(BOOT_TOKEN_PATH, get(token)).with_state(shared)
}

async fn token(
    State(shared): State<Arc<BootHttp>>, from: Option<Extension<SocketAddr>>,
    query: Result<Query<TokenQuery>, QueryRejection>,
) -> Response {
    let Ok(Query(TokenQuery { mac, uuid })) = query else {
        return plain(StatusCode::BAD_REQUEST, "the parameter mac is missing or invalid: mac=52:54:00:12:34:56\n");
    };
    let client = from.map(|Extension(address)| Client(address));
    if let Some(refused) = too_many(&shared, client.as_ref()) {
        return refused;
    }
    if !is_its_own(&shared, client.as_ref(), mac).await {
        let why =
            format!("only a machine on a link of the coordinator, or with a lease of it, gets a token for {mac}\n");
        return plain(StatusCode::NOT_FOUND, why);
    }
    let asks = Asks { mac, client: "agent", from: client.map(|client| client.0.ip().to_canonical()) };
    let (status, text) = match decide(&shared, client.as_ref(), &asks, uuid).await {
        Ok(Decision::RunAgent { token, .. }) => (StatusCode::OK, token),
        Ok(Decision::BootDisk { machine, .. }) if by_token_only(&shared, mac).await => {
            let why = format!("{machine} has nothing to run: it has no workflow, or is held or in maintenance\n");
            (StatusCode::CONFLICT, why)
        }
        Ok(Decision::BootDisk { .. } | Decision::Approve { .. }) => {
            (StatusCode::NOT_FOUND, "this machine's key must be approved\n".to_owned())
        }
        Ok(Decision::Unknown) => (StatusCode::NOT_FOUND, format!("no machine has the address {mac}\n")),
        Err(why) => (StatusCode::NOT_FOUND, format!("{why}\n")),
    };
    for_one(plain(status, text))
}

async fn is_its_own(shared: &BootHttp, client: Option<&Client>, mac: MacAddr) -> bool {
    let Some(client) = client else { return false };
    match shared.neighbours.behind(client.0).await {
        Behind::Mac(real) => real == mac || one_machine(shared, real, mac).await,
        Behind::Unknown | Behind::Unleased(_) | Behind::Stray => false,
    }
}

/// Whether waiting for a workflow is all that the agent can do.
async fn by_token_only(shared: &BootHttp, mac: MacAddr) -> bool {
    matches!(timeout(DECISION_LIMIT, shared.policy.machine(mac)).await, Ok(Ok(Some(machine))) if machine.by_token_only)
}
