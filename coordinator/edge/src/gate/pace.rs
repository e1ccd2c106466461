//! So many a second, and no more: for all together, or for each address.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::origin;

/// Addresses that are told apart at one time. Those that have been quiet for a while are forgotten first.
const MAX_ADDRESSES: usize = 4096;

/// When the next step may be taken, had every one been taken as early as allowed.
#[derive(Debug, Clone, Copy, Default)]
struct Bucket(Option<Instant>);

impl Bucket {
    /// Whether a step could be taken now.
    fn could(&self, now: Instant) -> bool {
        self.0.is_none_or(|next| next <= now)
    }

    /// Whether a step may be taken now; then it is. A bucket holds what `holds` gives, and fills by one each `every`.
    fn step(&mut self, now: Instant, every: Duration, holds: Duration) -> bool {
        let begin = self.0.unwrap_or(now).max(now.checked_sub(holds).unwrap_or(now));
        if begin > now {
            return false;
        }
        self.0 = Some(begin + every);
        true
    }
}

/// A pace for all together. A second's worth may be taken at once.
#[derive(Debug)]
pub struct Pace {
    every: Duration,
    bucket: Mutex<Bucket>,
}

impl Pace {
    /// `a_second` steps, at least 1.
    pub fn new(a_second: u32) -> Self {
        Self { every: Duration::from_secs(1) / a_second.max(1), bucket: Mutex::default() }
    }

    /// Whether a step may be taken now; then it is.
    pub fn step(&self) -> bool {
        // A panic elsewhere leaves nothing half done.
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.step(Instant::now(), self.every, Duration::from_secs(1))
    }
}

/// A pace for each address; this host itself has none.
#[derive(Debug)]
pub struct Paces {
    every: Duration,
    holds: Duration,
    buckets: Mutex<HashMap<IpAddr, Bucket>>,
}

impl Paces {
    /// `a_second` steps for each address, at least 1, of which the worth of `holds` may be saved up.
    pub fn new(a_second: u32, holds: Duration) -> Self {
        Self { every: Duration::from_secs(1) / a_second.max(1), holds, buckets: Mutex::default() }
    }

    /// Whether that address could take a step now. It takes none: for what is counted only once it has failed.
    pub fn could(&self, address: IpAddr) -> bool {
        if address.to_canonical().is_loopback() {
            return true;
        }
        // A panic elsewhere leaves nothing half done.
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.get(&origin(address)).is_none_or(|bucket| bucket.could(Instant::now()))
    }

    /// Whether that address may take a step now; then it does.
    pub fn step(&self, address: IpAddr) -> bool {
        if address.to_canonical().is_loopback() {
            return true;
        }
        let (address, now) = (origin(address), Instant::now());
        // A panic elsewhere leaves nothing half done.
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MAX_ADDRESSES && !buckets.contains_key(&address) {
            // A bucket that is not yet to be used again says something; one that is says no more than none.
            buckets.retain(|_, bucket| bucket.0.is_some_and(|next| next > now));
            if buckets.len() >= MAX_ADDRESSES {
                return false;
            }
        }
        // A new one begins with all that it may hold.
        let full = Bucket(now.checked_sub(self.holds));
        buckets.entry(address).or_insert(full).step(now, self.every, self.holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pace_allows_a_burst_of_at_most_one_second() {
        let pace = Pace::new(50);
        let burst = |pace: &Pace| (0..1000).filter(|_| pace.step()).count();
        assert!(burst(&pace) >= 1);
        for _ in 0..3 {
            tokio::time::advance(Duration::from_millis(500)).await;
            assert_eq!(burst(&pace), 25);
        }
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert!((50..=51).contains(&burst(&pace)));
    }

    #[tokio::test(start_paused = true)]
    async fn each_address_has_its_own_pace() {
        // Far from the clock's own beginning, as on any host that has been up for a while.
        tokio::time::advance(Duration::from_secs(3600)).await;
        let paces = Paces::new(10, Duration::from_secs(2));
        let burst = |address: &str| (0..1000).filter(|_| paces.step(address.parse().unwrap())).count();
        assert!((20..=21).contains(&burst("10.0.0.1")));
        assert!((20..=21).contains(&burst("10.0.0.2")));
        assert_eq!((burst("10.0.0.1"), burst("127.0.0.1")), (0, 1000));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(burst("10.0.0.1"), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn made_up_addresses_take_a_bounded_place() {
        let paces = Paces::new(1, Duration::from_secs(1));
        for n in 0..3 * MAX_ADDRESSES as u32 {
            paces.step(IpAddr::from((0x0a00_0000 + n).to_be_bytes()));
        }
        assert!(paces.buckets.lock().unwrap().len() <= MAX_ADDRESSES);
    }
}
