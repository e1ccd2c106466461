//! A second DHCP server that came after the start: machines that choose it show that it is there.

use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use landfall_edge::metrics::metrics;

/// Between two warnings: each machine of a rack that boots would cause one.
const EVERY: Duration = Duration::from_secs(60);

/// When the last warning was written.
#[derive(Debug, Default)]
pub(super) struct Rival(Mutex<Option<Instant>>);

impl Rival {
    /// A client chose `server`. Counts it, and warns at most once a minute; whether it warned.
    pub(super) fn chosen(&self, server: Ipv4Addr, interface: &str) -> bool {
        metrics().dhcp_other_server.add(1);
        let now = Instant::now();
        // A panic elsewhere leaves nothing half done.
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| now.saturating_duration_since(last) < EVERY) {
            return false;
        }
        *last = Some(now);
        tracing::warn!(
            service = "dhcp", %server, interface,
            "another DHCP server answers here, and machines take its addresses; stop it, or set dhcp.mode = \"proxy\""
        );
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_second_server_is_warned_of_once_a_minute() {
        let (rival, server) = (Rival::default(), Ipv4Addr::new(10, 77, 0, 2));
        assert!(rival.chosen(server, "br0"));
        assert!((0..1000).all(|_| !rival.chosen(server, "br0")));
        tokio::time::advance(EVERY).await;
        assert!(rival.chosen(server, "br0"));
    }
}
