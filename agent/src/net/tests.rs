//! The network for real: two namespaces, a veth pair between them, dnsmasq at the other end.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};

use super::*;

/// Kills the process that it started, by its id.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Gone already is fine.
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

/// The other end: a thread in a namespace of its own, which executes the jobs it is sent and ends with its sender.
struct FarEnd {
    thread: i32,
    work: mpsc::Sender<Box<dyn FnOnce() + Send>>,
}

impl FarEnd {
    fn start() -> Self {
        let (work, todo) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let (named, name) = mpsc::channel();
        std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            named.send(nix::unistd::gettid().as_raw()).unwrap();
            todo.into_iter().for_each(|job| job());
        });
        Self { thread: name.recv().unwrap(), work }
    }

    /// Runs `job` there and waits for it. Programs started by it are there too.
    fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = mpsc::channel();
        self.work.send(Box::new(move || drop(done.send(job())))).unwrap();
        result.recv().unwrap()
    }
}

/// A DHCP server that names this router and this name server.
fn dnsmasq_at(leases: &Path, router: &str, nameserver: &str) -> Process {
    let dnsmasq = Command::new("dnsmasq")
        .args(["--no-daemon", "--conf-file=/dev/null", "--port=0", "--user=root", "--interface=server"])
        .args(["--bind-interfaces", "--dhcp-range=10.99.0.50,10.99.0.60,255.255.255.0,120"])
        .arg(format!("--dhcp-option=option:router,{router}"))
        .arg(format!("--dhcp-option=option:dns-server,{nameserver}"))
        .arg(format!("--dhcp-leasefile={}", leases.display()))
        .arg("--pid-file=")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Process(dnsmasq)
}

#[test]
fn the_port_that_reaches_the_coordinator_is_chosen() {
    if !nix::unistd::geteuid().is_root() || !have("dnsmasq") || !have("ip") {
        eprintln!("SKIPPED: needs root, ip and dnsmasq");
        return;
    }
    // A thread of its own: the namespace is the thread's, and ends with it. A current-thread runtime, because worker
    // threads of another would be born in whichever namespace their parent is in.
    let near = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(in_own_network());
    });
    near.join().unwrap();
}

async fn in_own_network() {
    let far = FarEnd::start();
    // `good` leads to the server; `dead` has a carrier but no server behind it.
    ip("link set lo up");
    ip(&format!("link add good type veth peer name server netns {}", far.thread));
    ip(&format!("link add dead type veth peer name unused netns {}", far.thread));
    let directory = tempfile::tempdir().unwrap();
    let resolv_conf = directory.path().join("resolv.conf");
    let leases = directory.path().join("leases");
    let first = leases.clone();
    let (dnsmasq, listener) = far.run(move || {
        for line in ["addr add 10.99.0.1/24 dev server", "link set server up", "link set unused up"] {
            ip(line);
        }
        (dnsmasq_at(&first, "10.99.0.1", "10.99.0.1"), TcpListener::bind("10.99.0.1:0").unwrap())
    });
    let port = listener.local_addr().unwrap().port();

    let network = Network::start(true, resolv_conf.clone()).unwrap();
    let limit = Duration::from_secs(120);
    let uplink = network.elect("10.99.0.1", port, None, limit).await.unwrap();
    assert_eq!(uplink.name, "good");
    assert_eq!(uplink.lease.address.octets()[..3], [10, 99, 0]);
    assert_eq!(std::fs::read_to_string(&resolv_conf).unwrap(), "nameserver 10.99.0.1\n");
    let table = String::from_utf8(Command::new("ip").arg("route").output().unwrap().stdout).unwrap();
    assert!(table.contains("default via 10.99.0.1 dev good") && table.contains("10.99.0.1 dev good"), "{table}");

    let refused = network.elect("10.99.0.1", 1, None, limit).await.unwrap_err();
    assert!(refused.0.iter().any(|why| why.contains("good") && why.contains("refused")), "{refused:?}");
    assert!(refused.0.iter().any(|why| why.contains("dead") && why.contains("no address")), "{refused:?}");

    // The server names another gateway and name server, and the lease is checked: both are used under the same address.
    drop(dnsmasq);
    let _dnsmasq = far.run(move || dnsmasq_at(&leases, "10.99.0.3", "10.99.0.2"));
    network.check_leases();
    let change = tokio::time::timeout(limit, network.changed(&uplink)).await.unwrap();
    let Change::Renewed(lease) = change else { panic!("{change:?}") };
    let address = uplink.lease.address;
    let uplink = network.follow(uplink, &lease).await;
    assert_eq!(uplink.lease.address, address);
    assert_eq!(std::fs::read_to_string(resolv_conf).unwrap(), "nameserver 10.99.0.2\n");
    let table = String::from_utf8(Command::new("ip").arg("route").output().unwrap().stdout).unwrap();
    let defaults: Vec<&str> = table.lines().filter(|line| line.starts_with("default")).collect();
    assert!(!defaults.is_empty() && defaults.iter().all(|line| line.contains("via 10.99.0.3 dev good")), "{table}");

    // The route is lost with the carrier, and returns with it, under the same lease.
    far.run(|| ip("link set server down"));
    assert_eq!(tokio::time::timeout(limit, network.changed(&uplink)).await.unwrap(), Change::Lost);
    far.run(|| ip("link set server up"));
    let mut ports = network.ports();
    let back = |all: &Ports| all.values().any(|p| p.name == "good" && p.carrier && p.lease.is_some());
    drop(tokio::time::timeout(limit, ports.wait_for(back)).await.unwrap().unwrap());
    let again = network.elect("10.99.0.1", port, None, limit).await.unwrap();
    assert_eq!(again.lease.address, uplink.lease.address);
    network.release(&again).await;
}
