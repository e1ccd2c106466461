//! Reaching the coordinator over some port, and choosing again when that port fails.

use std::{convert::Infallible, net::IpAddr, time::Duration};

use landfall_session::{Backoff, Connection, Target};
use tokio::sync::watch;

use super::{FIRST_WAIT, LONGEST_WAIT, Life};
use crate::net::{Network, Uplink};

/// How long to wait for a first address before the log says what is missing.
const PATIENCE: Duration = Duration::from_secs(10);
/// After this time without a connection the agent tries the other ports.
const SILENCE: Duration = Duration::from_secs(30);

impl Life {
    /// Waits for a port over which the coordinator answers. An agent that does not manage the ports uses the existing
    /// network.
    pub(super) async fn reach(&self) -> (Target, Option<Uplink>) {
        let Some(network) = &self.network else { return (self.target.clone(), None) };
        let uplink = self.elect(network).await;
        let servers = uplink.nameservers.iter().copied().map(IpAddr::V4).collect();
        (self.target.clone().with_nameservers(servers), Some(uplink))
    }

    async fn elect(&self, network: &Network) -> Uplink {
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        let mut said = None;
        loop {
            match network.elect(self.target.host(), self.target.port(), self.boot_port, PATIENCE).await {
                Ok(uplink) => {
                    tracing::info!("{} is reached over {} at {}", self.target, uplink.name, uplink.coordinator);
                    return uplink;
                }
                Err(why) => {
                    let wait = backoff.step();
                    // The same message is repeated only at the longest waits, so that the console stays readable.
                    if said.as_ref() != Some(&why) || wait * 2 >= LONGEST_WAIT {
                        tracing::error!(
                            "cannot reach the coordinator at {}: {}; the agent keeps \
                            trying",
                            self.target,
                            why.0.join("; ")
                        );
                        said = Some(why);
                    }
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

    /// Chooses again whenever the uplink's port fails or the session stays without connection. Never returns.
    pub(super) async fn keep_uplink(
        &self,
        uplink: Option<Uplink>,
        target: &Target,
        connection: watch::Receiver<Connection>,
    ) -> Infallible {
        let (Some(network), Some(mut uplink)) = (&self.network, uplink) else {
            return std::future::pending().await;
        };
        loop {
            tokio::select! {
                () = network.lost(&uplink) => tracing::warn!("{}: the connection to {target} is lost", uplink.name),
                () = silence(connection.clone()) => {}
            }
            network.release(&uplink).await;
            uplink = self.elect(network).await;
        }
    }
}

/// Waits until the session has been without connection for [`SILENCE`].
async fn silence(mut connection: watch::Receiver<Connection>) {
    let connected = |c: &Connection| matches!(c, Connection::Connected { .. });
    loop {
        if connection.wait_for(|c| !connected(c)).await.is_err() {
            std::future::pending::<()>().await;
        }
        if tokio::time::timeout(SILENCE, connection.wait_for(connected)).await.is_err() {
            return;
        }
    }
}
