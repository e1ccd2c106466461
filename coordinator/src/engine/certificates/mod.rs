//! Machines' certificates: validity, issue, renewal and revocation.

mod authority;

use std::{sync::Arc, time::Duration};

use landfall_api::{CertificateStatus, ErrorCode, Kind, Machine, Problem, Reason, Shared, message::EnrollRequest};

use landfall_edge::gate::{Limiter, Limiters, Rate};
use uuid::Uuid;

use super::{alarms::Alarms, fleet::Fleet, identities::Identities};

use super::enrolments::Enrolled;
use crate::tls::MachineCert;
pub use authority::{CertificateAuthority, IssuedCertificate};

/// Certificates listed for one machine. An agent holds one or two; more are those of restarts within their life.
const MAX_LISTED: usize = 8;

/// Certificates of one machine: twenty at once, for restarts, and one each half minute. An agent asks a few times a day; each
/// asks for a signature, a write and an entry of the audit log.
const RATE: Rate = Rate::of(Duration::from_secs(30), Duration::from_secs(600));
/// Before a certificate is refused, what others have stored is taken in; so often at most.
static LOOKS: Limiter = Limiter::a_second(20);
/// Machines counted apart.
const MAX_MACHINES: usize = 65_536;

/// Machines' certificates.
pub struct Certificates {
    fleet: Arc<Fleet>,
    alarms: Arc<Alarms>,
    identities: Arc<Identities>,
    authority: Arc<dyn CertificateAuthority>,
    pace: Limiters<Uuid>,
    /// Counts revocations.
    revoked: tokio::sync::watch::Sender<u64>,
}

impl Certificates {
    pub(in crate::engine) fn new(
        fleet: Arc<Fleet>, alarms: Arc<Alarms>, identities: Arc<Identities>, authority: Arc<dyn CertificateAuthority>,
    ) -> Self {
        let pace = Limiters::new(RATE, MAX_MACHINES);
        Self { fleet, alarms, identities, authority, pace, revoked: tokio::sync::watch::Sender::new(0) }
    }

    /// Whether a machine's certificate is good now: it has not ended, its machine is still described, and it was not
    /// revoked. Reads no store: it is asked for every call, and for every message of a stream.
    ///
    /// # Errors
    /// [`Problem`] with code `Unauthenticated` or `Revoked`; `StoreUnavailable` where another coordinator may have given it since, and this
    /// one would not know.
    pub fn check_certificate(&self, certificate: &MachineCert) -> Result<(), Problem> {
        if certificate.not_after <= self.fleet.now() {
            let message =
                format!("the certificate of machine \"{}\" expired {}", certificate.name, certificate.not_after);
            return Err(Problem::new(ErrorCode::Unauthenticated, message)
                .hint("the agent enrols again by itself; if that fails, restart the machine"));
        }
        let index = self.fleet.index();
        let is_known = index.has_machine(certificate.uid);
        if !is_known || index.is_revoked(certificate.uid, &certificate.serial_hex) {
            self.fleet.is_sure()?;
        }
        if !is_known {
            let message = format!("no machine document has the uid {} that this certificate names", certificate.uid);
            return Err(Problem::new(ErrorCode::Unauthenticated, message)
                .hint("apply the machine again, then restart it so that it enrols again"));
        }
        if index.is_revoked(certificate.uid, &certificate.serial_hex) {
            let message = format!("this certificate of machine \"{}\" was revoked", certificate.name);
            return Err(Problem::new(ErrorCode::Revoked, message)
                .hint("restart the machine: it can enrol again with a new boot token or an approval"));
        }
        Ok(())
    }

    /// The same of a call, before which this coordinator takes in what others have stored, where it would refuse it.
    ///
    /// # Errors
    /// As [`Self::check_certificate`].
    pub async fn check_for_call(&self, certificate: &MachineCert) -> Result<(), Problem> {
        let judged = self.check_certificate(certificate);
        // One that has ended is not good at any coordinator.
        if judged.is_ok() || self.fleet.own().is_none() || certificate.not_after <= self.fleet.now() {
            return judged;
        }
        if LOOKS.step().is_none() {
            return Err(Fleet::has_not_heard());
        }
        self.fleet.hear_others().await?;
        self.check_certificate(certificate)
    }

