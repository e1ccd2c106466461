//! A bound for log lines that unauthenticated hosts cause: lines that any host can repeat must not fill a disk.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Lines are counted over this long.
const WINDOW: Duration = Duration::from_secs(1);

/// So many lines a second; the next one after those left out tells how many they were.
#[derive(Debug)]
pub struct LogBudget {
    lines: u32,
    spent: Mutex<Spent>,
}

#[derive(Debug, Default)]
struct Spent {
    since: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl LogBudget {
    /// `lines` a second.
    pub const fn new(lines: u32) -> Self {
        Self { lines, spent: Mutex::new(Spent { since: None, lines: 0, left_out: 0 }) }
    }

    /// Whether another line may be written: with the number left out before it, or `None`.
    pub fn spend(&self) -> Option<u64> {
        let now = Instant::now();
        // A panic elsewhere leaves nothing half done.
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        if spent.since.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW) {
            (spent.since, spent.lines) = (Some(now), 0);
        }
        if spent.lines >= self.lines {
            spent.left_out += 1;
            return None;
        }
        spent.lines += 1;
        Some(std::mem::take(&mut spent.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_logged_in_a_few_counted_lines() {
        let budget = LogBudget::new(2);
        let lines: Vec<_> = (0..1000).map(|_| budget.spend()).collect();
        assert_eq!(lines.iter().flatten().count(), 2);
        tokio::time::advance(WINDOW).await;
        assert_eq!((budget.spend(), budget.spend(), budget.spend()), (Some(998), Some(0), None));
    }
}
