//! Approval: a person compares the fingerprint on a machine's console with the one shown here, and approves that key
//! and no other.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use landfall_api::message::EnrollRequest;
use landfall_api::{ApprovedKey, ErrorCode, Kind, Machine, Problem, ProofKind, Reason, Shared, WaitingKey};
use landfall_machine::identity;

use super::{super::certificates::is_as_judged, super::identities::undescribed, Asker, Enrolment, Enrolments};
use landfall_edge::gate::origin;
use landfall_store::audit::Note;

/// The number of waiting keys of one machine: its own, and those of other computers. First come, first served, so that
/// no other key can replace the one a person is looking at. One per address, so that one host cannot take all places.
const MAX_WAITING: usize = 4;
/// A key that has not asked for so long gives its place to a newer one from its own address: a computer that was restarted
/// has a new key. More than [`NOTE_STEP`] and [`ASK_AGAIN`], so that a key that asks is never replaced.
const SILENT_AFTER: SignedDuration = SignedDuration::from_secs(90);
/// A key that has not asked for so long waits no more.
const FORGOTTEN_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// The status notes when a key last asked at most so often.
const NOTE_STEP: SignedDuration = SignedDuration::from_secs(60);
/// A waiting agent asks again after this.
const ASK_AGAIN: Duration = Duration::from_secs(10);

impl Enrolments {
    /// An agent without a token: admitted if its key was approved, else recorded as waiting.
    pub(super) async fn by_approval(
        &self, request: &EnrollRequest, by: &Asker, key: &str,
    ) -> Result<Enrolment, Problem> {
        let found = match self.identities.machine_of(&request.identity) {
            Ok(found) => found,
            Err(problem) => {
                self.alarms.alarm_all(&request.identity, Reason::IdentityMismatch, &problem).await?;
                return Err(problem);
            }
        };
        let name = match found {
            Some(name) => name,
            None => match self.discover(request, by).await? {
                Some(name) => name,
                None => {
                    let reason = "no machine document describes this computer; apply one with its addresses".to_owned();
                    return Ok(Enrolment::Waiting { reason, retry_after: ASK_AGAIN * 3 });
                }
            },
        };
        let gone = || Problem::new(ErrorCode::NotFound, format!("machine \"{name}\" was deleted at this moment"));
        let uid = self.fleet.store().machine(&name).await?.and_then(|m| m.metadata.uid).ok_or_else(gone)?;
        let (enrolment, applied) = {
            let _lock = self.fleet.machines().lock(uid).await;
            let machine = self.fleet.store().machine(&name).await?.ok_or_else(gone)?;
            if by.shown.as_ref().is_some_and(|shown| shown.uid != uid) {
                let message = format!("the certificate of another machine came with the identity of \"{name}\"");
                self.alarms.alarm(&name, Reason::WrongCertificate, message.clone()).await?;
                return Err(Problem::new(ErrorCode::Forbidden, message).at(format!("machine/{name}")));
            }
            if let Err(problem) = self.identities.check_identity(&machine, &request.identity) {
                self.alarms.alarm(&name, Reason::IdentityMismatch, problem.message.clone()).await?;
                return Err(problem);
            }
            let (machine, applied) = self.apply_rule(machine, request, by, key).await?;
            let approved = machine.status.as_ref().and_then(|s| s.enrolment.approved.as_ref());
            let enrolment = if approved.is_some_and(|approved| approved.fingerprint == key) {
                Enrolment::Granted(self.certificates.give_certificate(&machine, &request.csr_der).await?)
            } else if by_token_only(&machine) {
                let reason = format!(
                    "machine \"{name}\" enrols with the token of its boot script: netboot it, or write `proof: \
                        approval` in its document"
                );
                Enrolment::Waiting { reason, retry_after: ASK_AGAIN * 3 }
            } else {
                self.wait_for_approval(&machine, request, by, key).await?
            };
            (enrolment, applied)
        };
        // Without the lock: starting a run takes it.
        if let (Enrolment::Granted(_), Some(rule)) = (&enrolment, applied) {
            self.start_rules_run(&name, &rule).await?;
        }
        Ok(enrolment)
    }

