//! Enrolment: proof and public key in, certificate out.

use std::time::Duration;

use jiff::Timestamp;
use landfall_api::{ErrorCode, Problem};
use landfall_proto::v1::{self, agent_service_client::AgentServiceClient, enroll_response::Outcome};
use rustls::pki_types::CertificateDer;
use tokio::time::timeout;
use uuid::Uuid;

use crate::{
    AgentKey, Credentials, Identity, Proof, Target, Validity,
    connect::connect,
    convert::{self, ConvertError},
    wire_status,
};

/// How long the coordinator may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// A machine that was let in.
#[derive(Debug, Clone)]
pub struct Enrolled {
    /// Its name.
    pub machine_name: String,
    /// Its uid.
    pub machine_uid: Uuid,
    /// For the session.
    pub credentials: Credentials,
    /// What the clock should say. Comes over a connection that proved a pinned key, but whose dates were not checked.
    pub coordinator_time: Timestamp,
}

/// A machine that was not let in.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{problem}")]
pub struct EnrollError {
    /// Why, for people.
    pub problem: Problem,
    /// Whether the same request may go through later without anybody booting the machine again.
    pub retryable: bool,
    /// When to ask again, if the coordinator said so (it waits for a person's approval).
    pub retry_after: Option<Duration>,
}

impl EnrollError {
    const fn new(problem: Problem, retryable: bool) -> Self {
        Self { problem, retryable, retry_after: None }
    }
    fn nonsense(error: &ConvertError) -> Self {
        Self::new(error.to_problem(), true)
    }
}

/// Asks once to be let in. Certificates' dates are ignored on this one connection, so that a machine with a dead clock
/// gets in; `software` is the agent's own version.
///
/// # Errors
/// [`EnrollError`]: no connection, refused, or not yet approved.
pub async fn enroll(
    target: &Target,
    software: &str,
    identity: &Identity,
    boot_id: &str,
    proof: &Proof,
    key: &AgentKey,
) -> Result<Enrolled, EnrollError> {
    let csr_der = key.request_der().map_err(|error| {
        EnrollError::new(Problem::new(ErrorCode::Internal, error.to_string()).caused_by(&error), true)
    })?;
    let channel = connect(target, Validity::AnyTime, None)
        .await
        .map_err(|error| EnrollError::new(error.to_problem(target), true))?;
    let request = v1::EnrollRequest {
        versions: Some(convert::versions(software)),
        identity: Some(convert::identity(identity)),
        boot_id: boot_id.to_owned(),
        csr_der,
        proof: Some(match proof {
            Proof::BootToken(token) => {
                v1::enroll_request::Proof::BootToken(v1::BootToken { token: token.expose().to_owned() })
            }
            Proof::Approval { fingerprint } => {
                v1::enroll_request::Proof::Approval(v1::Approval { fingerprint: fingerprint.clone() })
            }
        }),
    };
    let answer = match timeout(ANSWER_LIMIT, AgentServiceClient::new(channel).enroll(request)).await {
        Ok(Ok(answer)) => answer.into_inner(),
        Ok(Err(status)) => {
            return Err(EnrollError::new(wire_status::problem_of(target, &status), wire_status::retryable(&status)));
        }
        Err(_) => {
            let problem = Problem::new(ErrorCode::SourceUnreachable, "the coordinator does not answer Enroll")
                .hint("the coordinator's log says what it waits for")
                .at(target.to_string());
            return Err(EnrollError::new(problem, true));
        }
    };
    let coordinator_time = convert::timestamp("enroll.coordinator_time", answer.coordinator_time)
        .map_err(|e| EnrollError::nonsense(&e))?;
    match answer.outcome {
        Some(Outcome::Credentials(wire)) => {
            admitted(wire, key, coordinator_time).map_err(|e| EnrollError::nonsense(&e))
        }
        Some(Outcome::Waiting(waiting)) => {
            let after = convert::duration("enroll.waiting.retry_after", waiting.retry_after)
                .map_err(|e| EnrollError::nonsense(&e))?;
            let problem = Problem::new(ErrorCode::Unauthenticated, waiting.reason)
                .hint(format!("approve the key {} at the coordinator", key.fingerprint()))
                .at(target.to_string());
            Err(EnrollError { problem, retryable: true, retry_after: Some(after) })
        }
        None => Err(EnrollError::nonsense(&ConvertError::missing("enroll.outcome"))),
    }
}

fn admitted(wire: v1::Credentials, key: &AgentKey, coordinator_time: Timestamp) -> Result<Enrolled, ConvertError> {
    let field = "enroll.credentials.certificate_chain_der";
    let chain: Vec<_> = wire.certificate_chain_der.into_iter().map(CertificateDer::from).collect();
    let leaf = chain.first().ok_or_else(|| ConvertError::missing(field))?;
    if !key.matches(leaf) {
        return Err(ConvertError::new(field, "the certificate is not for this agent's key"));
    }
    Ok(Enrolled {
        machine_name: wire.machine_name,
        machine_uid: convert::uuid("enroll.credentials.machine_uid", &wire.machine_uid)?,
        credentials: Credentials::new(key.clone(), chain),
        coordinator_time,
    })
}