    /// Issues a certificate for a machine as it was judged, and lists it before it is sent. Under the machine's lock.
    pub(in crate::engine) async fn give_certificate(
        &self, machine: &Machine, csr_der: &[u8],
    ) -> Result<Enrolled, Problem> {
        let name = &machine.metadata.name;
        let missing = || Problem::new(ErrorCode::Internal, format!("machine \"{name}\" was stored without a uid"));
        let uid = machine.metadata.uid.ok_or_else(missing)?;
        if self.pace.step(uid).is_none() {
            let message = format!("machine \"{name}\" asked for too many certificates");
            return Err(Problem::new(ErrorCode::LimitReached, message)
                .at(format!("machine/{name}"))
                .hint("it gets another one within half a minute; find out why it asks so often"));
        }
        let issued = self.authority.issue_machine(name, uid, csr_der)?;
        let now = self.fleet.now();
        let listed = CertificateStatus { serial: issued.serial_hex.clone(), expires: issued.not_after };
        let machine = self
            .fleet
            .mutate_machine_if(name, |found| {
                is_as_judged(found, machine)?;
                let enrolment = &mut found.status.get_or_insert_default().enrolment;
                enrolment.certificates.retain(|known| known.expires > now);
                let excess = (enrolment.certificates.len() + 1).saturating_sub(MAX_LISTED);
                enrolment.certificates.drain(..excess);
                enrolment.certificates.push(listed.clone());
                Ok(())
            })
            .await?;
        self.fleet.index().put_certificates(&machine);
        tracing::info!(machine = %name, serial = %issued.serial_hex, expires = %issued.not_after, "certificate given");
        Ok(Enrolled {
            machine: name.clone(),
            machine_uid: uid,
            chain_der: issued.chain_der,
            serial_hex: issued.serial_hex,
            expires: issued.not_after,
            time: now,
        })
    }

    /// A new certificate for the key of one that is still good, for the same computer.
    pub(in crate::engine) async fn renew(
        &self, shown: &MachineCert, request: &EnrollRequest, key: &str,
    ) -> Result<Enrolled, Problem> {
        let _lock = self.fleet.machines().lock(shown.uid).await;
        // Under the lock: it may have been revoked a moment ago.
        self.check_certificate(shown)?;
        if key != shown.key_fingerprint {
            let message = format!("machine \"{}\" requests a certificate for another key than its own", shown.name);
            self.alarms
                .alarm(&self.fleet.machine_by_uid(shown.uid).await?.metadata.name, Reason::KeyChanged, message.clone())
                .await?;
            return Err(Problem::new(ErrorCode::Forbidden, message)
                .hint("a new key must enrol with a boot token or an approval"));
        }
        let machine = self.fleet.machine_by_uid(shown.uid).await?;
        if let Err(problem) = self.identities.check_identity(&machine, &request.identity) {
            self.alarms.alarm(&machine.metadata.name, Reason::IdentityMismatch, problem.message.clone()).await?;
            return Err(problem);
        }
        self.give_certificate(&machine, &request.csr_der).await
    }

    /// Withdraws every certificate, boot token and approval of a machine, and ends its session, at once. It can come back
    /// with a boot token made from now on, or with a new approval.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound`, or of the store.
    pub async fn revoke_machine(&self, name: &str) -> Result<Shared<Machine>, Problem> {
        let Some(machine) = self.fleet.store().machine(name).await? else {
            return Err(self.fleet.not_found(Kind::Machine, name).await);
        };
        let uid = machine.metadata.uid.unwrap_or_default();
        let mut live = self.fleet.machines().lock(uid).await;
        let now = self.fleet.now();
        let machine = self
            .fleet
            .mutate_machine(name, |machine| {
                let status = machine.status.get_or_insert_default();
                let enrolment = &mut status.enrolment;
                enrolment.certificates.clear();
                enrolment.waiting.clear();
                enrolment.approved = None;
                enrolment.revocations += 1;
                enrolment.revoked_at = Some(now);
            })
            .await?;
        // From here on nothing that it holds is taken, and then what is open is cut.
        self.fleet.index().put_certificates(&machine);
        self.revoked.send_modify(|count| *count = count.wrapping_add(1));
        live.cut();
        tracing::warn!(machine = name, "every certificate of the machine was revoked");
        Ok(machine)
    }

    /// Changes after each revocation of certificates: streams check again then.
    pub fn revocations(&self) -> tokio::sync::watch::Receiver<u64> {
        self.revoked.subscribe()
    }
}

/// Whether what a right is given by is as it was judged: another coordinator may have taken it away since.
///
/// # Errors
/// [`Problem`] with code `StoreUnavailable`: the caller asks again, and is judged by the newest document.
pub(in crate::engine) fn is_as_judged(found: &Machine, judged: &Machine) -> Result<(), Problem> {
    let rights = |machine: &Machine| {
        let enrolment = machine.status.as_ref().map(|status| &status.enrolment);
        let given = enrolment.map(|enrolment| (enrolment.revocations, enrolment.approved.clone()));
        (machine.metadata.uid, given.unwrap_or_default())
    };
    if rights(found) == rights(judged) {
        return Ok(());
    }
    let message = format!("the rights of machine \"{}\" changed at this moment", judged.metadata.name);
    Err(Problem::new(ErrorCode::StoreUnavailable, message).hint("ask again in some seconds"))
}
