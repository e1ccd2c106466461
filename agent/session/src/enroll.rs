//! Enrolment: proof and public key in, certificate out.

use std::time::Duration;

use jiff::Timestamp;
use landfall_api::message::{EnrollAnswer, EnrollOutcome, EnrollRequest, Identity, MachineCredentials, Proof};
use landfall_api::{ErrorCode, MachineFacts, Problem};
use landfall_proto::v1::agent_service_client::AgentServiceClient;
use landfall_proto::{ConvertError, PROTOCOL, v1};
use rustls::pki_types::CertificateDer;
use tokio::time::timeout;
use tonic::transport::Channel;
use uuid::Uuid;

use crate::connect::connect;
use crate::{AgentKey, Credentials, Dial, SessionConfig, Target, Validity, connect, wire_status};

/// The largest size of facts in a request, bytes: a coordinator reads 64 KiB from callers without a certificate,
/// including key and identity.
const MAX_FACTS: usize = 48 << 10;
/// How long the coordinator may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// An admitted machine.
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

/// A machine that was not admitted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{problem}")]
pub struct EnrollError {
    /// Why, for people.
    pub problem: Problem,
    /// Whether the same request may succeed later without a restart of the machine.
    pub retryable: bool,
    /// When to repeat the request, if the coordinator said so (it waits for a person's approval).
    pub retry_after: Option<Duration>,
}

impl EnrollError {
    const fn new(problem: Problem, retryable: bool) -> Self {
        Self { problem, retryable, retry_after: None }
    }
    fn invalid(error: &ConvertError) -> Self {
        Self::new(wire_status::invalid(error), true)
    }
}

/// Requests enrolment once. Certificates' dates are ignored on this one connection, so that a machine with a wrong
/// clock can enrol; `software` is the agent's own version.
///
/// # Errors
/// [`EnrollError`]: no connection, refused, or not yet approved.
pub async fn enroll(
    target: &Target, software: &str, identity: &Identity, boot_id: &str, proof: &Proof, key: &AgentKey,
) -> Result<Enrolled, EnrollError> {
    enroll_over(&connect::Tls, target, software, identity, boot_id, proof, key).await
}

/// [`enroll`] over a network of one's own.
///
/// # Errors
/// [`EnrollError`], as there.
pub async fn enroll_over(
    way: &dyn Dial, target: &Target, software: &str, identity: &Identity, boot_id: &str, proof: &Proof, key: &AgentKey,
) -> Result<Enrolled, EnrollError> {
    let request = request(key, software, identity, boot_id, proof.clone(), None)?;
    enroll_by(way, target, key, request).await
}

/// [`enroll`] with the machine's facts: enrolment rules for unknown machines use them.
///
/// # Errors
/// [`EnrollError`], as there.
pub async fn enroll_with_facts(
    target: &Target, software: &str, identity: &Identity, boot_id: &str, proof: &Proof, key: &AgentKey,
    facts: &MachineFacts,
) -> Result<Enrolled, EnrollError> {
    // A request is one without them too, where they are more than a coordinator takes of unknown machines.
    let short = serde_json::to_vec(facts).is_ok_and(|json| json.len() <= MAX_FACTS);
    let facts = short.then(|| Box::new(facts.clone()));
    let request = request(key, software, identity, boot_id, proof.clone(), facts)?;
    enroll_by(&connect::Tls, target, key, request).await
}

async fn enroll_by(
    way: &dyn Dial, target: &Target, key: &AgentKey, request: v1::EnrollRequest,
) -> Result<Enrolled, EnrollError> {
    let mut left = target.places().len();
    loop {
        left -= 1;
        let channel = connect(way, target, Validity::AnyTime, None)
            .await
            .map_err(|error| EnrollError::new(error.to_problem(target), true))?;
        let asked = ask(AgentServiceClient::new(channel), target, key, request.clone()).await;
        // Not from one that says when to ask again.
        let Some(refused) = asked.as_ref().err().filter(|error| error.retry_after.is_none()) else { return asked };
        target.pass_on();
        // One that refuses for good may lag behind another one, or have a wrong clock: each is asked.
        if refused.retryable || left == 0 {
            return asked;
        }
    }
}

/// Asks for a new certificate for the key that the connection of `client` was opened with.
pub(crate) async fn renew(
    client: AgentServiceClient<Channel>, config: &SessionConfig, credentials: &Credentials,
) -> Result<Credentials, EnrollError> {
    let (identity, key) = (&config.identity, credentials.key());
    let request = request(key, &config.software, identity, &config.boot_id, Proof::Renewal, None)?;
    Ok(ask(client, &config.target, key, request).await?.credentials)
}

fn request(
    key: &AgentKey, software: &str, identity: &Identity, boot_id: &str, proof: Proof, facts: Option<Box<MachineFacts>>,
) -> Result<v1::EnrollRequest, EnrollError> {
    let csr_der = key.request_der().map_err(|error| {
        EnrollError::new(Problem::new(ErrorCode::Internal, error.to_string()).caused_by(&error), true)
    })?;
    let request = EnrollRequest {
        software: software.to_owned(),
        protocol: PROTOCOL,
        identity: identity.clone(),
        boot_id: boot_id.to_owned(),
        csr_der,
        facts,
        proof,
    };
    request.try_into().map_err(|error| EnrollError::invalid(&error))
}

async fn ask(
    mut client: AgentServiceClient<Channel>, target: &Target, key: &AgentKey, request: v1::EnrollRequest,
) -> Result<Enrolled, EnrollError> {
    let answer = match timeout(ANSWER_LIMIT, client.enroll(request)).await {
        Ok(Ok(answer)) => answer.into_inner(),
        Ok(Err(status)) => {
            return Err(EnrollError::new(wire_status::problem_of(target, &status), wire_status::retryable(&status)));
        }
        Err(_) => {
            let problem = Problem::new(ErrorCode::SourceUnreachable, "the coordinator does not answer Enroll")
                .hint("read the coordinator's log to see what it waits for")
                .at(target.to_string());
            return Err(EnrollError::new(problem, true));
        }
    };
    let answer = EnrollAnswer::try_from(answer).map_err(|error| EnrollError::invalid(&error))?;
    match answer.outcome {
        EnrollOutcome::Granted(granted) => {
            admitted(granted, key, answer.coordinator_time).map_err(|error| EnrollError::invalid(&error))
        }
        EnrollOutcome::Waiting { reason, retry_after } => {
            let problem = Problem::new(ErrorCode::Unapproved, reason)
                .hint(format!("the key's fingerprint is {}", key.readable_fingerprint()))
                .at(target.to_string());
            Err(EnrollError { problem, retryable: true, retry_after: Some(retry_after) })
        }
    }
}

fn admitted(
    granted: MachineCredentials, key: &AgentKey, coordinator_time: Timestamp,
) -> Result<Enrolled, ConvertError> {
    let field = "enroll.credentials.certificate_chain_der";
    let chain: Vec<_> = granted.certificate_chain_der.into_iter().map(CertificateDer::from).collect();
    let leaf = chain.first().ok_or_else(|| ConvertError::missing(field))?;
    if !key.matches(leaf) {
        return Err(ConvertError::new(field, "the certificate is not for this agent's key"));
    }
    Ok(Enrolled {
        machine_name: granted.machine_name,
        machine_uid: granted.machine_uid,
        credentials: Credentials::new(key.clone(), chain),
        coordinator_time,
    })
}
