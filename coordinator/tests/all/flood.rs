//! Floods of datagrams from made-up senders: DHCP discovers from made-up Ethernet addresses, TFTP requests
//! that are never acknowledged. Memory, leases, transfers and log lines stay bounded, and those who mean it are served.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::besieged::{Dice, LIMIT, MAC, Site, mib};
use super::cable::{Cable, SERVER, ask, packet};
use landfall_boot::tftp::MAX_TRANSFERS;
use serde_json::json;

/// Made-up addresses that ask.
const UNKNOWN: usize = 100_000;
/// What a flood may cost, however long: the pool, the queue of one socket, the log lines under way.
const MEMORY: u64 = 32 << 20;
/// Sends discovers, and requests for every address there is, from made-up machines until the stop.
fn flood(socket: UdpSocket, stop: Arc<AtomicBool>) -> usize {
    let mut dice = Dice::new(1);
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) || sent < UNKNOWN {
        let random = dice.bytes(6);
        let mac = [2, random[1], random[2], random[3], random[4], random[5]];
        let wanted = (sent % 4 == 3).then(|| Ipv4Addr::new(10, 78, 0, 100 + (dice.below(100) as u8)));
        // A full queue on the way is the network's own bound.
        sent += usize::from(socket.send_to(&packet(mac, 7, wanted, SERVER), (Ipv4Addr::BROADCAST, 67)).is_ok());
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
        let (offered, asked) = ask(&good, MAC, 0xABC0 + rounds, None);
        slowest = slowest.max(asked);
        if full {
            let (given, asked) = ask(&good, MAC, 0xDEF0 + rounds, Some(offered));
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
    let seen = site.api("GET", "/sightings", &json!({})).await;
    let seen = seen["items"].as_array().unwrap();
    assert!((1..=1024).contains(&seen.len()), "what an operator is shown of a flood is bounded: {}", seen.len());
    let why = if full {
        &["unknown machines send more requests", "every address of the subnet's range is taken"][..]
    } else {
        &["no machine has this address"]
    };
    assert!(why.iter().any(|why| seen[0]["reason"].as_str().unwrap().starts_with(why)), "{}", seen[0]);
    assert!(seen.iter().all(|one| one["mac"] != MAC), "the described machine was served");
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
        match fetch(&UdpSocket::bind("127.0.0.1:0").unwrap(), address) {
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
pub(crate) fn fetch(socket: &UdpSocket, server: SocketAddr) -> Option<usize> {
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
