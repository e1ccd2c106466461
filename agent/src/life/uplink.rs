//! Reaching the coordinator over some port, and choosing again when that port fails.

use std::{convert::Infallible, time::Duration};

use landfall_session::{Backoff, Connection, Target};
use tokio::{sync::watch, time::Instant};

use super::{FIRST_WAIT, LONGEST_WAIT, Life};
use crate::net::{Change, Network, Uplink};

/// How long to wait for a first address before the log says what is missing.
const PATIENCE: Duration = Duration::from_secs(10);
/// After this time without a connection the agent tries the other ports.
const SILENCE: Duration = Duration::from_secs(30);
/// After this time without the coordinator, and again each time it has passed, every lease is checked: a switch port that
/// was moved to another network shows no change of carrier.
const CHECK_LEASES: Duration = Duration::from_secs(120);

/// Since when the coordinator has not been reached, or since when the leases were last checked because of it.
struct Unreached(Instant);

impl Unreached {
    /// Whether the leases are to be checked now; they are not again for [`CHECK_LEASES`].
    fn is_long(&mut self, now: Instant) -> bool {
        let long = now.saturating_duration_since(self.0) >= CHECK_LEASES;
        if long {
            self.0 = now;
        }
        long
    }
}

impl Life {
    /// Waits for a port over which the coordinator answers. An agent that does not manage the ports uses the existing
    /// network. The target names no name servers: those of the uplink's newest lease stand in `resolv.conf`, where each new
    /// connection reads them.
    pub(super) async fn reach(&self) -> (Target, Option<Uplink>) {
        let Some(network) = &self.network else { return (self.coordinator.next(&self.board).await, None) };
        let (target, uplink) = self.elect(network, None, &mut Unreached(Instant::now())).await;
        (target, Some(uplink))
    }

    /// `of_session`: the coordinator that there is a session with; absent: any.
    async fn elect(
        &self, network: &Network, of_session: Option<&Target>, unreached: &mut Unreached,
    ) -> (Target, Uplink) {
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        let mut said = None;
        self.board.change(|status| {
            status.port = "looking for a port that reaches the coordinator".to_owned();
            status.connection = String::new();
        });
        loop {
            let target = match of_session {
                Some(target) => target.clone(),
                None => self.coordinator.next(&self.board).await,
            };
            let by = target.proxy().map(|proxy| format!(" by the proxy {proxy}")).unwrap_or_default();
            self.board.change(|status| status.coordinator = target.to_string());
            match network.elect(&target.first_hops(), self.boot_port, PATIENCE).await {
                Ok(uplink) => {
                    tracing::info!("{target} is reached{by} over {} at {}", uplink.name, uplink.coordinator);
                    self.board
                        .change(|status| (status.port, status.connection) = (uplink.to_string(), "reached".to_owned()));
                    return (target, uplink);
                }
                Err(why) => {
                    let wait = backoff.step();
                    self.board.change(|status| status.connection = format!("not reached: {}", why.0.join("; ")));
                    // The same message is repeated only at the longest waits, so that the console stays readable.
                    if said.as_ref() != Some(&why) || wait * 2 >= LONGEST_WAIT {
                        tracing::error!(
                            "cannot reach the coordinator at {target}{by}: {}; the agent keeps trying",
                            why.0.join("; ")
                        );
                        said = Some(why);
                    }
                    check_leases(network, unreached);
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    /// Gives up the uplink, so that the next attempt can choose another.
    pub(super) async fn leave(&self, uplink: Option<Uplink>) {
        if let (Some(network), Some(uplink)) = (&self.network, &uplink) {
            network.release(uplink).await;
        }
    }

    /// Follows the uplink's lease, and chooses again whenever its port fails or the session stays without connection. Never
    /// returns.
    pub(super) async fn keep_uplink(
        &self, uplink: Option<Uplink>, target: &Target, connection: watch::Receiver<Connection>,
    ) -> Infallible {
        let (Some(network), Some(mut uplink)) = (&self.network, uplink) else {
            return std::future::pending().await;
        };
        let mut unreached = Unreached(Instant::now());
        loop {
            if connected(&connection.borrow()) {
                unreached = Unreached(Instant::now());
            }
            tokio::select! {
                change = network.changed(&uplink) => match change {
                    Change::Renewed(addresses) => {
                        uplink = network.follow(uplink, addresses).await;
                        continue;
                    }
                    Change::Lost => tracing::warn!("{}: the connection to {target} is lost", uplink.name),
                },
                () = silence(connection.clone()) => check_leases(network, &mut unreached),
            }
            network.release(&uplink).await;
            (_, uplink) = self.elect(network, Some(target), &mut unreached).await;
        }
    }
}

fn check_leases(network: &Network, unreached: &mut Unreached) {
    if unreached.is_long(Instant::now()) {
        tracing::info!("the coordinator has not been reached for {} s: asking DHCP again", CHECK_LEASES.as_secs());
        network.check_leases();
    }
}

fn connected(connection: &Connection) -> bool {
    matches!(connection, Connection::Connected { .. })
}

/// Waits until the session has been without connection for [`SILENCE`].
async fn silence(mut connection: watch::Receiver<Connection>) {
    loop {
        if connection.wait_for(|c| !connected(c)).await.is_err() {
            std::future::pending::<()>().await;
        }
        if tokio::time::timeout(SILENCE, connection.wait_for(connected)).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_checked_once_each_two_minutes() {
        let start = Instant::now();
        let mut unreached = Unreached(start);
        let at = |seconds| start + Duration::from_secs(seconds);
        let checked: Vec<u64> = (0..=400).step_by(10).filter(|second| unreached.is_long(at(*second))).collect();
        assert_eq!(checked, [120, 240, 360]);
    }
}
