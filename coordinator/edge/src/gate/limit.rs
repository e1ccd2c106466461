//! So many steps a second and no more: for one account, for all together, or for each of many keys. A step is whatever is
//! counted: a line of the log, a script, a failed attempt.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::origin;

/// Addresses that a port tells apart at one time.
pub const MAX_ADDRESSES: usize = 4096;

/// How fast steps may be taken.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    every: Duration,
    saved: Duration,
}

impl Rate {
    /// One step each `every`; the worth of `saved`, at least one step, may be taken at once after a quiet time.
    pub const fn of(every: Duration, saved: Duration) -> Self {
        Self { every, saved }
    }

    /// So many steps a second, at least 1, of which the worth of `saved` may be taken at once.
    pub const fn a_second(steps: u32, saved: Duration) -> Self {
        let steps = if steps == 0 { 1 } else { steps };
        Self::of(Duration::from_nanos(1_000_000_000 / steps as u64), saved)
    }
}

/// One account of steps.
#[derive(Debug, Clone, Copy, Default)]
struct Account {
    /// When every step taken so far would have been taken at the steady rate.
    paid: Option<Instant>,
    refused: u64,
}

impl Account {
    /// An account that was quiet for long.
    const fn new() -> Self {
        Self { paid: None, refused: 0 }
    }

    fn after_a_step(&self, now: Instant, rate: Rate) -> Option<Instant> {
        let paid = self.paid.map_or(now, |paid| paid.max(now)) + rate.every;
        (paid <= now + rate.saved.max(rate.every)).then_some(paid)
    }

    /// Takes a step, if one may be taken now, and answers how many were refused since the last one; `None` refuses.
    fn step(&mut self, now: Instant, rate: Rate) -> Option<u64> {
        match self.after_a_step(now, rate) {
            Some(paid) => {
                self.paid = Some(paid);
                Some(std::mem::take(&mut self.refused))
            }
            None => {
                self.refused = self.refused.saturating_add(1);
                None
            }
        }
    }
}

/// One account for all together.
#[derive(Debug)]
pub struct Limiter {
    rate: Rate,
    account: Mutex<Account>,
}

impl Limiter {
    /// So many steps a second, at least 1, which may all be taken at once.
    pub const fn a_second(steps: u32) -> Self {
        Self { rate: Rate::a_second(steps, Duration::from_secs(1)), account: Mutex::new(Account::new()) }
    }

    /// Takes a step, if one may be taken now, and answers how many were refused since the last one; `None` refuses.
    pub fn step(&self) -> Option<u64> {
        // A panic elsewhere leaves nothing half done.
        self.account.lock().unwrap_or_else(PoisonError::into_inner).step(Instant::now(), self.rate)
    }
}

/// An account for each key. When there are as many as are counted apart, and none has been quiet, all other keys share one:
/// made-up keys take neither memory nor another's steps.
#[derive(Debug)]
pub struct Limiters<K> {
    rate: Rate,
    most: usize,
    accounts: Mutex<Accounts<K>>,
}

#[derive(Debug)]
struct Accounts<K> {
    each: HashMap<K, Account>,
    others: Account,
}

impl<K: Eq + Hash> Limiters<K> {
    /// `most` keys are counted apart at one time.
    pub fn new(rate: Rate, most: usize) -> Self {
        Self { rate, most, accounts: Mutex::new(Accounts { each: HashMap::new(), others: Account::new() }) }
    }

    /// Takes a step, if one may be taken now, and answers how many were refused since the last one; `None` refuses.
    pub fn step(&self, key: K) -> Option<u64> {
        let now = Instant::now();
        // A panic elsewhere leaves nothing half done.
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let Accounts { each, others } = &mut *accounts;
        if each.len() >= self.most && !each.contains_key(&key) {
            // One that could take all its steps at once says no more than none.
            each.retain(|_, account| account.paid.is_some_and(|paid| paid > now));
        }
        let account =
            if each.len() < self.most || each.contains_key(&key) { each.entry(key).or_default() } else { others };
        account.step(now, self.rate)
    }
}

/// For addresses: of an IPv6 host its network counts. This host itself has no limit.
impl Limiters<IpAddr> {
    /// Whether that address may take a step now; then it does.
    pub fn step_of(&self, address: IpAddr) -> bool {
        address.to_canonical().is_loopback() || self.step(origin(address)).is_some()
    }

    /// Whether it could. It takes none: for what is counted only once it has failed.
    pub fn could(&self, address: IpAddr) -> bool {
        if address.to_canonical().is_loopback() {
            return true;
        }
        // A panic elsewhere leaves nothing half done.
        let accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let account = accounts.each.get(&origin(address)).copied().unwrap_or_default();
        account.after_a_step(Instant::now(), self.rate).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_limiter_allows_one_seconds_burst_and_counts_refusals() {
        let limiter = Limiter::a_second(50);
        let burst = || (0..1000).filter_map(|_| limiter.step()).collect::<Vec<_>>();
        assert_eq!(burst(), [0; 50]);
        tokio::time::advance(Duration::from_millis(500)).await;
        let again = burst();
        assert_eq!((again.len(), again[0], again[1]), (25, 950, 0));
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(burst().len(), 50);
    }

    #[test]
    fn bursts_and_steady_streams_pass_but_floods_do_not() {
        let (begin, rate) = (Instant::now(), Rate::a_second(2000, Duration::from_secs(5)));
        let mut account = Account::new();
        assert_eq!((0..20_000).filter(|_| account.step(begin, rate).is_some()).count(), 10_000);
        let mut steady = Account::new();
        assert!((0..100_000u32).all(|n| steady.step(begin + Duration::from_millis(1) * n, rate) == Some(0)));
    }

    #[tokio::test(start_paused = true)]
    async fn each_address_has_its_own_account() {
        let limiters = Limiters::new(Rate::a_second(10, Duration::from_secs(2)), 100);
        let burst = |address: &str| (0..1000).filter(|_| limiters.step_of(address.parse().unwrap())).count();
        assert_eq!((burst("10.0.0.1"), burst("10.0.0.2")), (20, 20));
        assert_eq!((burst("10.0.0.1"), burst("127.0.0.1")), (0, 1000));
        assert!(!limiters.could([10, 0, 0, 1].into()) && limiters.could([10, 0, 0, 3].into()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(burst("10.0.0.1"), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn made_up_keys_take_neither_memory_nor_places_for_ever() {
        let limiters = Limiters::new(Rate::of(Duration::from_secs(2), Duration::from_secs(60)), 256);
        let taken = (0..100_000).filter(|n| limiters.step(*n).is_some()).count();
        assert_eq!((taken, limiters.accounts.lock().unwrap().each.len()), (256 + 30, 256));
        tokio::time::advance(Duration::from_secs(60)).await;
        let burst = |key| (0..1000).filter(|_| limiters.step(key).is_some()).count();
        assert_eq!((burst(-1), burst(-2)), (30, 30));
    }
}
