//! Who calls, and whether they may: the one check in front of every route.

use axum::{extract::FromRequestParts, http::request::Parts};
use landfall_api::{ErrorCode, Problem};

use super::problem::Refusal;
use crate::tls::Peer;

/// A caller who may operate: an operator's certificate, or over the Unix socket root or the coordinator's own user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Operator {
    /// As recorded in what they ask for: a certificate's name, or a local user's.
    pub(super) name: String,
}

impl Operator {
    /// Judges a peer; `own_uid` is the user this process runs as.
    ///
    /// # Errors
    /// `Unauthenticated` for nobody, `Forbidden` for somebody else.
    pub(super) fn admit(peer: &Peer, own_uid: u32) -> Result<Self, Problem> {
        match peer {
            Peer::Operator { name } => Ok(Self { name: name.clone() }),
            Peer::Local { uid, user } if *uid == 0 || *uid == own_uid => Ok(Self { name: user.clone() }),
            Peer::Local { user, .. } => Err(Problem::new(
                ErrorCode::Forbidden,
                format!("the local user {user} may not operate this coordinator"),
            )
            .hint("run the command as root or as the coordinator's own user, or use an operator's certificate")),
            Peer::Machine(machine) => Err(Problem::new(
                ErrorCode::Forbidden,
                format!("the machine {} may not operate this coordinator", machine.name),
            )
            .hint("use an operator's certificate; machines speak over their own session only")),
            Peer::Anonymous => Err(Problem::new(ErrorCode::Unauthenticated, "this needs an operator's certificate")
                .hint("pass --ca, --cert and --key; the first ones are in admin/ of the coordinator's data directory")),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Operator {
    type Rejection = Refusal;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let peer = parts.extensions.get::<Peer>().unwrap_or(&Peer::Anonymous);
        Ok(Self::admit(peer, nix::unistd::geteuid().as_raw())?)
    }
}