    async fn wait_for_approval(
        &self, machine: &Machine, request: &EnrollRequest, by: &Asker, key: &str,
    ) -> Result<Enrolment, Problem> {
        let name = &machine.metadata.name;
        let now = self.fleet.now();
        let mut news = Standing::Known;
        self.fleet
            .mutate_machine(name, |machine| {
                news = Standing::Known;
                let enrolment = machine.status.as_ref().map(|s| &s.enrolment);
                // Approved through another coordinator meanwhile: it is let in when it asks again.
                if enrolment.is_some_and(|e| e.approved.as_ref().is_some_and(|approved| approved.fingerprint == key)) {
                    return;
                }
                let waiting = enrolment.map(|e| e.waiting.clone()).unwrap_or_default();
                let mut after = waiting.clone();
                news = note_waiting(&mut after, key, address_of(by), now);
                if after == waiting {
                    return;
                }
                // Any host may send this request, and templates use facts: for a described machine only the facts of its own
                // session count.
                let takes_facts = news != Standing::NoRoom && undescribed(machine);
                if takes_facts && let Some(facts) = &request.facts {
                    machine.status.get_or_insert_default().facts = Some((**facts).clone().into());
                }
                identity::await_approval(machine, after, now);
            })
            .await?;
        match news {
            Standing::Known => {}
            Standing::New => {
                tracing::info!(machine = %name, fingerprint = key, "a key waits for approval");
                let note = Note { from: address_of(by), ..Note::own("AwaitApproval", format!("machine/{name}"), key) };
                self.fleet.store().audit().note(now, note).await;
            }
            Standing::NoRoom => {
                let message = format!("keys already wait for approval as machine \"{name}\"; the limit is reached");
                return Err(Problem::new(ErrorCode::LimitReached, message).at(format!("machine/{name}")).hint(
                    "approve the right one, or wait: a key without requests is forgotten after 10 minutes, and makes \
                        room for another from its address after 90 seconds",
                ));
            }
        }
        let reason = format!("a person must approve this key for machine \"{name}\"");
        Ok(Enrolment::Waiting { reason, retry_after: ASK_AGAIN })
    }

    /// Approves a waiting key. `fingerprint` is as the console shows it: colons, blanks, case and `sha256:` do not
    /// matter, every digit does.
    ///
    /// # Errors [`Problem`] with code `NotFound`, `InvalidDocument` (the fingerprint is incomplete), `Unapproved` (no
    /// such key waits), or of the store.
    pub async fn approve(&self, name: &str, fingerprint: &str, person: &str) -> Result<Shared<Machine>, Problem> {
        let wanted = whole_fingerprint(fingerprint)?;
        let Some(machine) = self.fleet.store().machine(name).await? else {
            return Err(self.fleet.not_found(Kind::Machine, name).await);
        };
        let _lock = self.fleet.machines().lock(machine.metadata.uid.unwrap_or_default()).await;
        let Some(machine) = self.fleet.store().machine(name).await? else {
            return Err(self.fleet.not_found(Kind::Machine, name).await);
        };
        let enrolment = machine.status.as_ref().map(|s| s.enrolment.clone()).unwrap_or_default();
        if enrolment.approved.as_ref().is_some_and(|approved| approved.fingerprint == wanted) {
            return Ok(machine);
        }
        if !enrolment.waiting.iter().any(|key| key.fingerprint == wanted) {
            let waits = match enrolment.waiting.len() {
                0 => format!("no key waits for approval as machine \"{name}\""),
                n => format!("none of the {n} keys that wait as machine \"{name}\" has this fingerprint"),
            };
            return Err(Problem::new(ErrorCode::Unapproved, waits).at("fingerprint").hint(
                "read it again from the machine's console; if it is correct, another computer claims to be this \
                    machine",
            ));
        }
        self.let_in(&machine, &wanted, person).await
    }

    /// Stores the approval of a machine as it was judged. Under the machine's lock.
    pub(super) async fn let_in(
        &self, machine: &Machine, fingerprint: &str, by: &str,
    ) -> Result<Shared<Machine>, Problem> {
        let (name, now) = (machine.metadata.name.as_str(), self.fleet.now());
        let approved = ApprovedKey { fingerprint: fingerprint.to_owned(), by: by.to_owned(), at: now };
        let run = self.fleet.current_workflow(machine).await?;
        let approve = |found: &mut Machine| {
            is_as_judged(found, machine)?;
            identity::approve(found, approved.clone(), run.as_deref());
            Ok(())
        };
        let machine = self.fleet.mutate_machine_if(name, approve).await?;
        self.fleet.index().put_certificates(&machine);
        tracing::info!(machine = name, fingerprint, by, "approved");
        Ok(machine)
    }
}

fn address_of(by: &Asker) -> String {
    by.address.map_or_else(|| "unknown".to_owned(), |a| a.to_canonical().to_string())
}

/// Whether approval is impossible: a person described the machine, and it enrols with its boot token.
pub fn by_token_only(machine: &Machine) -> bool {
    let discovered = machine.status.as_ref().is_some_and(|s| s.enrolment.discovered_at.is_some());
    machine.spec.proof == ProofKind::BootToken && !discovered
}

/// The address that keys are counted by; what is no address stands for itself.
fn origin_of(address: &str) -> String {
    address.parse().map_or_else(|_| address.to_owned(), |address| origin(address).to_string())
}

/// What a key is among those that wait.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    Known,
    New,
    NoRoom,
}

