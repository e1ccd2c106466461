//! Whether this coordinator can do its work now: what `/readyz` answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use tokio::{sync::Mutex, time::timeout};

use crate::finding::{Finding, Level, worst};
use landfall_store::{Store, StoreError, Unreadable};

/// One trial write of the store; one that takes longer keeps every agent waiting.
const WRITE_LIMIT: Duration = Duration::from_secs(5);
/// Deadlines and silent agents are looked at every second; without a look for so long they are not kept.
const TICK_LIMIT: Duration = Duration::from_secs(60);
/// An answer stands for so long: a hundred probes a second must not become a hundred writes.
const STANDS: Duration = Duration::from_secs(2);
/// The clock may be corrected by this much while the process runs; deadlines do not suffer.
const STEP: Duration = Duration::from_secs(60);
/// A CA with less left than this is near its end: installed systems and boot images are to learn of another one.
pub const CA_NEAR_END: Duration = Duration::from_secs(90 * 24 * 3600);
/// The trial write's name among the secrets; it holds nothing and ends by itself.
const TRIAL: &str = "health/trial";

/// What is remembered between two questions.
#[derive(Debug)]
pub struct Health {
    boot_services: AtomicBool,
    begun: (Instant, Timestamp),
    /// Held during the check: concurrent requests get the same answer.
    last: Mutex<Option<(Instant, Vec<Finding>)>>,
}

impl Default for Health {
    fn default() -> Self {
        let begun = (Instant::now(), Timestamp::now());
        Self { boot_services: AtomicBool::new(false), begun, last: Mutex::new(None) }
    }
}

impl Health {
    /// The boot services have their ports, or have lost them.
    pub fn boot_services(&self, bound: bool) {
        self.boot_services.store(bound, Ordering::Relaxed);
    }

    /// Looks at everything, or answers what was found a moment ago. One looks at a time.
    /// `unticked`: the time since deadlines were looked at.
    pub async fn look(&self, store: &Store, ca: &CertificateDer<'_>, unticked: Duration) -> Vec<Finding> {
        let mut last = self.last.lock().await;
        if let Some((at, findings)) = last.as_ref().filter(|(at, _)| at.elapsed() < STANDS) {
            tracing::trace!(age = ?at.elapsed(), "an answer still stands");
            return findings.clone();
        }
        let now = Timestamp::now();
        let findings = vec![
            store_writable(store, now).await,
            documents(&store.unreadable()),
            self.boot_finding(),
            ticker(unticked),
            clock(now, self.begun, begins(ca)),
            authority(now, ends(ca)),
        ];
        *last = Some((Instant::now(), findings.clone()));
        findings
    }

    fn boot_finding(&self) -> Finding {
        if self.boot_services.load(Ordering::Relaxed) {
            Finding::ok("boot services", "all have their ports")
        } else {
            Finding::fail("boot services", "they are not running", "the log names the port that could not be opened")
        }
    }
}

/// Whether every finding lets machines be served.
pub fn ready(findings: &[Finding]) -> bool {
    worst(findings) < Level::Fail
}

/// Pure.
fn ticker(unticked: Duration) -> Finding {
    if unticked < TICK_LIMIT {
        return Finding::ok("deadlines", "looked at every second");
    }
    let message = format!("not looked at for {} s", unticked.as_secs());
    Finding::fail("deadlines", message, "the log says what holds the coordinator up; restart it")
}

async fn store_writable(store: &Store, now: Timestamp) -> Finding {
    const HINT: &str = "check whether the disk of the data directory is full, read-only or broken; the log has the \
        reason";
    let expires = now.checked_add(Duration::from_secs(60)).unwrap_or(now);
    let begun = Instant::now();
    match timeout(WRITE_LIMIT, store.secrets().put(TRIAL, b"", expires)).await {
        Ok(Ok(())) => Finding::ok("store", format!("a write took {} ms", begun.elapsed().as_millis())),
        Ok(Err(StoreError::Postgres(error))) => {
            let hint =
                "check that PostgreSQL runs and is reachable from this host; the coordinator connects again by itself";
            Finding::fail("store", format!("cannot write it: {error}"), hint)
        }
        Ok(Err(error)) => Finding::fail("store", format!("cannot write it: {error}"), HINT),
        Err(_) => Finding::fail("store", format!("a write took more than {} s", WRITE_LIMIT.as_secs()), HINT),
    }
}

/// Pure. The others are served, so it is a warning.
pub(crate) fn documents(unreadable: &[Unreadable]) -> Finding {
    const CHECK: &str = "documents";
    /// More would not be read.
    const NAMED: usize = 10;
    if unreadable.is_empty() {
        return Finding::ok(CHECK, "every stored document can be read");
    }
    let named: Vec<String> = unreadable.iter().take(NAMED).map(ToString::to_string).collect();
    let message = format!("{} stored documents cannot be read: {}", unreadable.len(), named.join("; "));
    Finding::warn(CHECK, message, "start the version that wrote them, or restore a backup; they stay as they are")
}

