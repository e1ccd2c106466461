//! The socket: requests that are sent again until they are answered, or until a limit.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

/// A request is sent so often, each time waiting so long for the answer, in milliseconds: 5 s together. Networks of BMCs are near,
/// and their processors slow.
pub(super) const TRIES: &[u64] = &[250, 750, 1000, 1000, 2000];
/// More than any packet of IPMI over LAN has.
pub(super) const MAX_PACKET: usize = 2048;

/// A socket to one BMC.
pub(super) struct Line(UdpSocket);

impl Line {
    /// Packets of other addresses are not received.
    pub(super) async fn to(address: SocketAddr) -> io::Result<Self> {
        let own: SocketAddr =
            if address.is_ipv6() { (Ipv6Addr::UNSPECIFIED, 0).into() } else { (Ipv4Addr::UNSPECIFIED, 0).into() };
        let socket = UdpSocket::bind(own).await?;
        socket.connect(address).await?;
        Ok(Self(socket))
    }

    /// Sends what `packet` makes, once for each of `tries`, until `answer` takes what comes back. Why there was no answer, if there
    /// was none. What `answer` does not take is dropped: late, repeated, damaged and foreign packets.
    pub(super) async fn ask<S: Send, T>(
        &self, tries: &[u64], state: &mut S, packet: impl Fn(&mut S) -> Vec<u8>,
        answer: impl Fn(&mut S, &[u8]) -> Option<T>,
    ) -> Result<T, String> {
        let mut why = "there is no answer".to_owned();
        let mut buffer = [0; MAX_PACKET];
        for wait in tries {
            let until = Instant::now() + Duration::from_millis(*wait);
            if let Err(error) = self.0.send(&packet(state)).await {
                why = error.to_string();
            }
            loop {
                match timeout_at(until, self.0.recv(&mut buffer)).await {
                    Ok(Ok(length)) => {
                        if let Some(taken) = answer(state, buffer.get(..length).unwrap_or_default()) {
                            return Ok(taken);
                        }
                    }
                    // "Port unreachable", of a packet before: a BMC that starts listens a moment later.
                    Ok(Err(error)) => why = error.to_string(),
                    Err(_) => break,
                }
                // A flood must not keep the timer from being looked at.
                if Instant::now() >= until {
                    break;
                }
            }
        }
        Err(why)
    }

    /// Waits for one packet: its length.
    pub(super) async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.recv(buffer).await
    }

    /// Sends one packet, and awaits nothing.
    pub(super) async fn tell(&self, packet: &[u8]) {
        drop(self.0.send(packet).await);
    }
}