fn note_waiting(waiting: &mut Vec<WaitingKey>, key: &str, address: String, now: Timestamp) -> Standing {
    waiting.retain(|known| known.fingerprint == key || now.duration_since(known.last_asked) < FORGOTTEN_AFTER);
    if let Some(known) = waiting.iter_mut().find(|known| known.fingerprint == key) {
        if now.duration_since(known.last_asked) >= NOTE_STEP || known.address != address {
            (known.last_asked, known.address) = (now, address);
        }
        return Standing::Known;
    }
    let from = origin_of(&address);
    let same = waiting.iter().position(|known| origin_of(&known.address) == from);
    match same {
        Some(at) if now.duration_since(waiting[at].last_asked) >= SILENT_AFTER => drop(waiting.remove(at)),
        Some(_) => return Standing::NoRoom,
        None if waiting.len() >= MAX_WAITING => return Standing::NoRoom,
        None => {}
    }
    waiting.push(WaitingKey { fingerprint: key.to_owned(), address, since: now, last_asked: now });
    Standing::New
}

/// `sha256:` and 64 digits, whatever groups it was written in. A part is not enough: an attacker can forge a key whose
/// first digits match.
fn whole_fingerprint(text: &str) -> Result<String, Problem> {
    let lower = text.trim().to_ascii_lowercase();
    let digits: String = lower
        .strip_prefix("sha256:")
        .unwrap_or(&lower)
        .chars()
        .filter(|c| !c.is_ascii_whitespace() && !matches!(c, ':' | '-'))
        .take(65)
        .collect();
    if digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(format!("sha256:{digits}"));
    }
    Err(Problem::new(ErrorCode::InvalidDocument, "the fingerprint is incomplete: it must have 64 hexadecimal digits")
        .at("fingerprint")
        .hint("write all digits, as shown on the machine's console; the grouping does not matter"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn a_fingerprint_is_read_in_any_grouping_but_only_complete() {
        let plain = "0123456789abcdef".repeat(4);
        let grouped: Vec<_> = plain.as_bytes().chunks(4).map(|g| std::str::from_utf8(g).unwrap()).collect();
        for written in [plain.clone(), format!("SHA256:{}", plain.to_uppercase()), grouped.join(" "), grouped.join(":")]
        {
            assert_eq!(whole_fingerprint(&written).unwrap(), format!("sha256:{plain}"), "{written}");
        }
        for bad in ["", "sha256:", &plain[..63], &format!("{plain}0"), &"x".repeat(64), &"é".repeat(64)] {
            assert_eq!(whole_fingerprint(bad).unwrap_err().code, ErrorCode::InvalidDocument, "{bad}");
        }
    }

    #[test]
    fn unknown_keys_cannot_displace_a_waiting_one() {
        let mut waiting = Vec::new();
        assert_eq!(note_waiting(&mut waiting, "own", "a".into(), at(0)), Standing::New);
        for n in 1..MAX_WAITING {
            assert_eq!(note_waiting(&mut waiting, &n.to_string(), n.to_string(), at(1)), Standing::New);
        }
        assert_eq!(note_waiting(&mut waiting, "late", "b".into(), at(2)), Standing::NoRoom);
        assert_eq!(note_waiting(&mut waiting, "own", "a".into(), at(300)), Standing::Known);
        assert_eq!((waiting[0].fingerprint.as_str(), waiting[0].last_asked), ("own", at(300)));
        assert_eq!(note_waiting(&mut waiting, "late", "b".into(), at(700)), Standing::New);
        assert_eq!(waiting.iter().map(|k| k.fingerprint.as_str()).collect::<Vec<_>>(), ["own", "late"]);
    }

    #[test]
    fn one_address_has_one_place_for_waiting_keys() {
        let mut waiting = Vec::new();
        let forged: Vec<_> =
            (0..9).map(|n| note_waiting(&mut waiting, &n.to_string(), "10.0.0.9".into(), at(0))).collect();
        assert_eq!(forged.iter().filter(|standing| **standing == Standing::New).count(), 1);
        assert_eq!(note_waiting(&mut waiting, "own", "10.0.0.1".into(), at(1)), Standing::New);
        // Of IPv6 a whole network is one address.
        assert_eq!(note_waiting(&mut waiting, "six", "2001:db8::1".into(), at(1)), Standing::New);
        assert_eq!(note_waiting(&mut waiting, "seven", "2001:db8::2".into(), at(1)), Standing::NoRoom);
        // It is restarted, and makes a new key.
        assert_eq!(note_waiting(&mut waiting, "own", "10.0.0.1".into(), at(61)), Standing::Known);
        assert_eq!(note_waiting(&mut waiting, "new", "10.0.0.1".into(), at(150)), Standing::NoRoom);
        assert_eq!(note_waiting(&mut waiting, "new", "10.0.0.1".into(), at(151)), Standing::New);
        assert!(waiting.iter().all(|key| key.fingerprint != "own"));
    }
}
