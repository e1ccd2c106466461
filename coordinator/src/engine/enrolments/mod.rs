//! Enrolment: a proof and a key in, a machine's certificate out. Every answer is in the audit log.

mod approve;
mod discover;
mod rules;
mod types;

use std::sync::Arc;
use std::time::Duration;

use landfall_api::message::{EnrollRequest, Proof};
use landfall_api::{AuditOutcome, ErrorCode, Machine, Problem, ProofKind, Reason, Shared};

use super::alarms::Alarms;
use super::certificates::{CertificateAuthority, Certificates};
use super::fleet::{CAS_TRIES, Fleet, contended};
use super::identities::{Identities, describe};
use super::requests::Requests;
use super::tokens::{Read, Tokens};
pub use approve::by_token_only;
use landfall_store::audit::{ANONYMOUS, MACHINE, Note};
pub use types::{Asker, Enrolled, Enrolment};

/// For so long at least a key can enrol again with the boot token that it was the first to use. No other key can.
const BOUND: Duration = Duration::from_secs(30 * 24 * 3600);

/// Which computer gets a certificate, and by whose word. Cloning it shares it.
#[derive(Clone)]
pub struct Enrolments {
    fleet: Arc<Fleet>,
    alarms: Arc<Alarms>,
    identities: Arc<Identities>,
    certificates: Arc<Certificates>,
    requests: Requests,
    tokens: Arc<Tokens>,
    authority: Arc<dyn CertificateAuthority>,
}

impl Enrolments {
    pub(in crate::engine) const fn new(
        fleet: Arc<Fleet>, alarms: Arc<Alarms>, identities: Arc<Identities>, certificates: Arc<Certificates>,
        requests: Requests, tokens: Arc<Tokens>, authority: Arc<dyn CertificateAuthority>,
    ) -> Self {
        Self { fleet, alarms, identities, certificates, requests, tokens, authority }
    }

    /// Issues a certificate to a caller that proves to be a machine: by its boot token, by a person's approval of the
    /// key, or by the certificate it has.
    ///
    /// # Errors
    /// [`Problem`] with code `TokenRefused`, `AmbiguousIdentity`, `Unapproved`, `Forbidden`, `Unauthenticated`, `Revoked`
    /// or `InvalidDocument` (the request does not parse).
    pub async fn enroll(&self, request: EnrollRequest, by: Asker) -> Result<Enrolment, Problem> {
        let from = by.address.map_or_else(|| "unknown".to_owned(), |a| a.to_canonical().to_string());
        let who = by.shown.as_ref().map_or_else(|| ANONYMOUS.to_owned(), |m| format!("{MACHINE}{}", m.name));
        let (action, said) = match request.proof {
            Proof::BootToken(_) => ("Enroll", describe(&request.identity)),
            Proof::Approval { .. } => ("EnrollByApproval", describe(&request.identity)),
            Proof::Renewal => ("RenewCertificate", String::new()),
        };
        let answer = self.answer(request, &by).await;
        let note = |outcome| Note {
            who,
            from,
            action: action.to_owned(),
            subject: String::new(),
            outcome,
            code: None,
            detail: said.clone(),
        };
        let note = match &answer {
            // Asked again every few seconds; that a key began to wait was noted when it did.
            Ok(Enrolment::Waiting { .. }) => return answer,
            Ok(Enrolment::Granted(Enrolled { machine, serial_hex, expires, .. })) => Note {
                subject: format!("machine/{machine}"),
                detail: format!("certificate {serial_hex} until {expires}; {said}"),
                ..note(AuditOutcome::Done)
            },
            Err(problem) => Note {
                subject: problem.subject.clone(),
                code: Some(problem.code),
                detail: format!("{}; {said}", problem.message),
                ..note(AuditOutcome::Refused)
            },
        };
        self.fleet.store().audit().note(self.fleet.now(), note).await;
        answer
    }

