//! The table of calls: who may use each, and the check in front of all of them. A call that is not in the table is
//! refused for every caller.

use std::net::SocketAddr;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use landfall_api::{AuditOutcome, ErrorCode, Problem};

use super::status;
use crate::engine::Engine;
use crate::tls::{MachineCert, Peer};
use landfall_store::audit::{ANONYMOUS, MACHINE, Note};

/// The gRPC service's name, with its slashes.
const SERVICE: &str = "/landfall.agent.v1.AgentService/";

/// Whom a call lets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallAccess {
    /// A caller with its own proof: unauthenticated, or a machine. A certificate must be valid if there is one.
    Proof,
    /// A machine, by a certificate that is good now.
    Machine,
}

/// What is to be known of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallInfo {
    /// Its name in the `.proto` file.
    pub name: &'static str,
    /// Whom it lets in.
    pub access: CallAccess,
    /// What it does, in one line.
    pub about: &'static str,
}

/// Every call that agents may make.
pub const CALLS: [CallInfo; 3] = [
    CallInfo { name: "Enroll", access: CallAccess::Proof, about: "A proof and a key in, a certificate out" },
    CallInfo { name: "Session", access: CallAccess::Machine, about: "Control: instructions, events, heartbeats" },
    CallInfo { name: "Telemetry", access: CallAccess::Machine, about: "Progress and log lines" },
];

/// A machine whose certificate was good when the call began; in the request's extensions.
#[derive(Debug, Clone)]
pub(super) struct Admitted(pub(super) MachineCert);

/// Lets a call through, or refuses it.
pub(super) async fn check(State(engine): State<Engine>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().cloned().unwrap_or(Peer::Anonymous);
    let name = request.uri().path().strip_prefix(SERVICE).unwrap_or_default();
    let call = CALLS.iter().find(|call| call.name == name);
    match judge(&engine, call, &peer).await {
        Ok(admitted) => {
            request.extensions_mut().extend(
                admitted
                    .map(|machine| {
                        let mut extensions = axum::http::Extensions::new();
                        extensions.insert(Admitted(machine));
                        extensions
                    })
                    .unwrap_or_default(),
            );
            next.run(request).await
        }
        Err(problem) => {
            let from = request.extensions().get::<SocketAddr>().map(|a| a.ip().to_canonical().to_string());
            refused(&engine, call.map_or("an unknown call", |call| call.name), &peer, from, &problem).await;
            status::of(problem).into_http()
        }
    }
}

async fn judge(engine: &Engine, call: Option<&CallInfo>, peer: &Peer) -> Result<Option<MachineCert>, Problem> {
    let Some(call) = call else {
        return Err(Problem::new(ErrorCode::VersionSkew, "this coordinator does not know this call")
            .hint("build the boot image and the coordinator from one release"));
    };
    match (peer, call.access) {
        (Peer::Machine(machine), _) => {
            engine.certificates().check_for_call(machine).await.map(|()| Some(machine.clone()))
        }
        (Peer::Anonymous, CallAccess::Proof) => Ok(None),
        (Peer::Anonymous, CallAccess::Machine) => {
            Err(Problem::new(ErrorCode::Unauthenticated, "this call needs a machine's certificate").hint("enrol first"))
        }
        (Peer::Operator(_) | Peer::Local { .. }, _) => {
            Err(Problem::new(ErrorCode::Forbidden, "agents' calls are for machines; operators have their own routes")
                .hint("GET /openapi.json lists them"))
        }
    }
}

/// Says in the audit log that a call was refused.
pub(super) async fn refused(engine: &Engine, call: &str, peer: &Peer, from: Option<String>, problem: &Problem) {
    let who = match peer {
        Peer::Anonymous => ANONYMOUS.to_owned(),
        Peer::Machine(machine) => format!("{MACHINE}{}", machine.name),
        Peer::Operator(operator) => format!("{}/{}", operator.role, operator.name),
        Peer::Local { user, .. } => format!("local/{user}"),
    };
    let note = Note {
        who,
        from: from.unwrap_or_else(|| "unknown".to_owned()),
        action: call.to_owned(),
        subject: problem.subject.clone(),
        outcome: AuditOutcome::Refused,
        code: Some(problem.code),
        detail: problem.message.clone(),
    };
    engine.fleet().audit(note).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_the_contract_is_in_the_table() {
        let contract = include_str!("../../../proto/proto/landfall/agent/v1/agent.proto");
        let named = contract.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());
        assert_eq!(named.collect::<Vec<_>>(), CALLS.map(|call| call.name));
        assert!(contract.contains("package landfall.agent.v1;") && contract.contains("service AgentService {"));
    }
}
