//! The network for real: a namespace of its own, two veth pairs on one bridge, dnsmasq behind it.

use std::{
    net::Ipv4Addr,
    process::{Child, Command, Stdio},
    time::Duration,
};

use nix::sched::{CloneFlags, unshare};

use super::*;

/// Kills what it started, by its id.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Gone already is fine; the namespace goes with the thread.
        self.0.kill().unwrap_or_default();
        drop(self.0.wait());
    }
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

fn have(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

#[test]
fn ports_get_addresses_by_dhcp_and_the_one_that_reaches_the_coordinator_is_chosen() {
    if !nix::unistd::geteuid().is_root() || !have("dnsmasq") || !have("ip") {
        eprintln!("SKIPPED: needs root, ip and dnsmasq");
        return;
    }
    // A thread of its own: the namespace is the thread's, and ends with it. A current-thread runtime, because worker
    // threads of another would be born in whichever namespace their parent is in.
    std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(in_own_network());
    })
    .join()
    .unwrap();
}

async fn in_own_network() {
    // `good` leads to the server; `dead` has a carrier and nobody behind it.
    for line in [
        "link set lo up",
        "link add good type veth peer name server",
        "link add dead type veth peer name nobody",
        "addr add 10.99.0.1/24 dev server",
        "link set server up",
        "link set nobody up",
    ] {
        ip(line);
    }
    let directory = tempfile::tempdir().unwrap();
    let leases = directory.path().join("leases");
    let dnsmasq = Command::new("dnsmasq")
        .args(["--no-daemon", "--conf-file=/dev/null", "--port=0", "--user=root", "--interface=server"])
        .args(["--bind-interfaces", "--dhcp-range=10.99.0.50,10.99.0.60,255.255.255.0,120"])
        .args(["--dhcp-option=option:router,10.99.0.1", "--dhcp-option=option:dns-server,10.99.0.1"])
        .arg(format!("--dhcp-leasefile={}", leases.display()))
        .arg("--pid-file=")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _dnsmasq = Process(dnsmasq);
    let listener = tokio::net::TcpListener::bind("10.99.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();

    let network = Network::start(true).unwrap();
    let limit = Duration::from_secs(60);
    let uplink = network.elect("10.99.0.1", port, None, limit).await.unwrap();
    assert_eq!(uplink.name, "good");
    assert!(uplink.address.octets()[..3] == [10, 99, 0] && uplink.nameservers == [Ipv4Addr::new(10, 99, 0, 1)]);
    let routes = Command::new("ip").args(["route", "get", "10.99.0.1", "oif", "good"]).output().unwrap();
    assert!(routes.status.success());
    let table = String::from_utf8(Command::new("ip").arg("route").output().unwrap().stdout).unwrap();
    assert!(table.contains("default via 10.99.0.1 dev good"), "{table}");

    // A port that answers nothing is told apart from one without address.
    let refused = network.elect("10.99.0.1", 1, None, limit).await.unwrap_err();
    assert!(refused.0.iter().any(|why| why.contains("good") && why.contains("refused")), "{refused:?}");
    assert!(refused.0.iter().any(|why| why.contains("dead") && why.contains("no address")), "{refused:?}");

    // The way is lost with the carrier, and is back with it.
    ip("link set server down");
    tokio::time::timeout(limit, network.lost(&uplink)).await.unwrap();
    ip("link set server up");
    let again = network.elect("10.99.0.1", port, None, limit).await;
    let again = match again {
        Ok(uplink) => uplink,
        // The carrier may be told of just after the question.
        Err(_) => {
            let mut ports = network.ports();
            let up = |all: &Ports| all.values().any(|p| p.name == "good" && p.carrier && p.lease.is_some());
            drop(tokio::time::timeout(limit, ports.wait_for(up)).await.unwrap().unwrap());
            network.elect("10.99.0.1", port, None, limit).await.unwrap()
        }
    };
    assert_eq!(again.address, uplink.address, "the same lease after a short loss of the link");
    network.release(&again).await;
}