    async fn answer(&self, request: EnrollRequest, by: &Asker) -> Result<Enrolment, Problem> {
        let key = self.authority.key_of_request(&request.csr_der)?;
        if let Some(shown) = &by.shown {
            self.certificates.check_certificate(shown)?;
        }
        match &request.proof {
            Proof::BootToken(token) => Ok(Enrolment::Granted(self.by_token(&request, by, token.expose(), key).await?)),
            Proof::Approval { fingerprint } if *fingerprint == key => self.by_approval(&request, by, &key).await,
            Proof::Approval { .. } => {
                Err(Problem::new(ErrorCode::Forbidden, "the fingerprint does not match the request's key")
                    .hint("agent and coordinator differ; build both from one release"))
            }
            Proof::Renewal => {
                let shown = by.shown.as_ref().ok_or_else(|| {
                    Problem::new(ErrorCode::Unauthenticated, "a renewal needs the machine's certificate")
                        .hint("enrol with a boot token or an approval")
                })?;
                Ok(Enrolment::Granted(self.certificates.renew(shown, &request, &key).await?))
            }
        }
    }

    /// A token belongs to the first key that uses it: the same key asking again gets a certificate again, for as long as
    /// it may need one; a second key is refused, and the machine carries an alarm.
    async fn by_token(
        &self, request: &EnrollRequest, by: &Asker, token: &str, key: String,
    ) -> Result<Enrolled, Problem> {
        let Some(Read { token: record, .. }) = self.tokens.get(token).await? else {
            return Err(refused("is unknown or has expired"));
        };
        // Another coordinator may have made the token, for a machine that this one has not heard of yet.
        let is_unknown = self.fleet.index().machine_name(record.machine).is_none();
        if is_unknown && self.fleet.own().is_some() {
            self.fleet.hear_others().await?;
        }
        let Some(name) = self.fleet.index().machine_name(record.machine) else {
            return Err(refused("belongs to a machine that is no longer described"));
        };
        let at = format!("machine/{name}");
        let _lock = self.fleet.machines().lock(record.machine).await;
        if by.shown.as_ref().is_some_and(|shown| shown.uid != record.machine) {
            let message = format!("the certificate of another machine came with a boot token of \"{name}\"");
            self.alarms.alarm(&name, Reason::WrongCertificate, message.clone()).await?;
            return Err(Problem::new(ErrorCode::Forbidden, message).at(at));
        }
        for _ in 0..CAS_TRIES {
            // Judged under the lock: another key may have been first. At another coordinator it still may be.
            let (read, machine) = self.judge(request, &name, token, &key).await?;
            // From now on the token is the key's own, for when its certificate has ended while no coordinator could be reached.
            let ttl = BOUND.max(self.fleet.settings().certificate_ttl * 2);
            if self.tokens.bind(token, read, key.clone(), ttl).await? {
                let enrolled = self.certificates.give_certificate(&machine, &request.csr_der).await?;
                tracing::info!(machine = %name, serial = %enrolled.serial_hex, boot_id = %request.boot_id, "enrolled");
                return Ok(enrolled);
            }
        }
        Err(contended(&name))
    }

    /// Whether this key may have the token of a machine: the token as it was read, and the machine.
    async fn judge(
        &self, request: &EnrollRequest, name: &str, token: &str, key: &str,
    ) -> Result<(Read, Shared<Machine>), Problem> {
        let at = format!("machine/{name}");
        let Some(read) = self.tokens.get(token).await? else { return Err(refused("has expired")) };
        let Some(machine) = self.fleet.store().machine(name).await? else {
            return Err(refused("belongs to a machine that is no longer described"));
        };
        if read.token.key.as_ref().is_some_and(|first| first != key) {
            let said = describe(&request.identity);
            let message = format!("a second key tried the boot token of this machine ({said})");
            self.alarms.alarm(name, Reason::TokenReused, message).await?;
            return Err(refused("was already used by another key").at(at));
        }
        if read.token.revocations != machine.status.as_ref().map_or(0, |s| s.enrolment.revocations) {
            return Err(refused("was made before the machine's certificates were revoked").at(at));
        }
        if machine.spec.proof == ProofKind::Approval {
            return Err(refused("is not accepted: a person must approve this machine's key").at(at));
        }
        if let Err(problem) = self.identities.check_identity(&machine, &request.identity) {
            self.alarms.alarm(name, Reason::IdentityMismatch, problem.message.clone()).await?;
            return Err(problem);
        }
        Ok((read, machine))
    }
}

fn refused(what: &str) -> Problem {
    Problem::new(ErrorCode::TokenRefused, format!("the boot token {what}"))
        .hint("restart the machine: its boot script contains a new token")
}
