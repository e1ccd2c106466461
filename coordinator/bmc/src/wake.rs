//! Wake-on-LAN: magic packets (AMD, "Magic Packet Technology", 1995) for a computer without a BMC.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use landfall_api::{BmcSystem, MacAddr, PowerState, WakeOnLan};
use tokio::net::UdpSocket;
use tokio::time::sleep;

use crate::error::BmcError;
use crate::{Bmc, BootDevice, BootOverride, Inserted, PowerChange};

/// "Discard", which most programs use.
const PORT: u16 = 9;
/// Packets are lost without a word; a port that wakes listens all the time.
const REPEATS: u32 = 3;
/// Between them.
const EVERY: Duration = Duration::from_millis(500);

/// What stands in for a BMC: it can switch on.
pub(crate) struct Wake {
    macs: Vec<MacAddr>,
    to: SocketAddr,
    /// Its interface is the one that the packets leave by.
    from: IpAddr,
}

impl Wake {
    /// For a machine with these ports.
    pub(crate) fn new(spec: &WakeOnLan, macs: &[MacAddr], from: IpAddr) -> Self {
        let macs = if spec.macs.is_empty() { macs } else { &spec.macs }.to_vec();
        let address = spec.address.unwrap_or(Ipv4Addr::BROADCAST);
        // Packets to an address of IPv4 alone: the other machine is off, and has no address.
        let from = if from.is_ipv4() { from } else { Ipv4Addr::UNSPECIFIED.into() };
        Self { macs, to: SocketAddr::new(address.into(), spec.port.unwrap_or(PORT)), from }
    }

    async fn send(&self) -> std::io::Result<()> {
        // Linux sends what is for 255.255.255.255 through the interface with the socket's own address.
        let socket = UdpSocket::bind((self.from, 0)).await?;
        socket.set_broadcast(true)?;
        for n in 0..REPEATS {
            if n > 0 {
                sleep(EVERY).await;
            }
            for mac in &self.macs {
                socket.send_to(&packet(*mac), self.to).await?;
            }
        }
        Ok(())
    }

    fn unsupported(&self, what: &str) -> BmcError {
        BmcError::Unsupported { url: "Wake-on-LAN".to_owned(), what: what.to_owned() }
    }
}

/// Six bytes of ones, then the address sixteen times.
fn packet(mac: MacAddr) -> [u8; 102] {
    let mut packet = [0xff; 102];
    for part in packet[6..].chunks_exact_mut(6) {
        part.copy_from_slice(&mac.0);
    }
    packet
}

#[async_trait]
impl Bmc for Wake {
    async fn power(&mut self) -> Result<Option<PowerState>, BmcError> {
        Ok(None)
    }

    async fn inventory(&mut self) -> Result<BmcSystem, BmcError> {
        Ok(BmcSystem::default())
    }

    async fn set_boot(&mut self, boot: BootOverride) -> Result<(), BmcError> {
        if boot.device == BootDevice::None { Ok(()) } else { Err(self.unsupported("a boot device")) }
    }

    async fn insert(&mut self, _url: &str) -> Result<Inserted, BmcError> {
        Err(self.unsupported("virtual media"))
    }

    async fn eject(&mut self, _url: &str, _drive: Option<&str>) -> Result<(), BmcError> {
        Ok(())
    }

    async fn change_power(&mut self, change: PowerChange) -> Result<(), BmcError> {
        match change {
            PowerChange::On => self.send().await.map_err(|error| BmcError::Unreachable {
                url: format!("the network of {}", self.to),
                why: format!("the magic packet cannot be sent: {error}"),
            }),
            PowerChange::Off => Err(self.unsupported("to switch a machine off")),
            PowerChange::Shutdown => Err(self.unsupported("to shut a machine down")),
        }
    }

    async fn signs(&mut self, _since: Timestamp, _now: Timestamp) -> Result<Vec<String>, BmcError> {
        Ok(Vec::new())
    }

    async fn close(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_is_woken_by_its_address_sixteen_times() {
        let listener = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let spec = WakeOnLan { address: Some(Ipv4Addr::LOCALHOST), port: Some(port), ..WakeOnLan::default() };
        let macs = ["52:54:00:12:34:56".parse().unwrap(), "52:54:00:12:34:57".parse().unwrap()];
        let mut wake = Wake::new(&spec, &macs, Ipv4Addr::LOCALHOST.into());
        wake.change_power(PowerChange::On).await.unwrap();
        let mut heard = [0; 200];
        for n in 0..REPEATS as usize * macs.len() {
            let read = listener.recv(&mut heard).await.unwrap();
            assert_eq!(heard[..6], [0xff; 6]);
            assert!(read == 102 && heard[6..102].chunks(6).all(|part| part == macs[n % 2].0), "packet {n}");
        }
        assert!(wake.change_power(PowerChange::Off).await.is_err());
        let own = WakeOnLan { macs: vec![macs[1]], ..spec };
        assert_eq!(Wake::new(&own, &macs, Ipv4Addr::LOCALHOST.into()).macs, [macs[1]]);
    }
}
