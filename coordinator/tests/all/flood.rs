//! Floods of datagrams from made-up senders: DHCP discovers from made-up Ethernet addresses, TFTP requests
//! that are never acknowledged. Memory, leases, transfers and log lines stay bounded, and those who mean it are served.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::besieged::{Dice, LIMIT, MAC, Site, mib};
use landfall_boot::tftp::MAX_TRANSFERS;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::json;

/// Made-up addresses that ask.
const UNKNOWN: usize = 100_000;
/// What a flood may cost, however long: the pool, the queue of one socket, the log lines under way.
const MEMORY: u64 = 32 << 20;
/// A described machine asks again every second, as firmware does; so often, at most, with ten times to spare.
const ASKED: usize = 60;

/// Two namespaces with a cable between them: `10.78.0.1` the coordinator's, `10.78.0.2` everybody else's.
struct Cable {
    names: [String; 2],
}

impl Cable {
    fn new(which: &str) -> Self {
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
    fn client(&self, port: u16) -> UdpSocket {
        let namespace = std::fs::File::open(format!("/run/netns/{}", self.names[1])).unwrap();
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
}

impl Drop for Cable {
    fn drop(&mut self) {
        for name in &self.names {
            // Never made, if the test failed that early.
            let _status = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

fn ip(words: &[&str]) {
    let output = Command::new("ip").args(words).output().unwrap();
    assert!(output.status.success(), "ip {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr));
}

/// A packet of PXE firmware: a discover, or a request for an address.
fn packet(mac: [u8; 6], xid: u32, wanted: Option<Ipv4Addr>) -> Vec<u8> {
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
        packet.extend_from_slice(&[54, 4, 10, 78, 0, 1]);
    }
    packet.push(255);
    packet
}

/// Asks as the described machine until it is answered: the address in the answer, and how often it asked.
fn ask(socket: &UdpSocket, xid: u32, wanted: Option<Ipv4Addr>) -> (Ipv4Addr, usize) {
    let mac = MAC.parse::<landfall_api::MacAddr>().unwrap().0;
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut buffer = [0; 1500];
    for asked in 1..=ASKED {
        socket.send_to(&packet(mac, xid, wanted), (Ipv4Addr::BROADCAST, 67)).unwrap();
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

/// Sends discovers, and requests for every address there is, from made-up machines until the stop.
fn flood(socket: UdpSocket, stop: Arc<AtomicBool>) -> usize {
    let mut dice = Dice::new(1);
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) || sent < UNKNOWN {
        let random = dice.bytes(6);
        let mac = [2, random[1], random[2], random[3], random[4], random[5]];
        let wanted = (sent % 4 == 3).then(|| Ipv4Addr::new(10, 78, 0, 100 + (dice.below(100) as u8)));
        // A full queue on the way is the network's own bound.
        sent += usize::from(socket.send_to(&packet(mac, 7, wanted), (Ipv4Addr::BROADCAST, 67)).is_ok());
    }
    sent
}

/// Packets that are DHCP's at first sight, or not even that.
fn garbage(socket: &UdpSocket) {
    let mut dice = Dice::new(2);
    for n in 0..4000u16 {
        let length = dice.below(1400);
        let mut bytes = dice.bytes(length);
        if n % 2 == 0 && length > 250 {
            bytes[..4].copy_from_slice(&[1, 1, 6, 0]);
            bytes[28] &= 0xfe;
            bytes[236..240].copy_from_slice(&[99, 130, 83, 99]);
            bytes[240..243].copy_from_slice(&[53, 1, (n % 9) as u8]);
        }
        // A full queue on the way is the network's own bound.
        let _sent = socket.send_to(&bytes, (Ipv4Addr::BROADCAST, if n % 3 == 0 { 4011 } else { 67 }));
    }
}

/// `None`, said aloud, where this may not make namespaces; `scripts/test` runs as root, so there it may.
async fn dhcp(which: &str, mode: &str) -> Option<(String, Site)> {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: making network namespaces needs root");
        return None;
    }
    let cable = Cable::new(which);
    let site = Site::new("10.78.0.1", [7480, 7443, 69], &format!("[dhcp]\ninterface = \"e0\"\n{mode}\n"));
    let mut coordinator = site.start(&["ip", "netns", "exec", &cable.names[0]]);
    site.apply("Machine", "m1", json!({"identity": {"macs": [MAC]}})).await;
    let before = coordinator.memory("VmRSS");
    let (good, bad) = (cable.client(68), cable.client(0));
    garbage(&bad);
    let stop = Arc::new(AtomicBool::new(false));
    let unknown = std::thread::spawn({
        let stop = stop.clone();
        move || flood(bad, stop)
    });
    let full = mode.contains("full");
    let (mut slowest, mut rounds) = (0, 0);
    while !unknown.is_finished() && rounds < 20 {
        rounds += 1;
        let (offered, asked) = ask(&good, 0xABC0 + rounds, None);
        slowest = slowest.max(asked);
        if full {
            let (given, asked) = ask(&good, 0xDEF0 + rounds, Some(offered));
            assert_eq!(given, offered, "an address is given as it was offered");
            slowest = slowest.max(asked);
        }
    }
    stop.store(true, Ordering::Relaxed);
    let sent = unknown.join().unwrap();
    let (peak, log) = (coordinator.memory("VmHWM"), coordinator.log());
    println!(
        "{which}: {sent} packets of unknown machines, {rounds} rounds of a described machine, asked {slowest} times at most; memory \
         {} MiB before, {} MiB at most; {} log lines",
        mib(before),
        mib(peak),
        log.lines().count()
    );
    assert!(peak < before + MEMORY, "{} MiB before, {} MiB at most", mib(before), mib(peak));
    coordinator.require_sound();
    Some((log, site))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_ignores_a_flood_and_serves_described_machines() {
    let Some((log, _site)) = dhcp("proxy", "mode = \"proxy\"").await else { return };
    let lines = log.lines().filter(|line| line.contains("answer=\"none\"")).count();
    assert!(lines > 0 && lines < 10_000, "{lines} lines about machines that got no answer");
    assert!(!log.contains("answer=\"offer\" ip=10."), "a proxy gives no addresses");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_discovers_takes_at_most_half_the_range() {
    let mode = "mode = \"full\"\nrange = \"10.78.0.100-10.78.0.199\"\ndiscovery = true";
    let Some((_, site)) = dhcp("full", mode).await else { return };
    let kept: serde_json::Value =
        serde_json::from_slice(&std::fs::read(site.dir.path().join("data/dhcp-leases.json")).unwrap()).unwrap();
    let leases = kept["leases"].as_object().unwrap();
    let unknown = leases.values().filter(|lease| lease["stranger"] == true).count();
    assert!(unknown <= 50, "{unknown} of a hundred addresses are of unknown machines");
    assert!(leases.values().any(|lease| lease["mac"] == MAC), "the described machine's lease is kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn unacknowledged_requests_use_bounded_transfers() {
    let site = Site::loopback();
    let mut coordinator = site.start(&[]);
    let before = coordinator.memory("VmRSS");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, site.tftp));
    let silent: Vec<_> = (0..100).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let mut most_files = 0;
    for n in 0..200 {
        for socket in &silent {
            socket.send_to(b"\0\x01snponly.efi\0octet\0timeout\x00255\0", address).unwrap();
        }
        if n % 10 == 0 {
            most_files = most_files.max(coordinator.open_files());
        }
    }
    let begun = Instant::now();
    let length = loop {
        match fetch(address) {
            Some(length) => break length,
            None => assert!(begun.elapsed() < LIMIT, "no client was served for {LIMIT:?}"),
        }
    };
    assert_eq!(length, 1 << 20);
    let peak = coordinator.memory("VmHWM");
    println!(
        "tftp: 20000 requests without an acknowledgement; a good one was served after {:?}; memory {} MiB before, {} MiB at \
         most; {most_files} files open at most",
        begun.elapsed(),
        mib(before),
        mib(peak)
    );
    assert!(most_files < MAX_TRANSFERS + 200, "{most_files} open files");
    assert!(peak < before + MEMORY, "{} MiB before, {} MiB at most", mib(before), mib(peak));
    coordinator.require_sound();
}

/// The loader as firmware fetches it; `None` if the server did not answer for a second.
fn fetch(server: SocketAddr) -> Option<usize> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    socket.send_to(b"\0\x01snponly.efi\0octet\0blksize\x001468\0", server).unwrap();
    let (mut length, mut next, mut buffer) = (0, 1u16, [0; 1500]);
    loop {
        let (n, from) = socket.recv_from(&mut buffer).ok()?;
        if buffer[1] == 6 {
            socket.send_to(&[0, 4, 0, 0], from).unwrap();
            continue;
        }
        assert_eq!(buffer[1], 3, "data is expected");
        let number = u16::from_be_bytes([buffer[2], buffer[3]]);
        socket.send_to(&[0, 4, buffer[2], buffer[3]], from).unwrap();
        if number == next {
            length += n - 4;
            next = next.wrapping_add(1);
            if n - 4 < 1468 {
                return Some(length);
            }
        }
    }
}