/// Pure: `begun` is when the process began, by both clocks; `ca_begins` when its CA's validity does, a day before the CA
/// was made.
fn clock(now: Timestamp, begun: (Instant, Timestamp), ca_begins: Option<Timestamp>) -> Finding {
    const HINT: &str = "set the clock (timedatectl, chronyc makestep) and use NTP";
    if let Some(begins) = ca_begins.filter(|begins| now < *begins) {
        return Finding::fail(
            "clock",
            format!("the clock shows {now}, before this coordinator's CA was made ({begins}): no certificate is good"),
            HINT,
        );
    }
    let expected = begun.1.checked_add(begun.0.elapsed()).unwrap_or(begun.1);
    let stepped = now.duration_since(expected);
    if stepped.unsigned_abs() > STEP {
        let way = if stepped.is_negative() { "back" } else { "forward" };
        let message = format!("it was set {way} by {} s since the start", stepped.unsigned_abs().as_secs());
        return Finding::warn("clock", message, HINT);
    }
    Finding::ok("clock", now.to_string())
}

/// Pure.
pub(crate) fn authority(now: Timestamp, ends: Option<Timestamp>) -> Finding {
    const CHECK: &str = "certificate authority";
    const HINT: &str = "docs/operating.md explains how to replace it";
    let Some(ends) = ends else {
        return Finding::fail(CHECK, "its certificate does not parse", "restore <data_dir>/pki from a backup");
    };
    let left = ends.duration_since(now);
    if left.is_negative() {
        Finding::fail(CHECK, format!("it expired {ends}; no agent or operator trusts this coordinator any more"), HINT)
    } else if left.unsigned_abs() < CA_NEAR_END {
        Finding::warn(CHECK, format!("it expires {ends}"), HINT)
    } else {
        Finding::ok(CHECK, format!("valid until {ends}"))
    }
}

/// When a certificate ends.
pub fn ends(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Timestamp::from_second(parsed.validity().not_after.timestamp()).ok()
}

fn begins(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Timestamp::from_second(parsed.validity().not_before.timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn clocks_before_the_ca_fail_and_stepped_ones_warn() {
        let now = 1_000_000;
        let level = |begun: i64, ca: i64| clock(at(now), (Instant::now(), at(begun)), Some(at(ca))).level;
        assert_eq!(level(now, now - 100), Level::Ok);
        assert_eq!(level(now, now + 100), Level::Fail);
        assert_eq!(level(now - 3600, 0), Level::Warn);
        assert_eq!(level(now + 3600, 0), Level::Warn);
    }

    #[test]
    fn a_ca_warns_before_its_end_and_fails_after_it() {
        let near = i64::try_from(CA_NEAR_END.as_secs()).unwrap();
        for (left, level) in [(near + 9, Level::Ok), (near - 9, Level::Warn), (-1, Level::Fail)] {
            assert_eq!(authority(at(0), Some(at(left))).level, level, "{left}");
        }
        assert_eq!(authority(at(0), None).level, Level::Fail);
    }

    #[tokio::test]
    async fn readiness_requires_bound_boot_ports() {
        let dir = tempfile::tempdir().unwrap();
        let ttl = Duration::from_secs(3600);
        let pki = crate::pki::Pki::open(dir.path(), "127.0.0.1".parse().unwrap(), ttl).unwrap();
        let (store, mut health) = (Store::memory(), Health::default());
        assert!(!ready(&health.look(&store, pki.ca_der(), Duration::ZERO).await));
        health.last = Mutex::new(None);
        health.boot_services(true);
        let findings = health.look(&store, pki.ca_der(), Duration::ZERO).await;
        assert!(ready(&findings), "{findings:?}");
        health.last = Mutex::new(None);
        assert!(!ready(&health.look(&store, pki.ca_der(), TICK_LIMIT).await), "its ticker stands still");
    }

    #[tokio::test]
    async fn many_who_ask_at_once_make_one_trial_write() {
        let dir = tempfile::tempdir().unwrap();
        let ttl = Duration::from_secs(3600);
        let pki = crate::pki::Pki::open(dir.path(), "127.0.0.1".parse().unwrap(), ttl).unwrap();
        let (store, health) = (Store::open(dir.path()).unwrap(), Health::default());
        let asked = (0..50).map(|_| health.look(&store, pki.ca_der(), Duration::ZERO));
        let answers = futures::future::join_all(asked).await;
        // The clock's finding says when it was looked.
        let said = |answer: &Vec<Finding>| answer.iter().map(|finding| finding.message.clone()).collect::<Vec<_>>();
        assert!(answers.iter().all(|answer| said(answer) == said(&answers[0])), "{answers:?}");
    }
}
