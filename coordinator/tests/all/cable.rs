//! Network namespaces with cables between them, and what a machine's firmware sends to a DHCP server there.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use landfall_api::MacAddr;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{setsockopt, sockopt};

/// A port asks again every second, as firmware does; so often, at most, with ten times to spare.
const ASKED: usize = 60;

/// The coordinator.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);

/// Two namespaces with a cable between them: `10.78.0.1` the coordinator's, `10.78.0.2` the other hosts'.
pub(crate) struct Cable {
    pub(crate) names: [String; 2],
}

impl Cable {
    pub(crate) fn new(which: &str) -> Self {
        let id = std::process::id();
        let cable = Self { names: ["a", "b"].map(|end| format!("lf-{which}-{id}-{end}")) };
        let [a, b] = &cable.names;
        ip(&["netns", "add", a]);
        ip(&["netns", "add", b]);
        ip(&["-n", a, "link", "add", "e0", "type", "veth", "peer", "name", "e0", "netns", b]);
        for (name, address) in [(a, "10.78.0.1/24"), (b, "10.78.0.2/24")] {
            ip(&["-n", name, "addr", "add", address, "dev", "e0"]);
            ip(&["-n", name, "link", "set", "lo", "up"]);
            ip(&["-n", name, "link", "set", "e0", "up"]);
        }
        cable
    }

    /// A socket at the far end: on a DHCP client's port, where answers are broadcast to, or on any.
    pub(crate) fn client(&self, port: u16) -> UdpSocket {
        client_in(&self.names[1], port)
    }
}

/// The same on the port `e0` of any namespace.
pub(crate) fn client_in(namespace: &str, port: u16) -> UdpSocket {
    let namespace = std::fs::File::open(format!("/run/netns/{namespace}")).unwrap();
    // A thread of its own: where it is ends with it, the socket stays.
    let opened = std::thread::spawn(move || {
        setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap();
        socket.set_broadcast(true).unwrap();
        setsockopt(&socket, sockopt::BindToDevice, &"e0".into()).unwrap();
        setsockopt(&socket, sockopt::RcvBuf, &(4 << 20)).unwrap();
        socket
    });
    opened.join().unwrap()
}

impl Drop for Cable {
    fn drop(&mut self) {
        for name in &self.names {
            // Never made, if the test failed that early.
            let _status = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

pub(crate) fn ip(words: &[&str]) {
    let output = Command::new("ip").args(words).output().unwrap();
    assert!(output.status.success(), "ip {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr));
}

/// A packet of PXE firmware: a discover, or a request for an address.
pub(crate) fn packet(mac: [u8; 6], xid: u32, wanted: Option<Ipv4Addr>, server: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0; 240];
    packet[..4].copy_from_slice(&[1, 1, 6, 0]);
    packet[4..8].copy_from_slice(&xid.to_be_bytes());
    packet[10] = 0x80;
    packet[28..34].copy_from_slice(&mac);
    packet[236..240].copy_from_slice(&[99, 130, 83, 99]);
    packet.extend_from_slice(&[53, 1, if wanted.is_some() { 3 } else { 1 }]);
    packet.extend_from_slice(&[93, 2, 0, 7, 60, 9]);
    packet.extend_from_slice(b"PXEClient");
    if let Some(wanted) = wanted {
        packet.extend_from_slice(&[50, 4]);
        packet.extend_from_slice(&wanted.octets());
        packet.extend_from_slice(&[54, 4]);
        packet.extend_from_slice(&server.octets());
    }
    packet.push(255);
    packet
}

/// Asks as that port until it is answered: the address in the answer, and how often it asked.
pub(crate) fn ask(socket: &UdpSocket, mac: &str, xid: u32, wanted: Option<Ipv4Addr>) -> (Ipv4Addr, usize) {
    ask_of(socket, mac, xid, wanted, SERVER)
}

/// The same; for an address that this server has offered.
pub(crate) fn ask_of(
    socket: &UdpSocket, mac: &str, xid: u32, wanted: Option<Ipv4Addr>, server: Ipv4Addr,
) -> (Ipv4Addr, usize) {
    let mac = mac.parse::<MacAddr>().unwrap().0;
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut buffer = [0; 1500];
    for asked in 1..=ASKED {
        socket.send_to(&packet(mac, xid, wanted, server), (Ipv4Addr::BROADCAST, 67)).unwrap();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(1) {
            let Ok((n, _)) = socket.recv_from(&mut buffer) else { continue };
            let reply = &buffer[..n];
            if n >= 240 && reply[0] == 2 && reply[4..8] == xid.to_be_bytes() && reply[28..34] == mac {
                return (Ipv4Addr::from([reply[16], reply[17], reply[18], reply[19]]), asked);
            }
        }
    }
    panic!("a described machine asked {ASKED} times and was never answered")
}
