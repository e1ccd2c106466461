//! Who calls, and what they may.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use jiff::Timestamp;
use landfall_api::{ErrorCode, Problem, Role, TokenInfo};

use super::problem::Refusal;
use crate::state::Coordinator;
use crate::tls::{OperatorCert, Peer};

/// With it a coordinator that passes a request on names the caller, as [`Caller::who`].
pub(super) const WHO: &str = "landfall-who";

/// An admitted caller, as handlers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Operator {
    /// As recorded in what they ask for: the name in a certificate or of a token, or a local user's.
    pub(super) name: String,
    /// What they may do.
    pub(super) role: Role,
}

impl Operator {
    /// Refuses a caller with a lesser role: for rights that depend on the request's body.
    pub(super) fn at_least(&self, least: Role, what: &str) -> Result<(), Problem> {
        if self.role >= least { Ok(()) } else { Err(too_little(&self.name, self.role, least, what)) }
    }
}

/// A caller with all that says whether they still may.
pub(super) struct Caller {
    pub(super) name: String,
    pub(super) role: Role,
    /// For the audit log: `admin/ann`, `token/ci`, `local/root`.
    pub(super) who: String,
    /// When what they showed ends by itself.
    pub(super) ends: Option<Timestamp>,
    shown: Shown,
}

enum Shown {
    Local,
    Certificate(OperatorCert),
    Token(TokenInfo),
}

impl Caller {
    pub(super) fn at_least(&self, least: Role) -> Result<(), Problem> {
        if self.role >= least { Ok(()) } else { Err(too_little(&self.name, self.role, least, "that")) }
    }

    /// Whether a certificate is what counts: browsers show one unasked.
    pub(super) fn by_certificate(&self) -> bool {
        matches!(self.shown, Shown::Certificate(_))
    }

    /// Whether what they showed holds now.
    pub(super) async fn still_good(&self, coordinator: &Coordinator) -> bool {
        let access = coordinator.store.access();
        match &self.shown {
            Shown::Local => true,
            Shown::Certificate(certificate) => {
                let now = if certificate.stands_in { certificate.not_after } else { Timestamp::now() };
                access.check_operator(certificate.checked(), now).await.is_ok()
            }
            Shown::Token(token) => access.still_held(token).await.unwrap_or(false),
        }
    }
}

fn too_little(name: &str, role: Role, least: Role, what: &str) -> Problem {
    Problem::new(ErrorCode::Forbidden, format!("{name} has the role {role}; {what} needs the role {least}"))
        .hint(format!("ask an admin for a token or certificate with the role {least}"))
}

/// Judges who calls. If the request has a bearer token, only the token counts.
///
/// # Errors
/// [`Problem`] with code `Unauthenticated`, `Revoked` or `Forbidden`, or of the store.
pub(super) async fn admit(
    coordinator: &Coordinator, peer: Option<&Peer>, headers: &HeaderMap,
) -> Result<Caller, Problem> {
    let (access, now) = (coordinator.store.access(), Timestamp::now());
    let peer = peer.unwrap_or(&Peer::Anonymous);
    // Whatever else it shows: a machine that operates is a machine that was taken over.
    if let Peer::Machine(machine) = peer {
        let message = format!("the machine {} may not operate this coordinator", machine.name);
        return Err(Problem::new(ErrorCode::Forbidden, message)
            .hint("use an operator's certificate or token; machines use only their own session"));
    }
    if let Some(value) = headers.get(AUTHORIZATION) {
        let bearer = value
            .to_str()
            .ok()
            .and_then(|text| text.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let Some((_, bearer)) = bearer else {
            return Err(Problem::new(ErrorCode::Unauthenticated, "the Authorization header is not a bearer token")
                .hint("send: Authorization: Bearer lft_..."));
        };
        let token = access.holder(bearer.trim(), now).await?;
        return Ok(Caller {
            name: token.name.clone(),
            role: token.role,
            who: format!("token/{}", token.name),
            ends: Some(token.expires),
            shown: Shown::Token(token),
        });
    }
    match peer {
        Peer::Operator(certificate) => {
            access.check_operator(certificate.checked(), now).await?;
            // Another coordinator has judged who calls, and says what it was shown.
            let said = headers.get(WHO).filter(|_| certificate.stands_in).and_then(|who| who.to_str().ok());
            let who = said.map_or_else(|| format!("{}/{}", certificate.role, certificate.name), str::to_owned);
            Ok(Caller {
                name: certificate.name.clone(),
                role: certificate.role,
                who,
                // The coordinator that asks ends the answer when the person's own right ends. Its certificate only begins the connection.
                ends: (!certificate.stands_in).then_some(certificate.not_after),
                shown: Shown::Certificate(certificate.clone()),
            })
        }
        Peer::Local { uid, user } if *uid == 0 || *uid == nix::unistd::geteuid().as_raw() => Ok(Caller {
            name: user.clone(),
            role: Role::Admin,
            who: format!("local/{user}"),
            ends: None,
            shown: Shown::Local,
        }),
        Peer::Local { user, .. } => Err(Problem::new(
            ErrorCode::Forbidden,
            format!("the local user {user} may not operate this coordinator"),
        )
        .hint("run the command as root or as the coordinator's own user, or use a token or an operator's certificate")),
        Peer::Machine(_) | Peer::Anonymous => {
            Err(Problem::new(ErrorCode::Unauthenticated, "this needs an operator's certificate or a bearer token")
                .hint("use --ca, --cert and --key; the first set is in admin/ of the coordinator's data directory"))
        }
    }
}

/// What the guard found. Where no guard stood (a method that no row has), the caller is judged here, as a viewer.
impl FromRequestParts<Arc<Coordinator>> for Operator {
    type Rejection = Refusal;
    async fn from_request_parts(parts: &mut Parts, coordinator: &Arc<Coordinator>) -> Result<Self, Refusal> {
        if let Some(operator) = parts.extensions.get::<Self>() {
            return Ok(operator.clone());
        }
        let caller = admit(coordinator, parts.extensions.get::<Peer>(), &parts.headers).await?;
        Ok(Self { name: caller.name, role: caller.role })
    }
}
