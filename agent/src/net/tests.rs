//! The network for real: two namespaces, a veth pair between them, dnsmasq at the other end.

use std::io::Read;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use landfall_api::MachineFacts;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{LinkAddr, MsgFlags, recvfrom};

use super::setup::Setup;
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

/// Runs a test in a network namespace of its own, where root and the programs are.
fn in_namespace<F: Future<Output = ()> + 'static>(test: fn() -> F) {
    if !nix::unistd::geteuid().is_root() || !have("dnsmasq") || !have("ip") {
        eprintln!("SKIPPED: needs root, ip and dnsmasq");
        return;
    }
    // A thread of its own: the namespace is the thread's, and ends with it. A current-thread runtime, because worker
    // threads of another would be born in whichever namespace their parent is in.
    let near = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test());
    });
    near.join().unwrap();
}

#[test]
fn the_port_that_reaches_the_coordinator_is_chosen() {
    in_namespace(in_own_network);
}

#[test]
fn an_address_of_the_command_line_needs_no_server() {
    in_namespace(fixed_addresses);
}

#[test]
fn a_late_or_renamed_port_is_tried_beside_the_others() {
    in_namespace(late_port);
}

#[test]
fn a_router_and_dhcpv6_give_an_ipv6_address() {
    in_namespace(ipv6);
}

#[test]
fn a_router_that_falls_silent_is_left() {
    in_namespace(two_routers);
}

#[test]
fn a_switch_names_itself_on_its_port() {
    in_namespace(neighbour);
}

async fn neighbour() {
    let far = FarEnd::start();
    ip(&format!("link add port type veth peer name switch netns {}", far.thread));
    far.run(|| ip("link set switch up"));
    let directory = tempfile::tempdir().unwrap();
    let network = Network::start(Vec::new(), true, directory.path().join("resolv.conf")).unwrap();
    let limit = Duration::from_secs(60);
    let mut ports = network.ports();
    let with_carrier = |ports: &Ports| ports.values().any(|port| port.name == "port" && port.carrier);
    tokio::time::timeout(limit, ports.wait_for(with_carrier)).await.unwrap().unwrap();
    let port = serde_json::json!({ "name": "port", "mac": "02:00:00:00:00:01", "carrier": true });
    let nics = vec![serde_json::from_value(port).unwrap()];
    let mut facts = MachineFacts { nics, ..MachineFacts::default() };
    let announce = || {
        let ports = nix::ifaddrs::getifaddrs().unwrap().filter(|port| port.interface_name == "switch");
        let at = ports.filter_map(|port| port.address?.as_link_addr().copied()).next().unwrap();
        let head = [0x01, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, 9, 0x88, 0xcc];
        let payload = b"\x02\x04\x07sw1\x04\x03\x05p7\x06\x02\x00\x78\x00\x00";
        let socket = socket2::Socket::new(socket2::Domain::PACKET, socket2::Type::RAW, None).unwrap();
        let frame = [&head[..], payload].concat();
        nix::sys::socket::sendto(socket.as_raw_fd(), &frame, &at, MsgFlags::empty()).unwrap();
    };
    // As a switch does, again and again: the kernel drops what is sent in the first moment after a carrier, before its queues are active.
    let neighbours = network.neighbours();
    let heard = async {
        while tokio::time::timeout(Duration::from_millis(100), neighbours.changed(&facts)).await.is_err() {
            far.run(announce);
        }
    };
    tokio::time::timeout(limit, heard).await.unwrap();
    network.neighbours().fill(&mut facts);
    let heard = facts.nics[0].neighbour.as_ref().unwrap();
    assert_eq!((heard.chassis.as_str(), heard.port.as_str()), ("sw1", "p7"));
    let unchanged = tokio::time::timeout(Duration::from_millis(1), network.neighbours().changed(&facts)).await;
    assert!(unchanged.is_err(), "what is known is no news");
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

    let network = Network::start(Vec::new(), true, resolv_conf.clone()).unwrap();
    let limit = Duration::from_secs(120);
    let uplink = network.elect(&[("10.99.0.1", port)], None, limit).await.unwrap();
    assert_eq!(uplink.name, "good");
    let address = |uplink: &Uplink| uplink.addresses.v4.as_ref().map(|setup| setup.address.to_string());
    assert!(address(&uplink).unwrap().starts_with("10.99.0."));
    assert_eq!(std::fs::read_to_string(&resolv_conf).unwrap(), "nameserver 10.99.0.1\n");
    let table = String::from_utf8(Command::new("ip").arg("route").output().unwrap().stdout).unwrap();
    assert!(table.contains("default via 10.99.0.1 dev good") && table.contains("10.99.0.1 dev good"), "{table}");

    let refused = network.elect(&[("10.99.0.1", 1)], None, limit).await.unwrap_err();
    assert!(refused.0.iter().any(|why| why.contains("good") && why.contains("refused")), "{refused:?}");
    assert!(refused.0.iter().any(|why| why.contains("dead") && why.contains("no address")), "{refused:?}");

    // While `good` has an address, `dead` still asks from none.
    let questions = far.run(|| {
        let ip = Some(socket2::Protocol::from(i32::from(0x0800_u16.to_be())));
        let socket = socket2::Socket::new(socket2::Domain::PACKET, socket2::Type::DGRAM, ip).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket
    });

    // The server names another gateway and name server, and the lease is checked: both are used under the same address.
    drop(dnsmasq);
    let _dnsmasq = far.run(move || dnsmasq_at(&leases, "10.99.0.3", "10.99.0.2"));
    network.check_leases();
    let change = tokio::time::timeout(limit, network.changed(&uplink)).await.unwrap();
    let Change::Renewed(addresses) = change else { panic!("{change:?}") };
    let asked = far.run(move || {
        let mut packet = [0; 2048];
        loop {
            let (_, from) = recvfrom::<LinkAddr>(questions.as_raw_fd(), &mut packet).unwrap();
            let index = u32::try_from(from.unwrap().ifindex()).unwrap();
            // The addresses and the ports.
            if nix::net::if_::if_indextoname(index).unwrap().to_bytes() == b"unused" && packet[20..24] == [0, 68, 0, 67]
            {
                return packet[12..20].to_vec();
            }
        }
    });
    assert_eq!(asked, [0, 0, 0, 0, 255, 255, 255, 255]);
    let before = address(&uplink);
    let uplink = network.follow(uplink, addresses).await;
    assert_eq!(address(&uplink), before);
    assert_eq!(std::fs::read_to_string(resolv_conf).unwrap(), "nameserver 10.99.0.2\n");
    let table = String::from_utf8(Command::new("ip").arg("route").output().unwrap().stdout).unwrap();
    let defaults: Vec<&str> = table.lines().filter(|line| line.starts_with("default")).collect();
    assert!(!defaults.is_empty() && defaults.iter().all(|line| line.contains("via 10.99.0.3 dev good")), "{table}");

    // The route is lost with the carrier, and returns with it, under the same lease.
    far.run(|| ip("link set server down"));
    assert_eq!(tokio::time::timeout(limit, network.changed(&uplink)).await.unwrap(), Change::Lost);
    far.run(|| ip("link set server up"));
    let mut ports = network.ports();
    let back = |all: &Ports| all.values().any(|p| p.name == "good" && p.carrier && p.addresses.v4.is_some());
    drop(tokio::time::timeout(limit, ports.wait_for(back)).await.unwrap().unwrap());
    let again = network.elect(&[("10.99.0.1", port)], None, limit).await.unwrap();
    assert_eq!(address(&again), before);
    network.release(&again).await;
}

async fn fixed_addresses() {
    let far = FarEnd::start();
    ip("link set lo up");
    ip(&format!("link add good type veth peer name server netns {}", far.thread));
    let directory = tempfile::tempdir().unwrap();
    let resolv_conf = directory.path().join("resolv.conf");
    // Both coordinators are behind a gateway: one by IPv4, one by IPv6.
    let (v4, v6) = far.run(|| {
        for line in [
            "addr add 10.99.0.1/24 dev server", "addr add 2001:db8:99::1/64 dev server nodad", "link set server up",
            "link set lo up", "addr add 10.98.0.1/32 dev lo", "addr add 2001:db8:98::1/128 dev lo nodad",
        ] {
            ip(line);
        }
        let bind = |address: &str| TcpListener::bind(address).unwrap();
        (bind("10.98.0.1:0"), bind("[2001:db8:98::1]:0"))
    });
    let line = "good,mtu=1400,address=10.99.0.7/24,address=2001:db8:99::7/64,gateway=10.99.0.1,gateway=2001:db8:99::1,\
                dns=10.99.0.53";
    let network = Network::start(vec![line.parse().unwrap()], true, resolv_conf.clone()).unwrap();
    let limit = Duration::from_secs(60);
    let mut ports = network.ports();
    let both = |all: &Ports| all.values().any(|port| port.addresses.iter().count() == 2);
    drop(tokio::time::timeout(limit, ports.wait_for(both)).await.unwrap().unwrap());
    for (host, listener) in [("10.98.0.1", &v4), ("2001:db8:98::1", &v6)] {
        let port = listener.local_addr().unwrap().port();
        let uplink = elect(&network, host, port, limit).await;
        assert_eq!(uplink.name, "good");
        let held: Vec<String> = uplink.addresses.iter().map(|setup| setup.address.to_string()).collect();
        assert_eq!(held, ["10.99.0.7/24", "2001:db8:99::7/64"]);
        network.release(&uplink).await;
    }
    assert_eq!(std::fs::read_to_string(&resolv_conf).unwrap(), "nameserver 10.99.0.53\n");
    let links = network.netlink.links().await.unwrap();
    assert_eq!(links.iter().find(|link| link.name == "good").unwrap().mtu, 1400);
}

async fn late_port() {
    let far = FarEnd::start();
    for (near, other) in [("nowhere", "unused"), ("eth7", "server")] {
        ip(&format!("link add {near} type veth peer name {other} netns {}", far.thread));
    }
    let listener = far.run(|| {
        for line in ["addr add 10.99.0.1/24 dev server", "link set unused up", "link set lo up"] {
            ip(line);
        }
        TcpListener::bind("10.99.0.1:0").unwrap()
    });
    // The one has a carrier at once, and a gateway that answers nothing.
    let interfaces = ["nowhere,address=10.97.0.7/24,gateway=10.97.0.1", "good,address=10.99.0.7/24"];
    let directory = tempfile::tempdir().unwrap();
    let interfaces = interfaces.iter().map(|line| line.parse().unwrap()).collect();
    let network = Network::start(interfaces, true, directory.path().join("resolv.conf")).unwrap();
    let limit = Duration::from_secs(60);
    let mut ports = network.ports();
    let first = |all: &Ports| all.values().any(|port| port.name == "nowhere" && port.addresses.v4.is_some());
    drop(tokio::time::timeout(limit, ports.wait_for(first)).await.unwrap().unwrap());
    ip("neigh replace 10.97.0.1 lladdr 02:00:00:00:00:99 dev nowhere nud permanent");
    let hops = [("10.99.0.1", listener.local_addr().unwrap().port())];
    let mut electing = Box::pin(network.elect(&hops, None, limit));
    assert!(futures::poll!(&mut electing).is_pending(), "it tries the first port");
    drop(
        tokio::time::timeout(limit, ports.wait_for(|all| all.values().any(|port| port.name == "eth7"))).await.unwrap(),
    );
    ip("link set eth7 name good");
    far.run(|| ip("link set server up"));
    assert_eq!(electing.await.unwrap().name, "good");
}

/// A new IPv6 address is tried a second long by the kernel before it may be used.
async fn elect(network: &Network, host: &str, port: u16, limit: Duration) -> Uplink {
    let tried = async {
        loop {
            match network.elect(&[(host, port)], None, limit).await {
                Ok(uplink) => return uplink,
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    };
    tokio::time::timeout(limit, tried).await.unwrap()
}

async fn ipv6() {
    let limit = Duration::from_secs(60);
    // SLAAC with name servers of the router; SLAAC with name servers of DHCPv6; an address of DHCPv6.
    for (range, prefix_length) in [
        ("2001:db8:99::,ra-only", 64),
        ("2001:db8:99::,ra-stateless", 64),
        ("2001:db8:99::100,2001:db8:99::1ff,64,120", 128),
    ] {
        let far = FarEnd::start();
        ip(&format!("link add good type veth peer name server netns {}", far.thread));
        let directory = tempfile::tempdir().unwrap();
        let (resolv_conf, leases) = (directory.path().join("resolv.conf"), directory.path().join("leases"));
        let (_dnsmasq, listener) = far.run(move || {
            for line in ["addr add 2001:db8:99::1/64 dev server nodad", "link set server up", "link set lo up"] {
                ip(line);
            }
            let dnsmasq = Command::new("dnsmasq")
                .args(["--no-daemon", "--conf-file=/dev/null", "--port=0", "--user=root", "--interface=server"])
                .args(["--bind-interfaces", "--enable-ra", "--pid-file=", &format!("--dhcp-range={range}")])
                .arg("--dhcp-option=option6:dns-server,[2001:db8:99::53]")
                .arg(format!("--dhcp-leasefile={}", leases.display()))
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            (Process(dnsmasq), TcpListener::bind("[2001:db8:99::1]:0").unwrap())
        });
        let network = Network::start(Vec::new(), true, resolv_conf.clone()).unwrap();
        let mut uplink = elect(&network, "2001:db8:99::1", listener.local_addr().unwrap().port(), limit).await;
        // What DHCPv6 tells may come after the address.
        while uplink.addresses.nameservers().is_empty() {
            let Ok(Change::Renewed(more)) = tokio::time::timeout(limit, network.changed(&uplink)).await else {
                panic!("{range}: no name server");
            };
            uplink = network.follow(uplink, more).await;
        }
        let v6 = uplink.addresses.v6.clone().unwrap();
        assert!(v6.address.to_string().starts_with("2001:db8:99:"), "{range}: {v6:?}");
        assert_eq!(v6.address.prefix_len(), prefix_length, "{range}");
        assert!(v6.gateway().is_some_and(|gateway| gateway.to_string().starts_with("fe80::")), "{range}: {v6:?}");
        assert_eq!(std::fs::read_to_string(&resolv_conf).unwrap(), "nameserver 2001:db8:99::53\n", "{range}");
        ip("link del good");
        let gone = tokio::time::timeout(limit, network.changed(&uplink)).await.unwrap();
        assert_eq!(gone, Change::Lost, "{range}");
    }
}

/// Two routers on one link, which say what the test has them say.
async fn two_routers() {
    let limit = Duration::from_secs(60);
    let far = FarEnd::start();
    ip("link set lo up");
    ip(&format!("link add good type veth peer name server netns {}", far.thread));
    let bring_up = || {
        for line in [
            "link set server up", "link set lo up", "addr replace fe80::1/64 dev server nodad",
            "addr replace fe80::2/64 dev server nodad", "addr replace 2001:db8:99::1/64 dev server nodad",
            "addr replace 2001:db8:97::1/64 dev server nodad", "addr replace 2001:db8:98::1/128 dev lo nodad",
        ] {
            ip(line);
        }
    };
    let listener = far.run(move || {
        // The kernel leaves a router whose answers do not say that it is one (RFC 4861, 7.2.5).
        std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
        bring_up();
        TcpListener::bind("[2001:db8:98::1]:0").unwrap()
    });
    let directory = tempfile::tempdir().unwrap();
    let network = Network::start(Vec::new(), true, directory.path().join("resolv.conf")).unwrap();
    // The kernel makes an address once, and drops what comes before its port is ready.
    let address_in = async |prefix: &str, router| {
        let mut ports = network.ports();
        let has_it = |all: &Ports| {
            let found = all.values().filter_map(|port| port.addresses.v6.as_ref());
            found.into_iter().any(|v6| v6.address.to_string().starts_with(prefix))
        };
        let prefix = format!("{prefix}:");
        let waits = async {
            while tokio::time::timeout(Duration::from_millis(200), ports.wait_for(has_it)).await.is_err() {
                let prefix = prefix.clone();
                far.run(move || advertise(router, 1800, &prefix));
            }
        };
        tokio::time::timeout(limit, waits).await.unwrap();
    };
    address_in("2001:db8:99", 1).await;
    let uplink = elect(&network, "2001:db8:98::1", listener.local_addr().unwrap().port(), limit).await;
    let gateway = |uplink: &Uplink| uplink.addresses.v6.as_ref().and_then(Setup::gateway).map(|ip| ip.to_string());
    assert_eq!(gateway(&uplink).as_deref(), Some("fe80::1"));
    let follow = async |uplink| {
        let changed = tokio::time::timeout(limit, network.changed(&uplink)).await.unwrap();
        let Change::Renewed(addresses) = changed else { panic!("{changed:?}") };
        network.follow(uplink, addresses).await
    };

    // Once the coordinator was not reached all routers are asked, and the one that answers is followed.
    let questions = far.run(|| {
        let socket = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::RAW, ICMPV6).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket.join_multicast_v6(&"ff02::2".parse().unwrap(), index_of_server()).unwrap();
        socket
    });
    network.check_leases();
    let answer = move || {
        // Only the type is looked at (RFC 4861, 4.1); the rest of each message is dropped.
        let mut kind = [0];
        while kind != [133] {
            (&questions).read_exact(&mut kind).unwrap();
        }
        advertise(2, 1800, "2001:db8:99:");
    };
    far.work.send(Box::new(answer)).unwrap();
    let uplink = follow(uplink).await;
    assert_eq!(gateway(&uplink).as_deref(), Some("fe80::2"));
    let table = String::from_utf8(Command::new("ip").args(["-6", "route"]).output().unwrap().stdout).unwrap();
    let metrics = ["default via fe80::2 dev good proto dhcp metric 50", "2001:db8:98::1 via fe80::2 dev good"];
    assert!(
        metrics.iter().all(|line| table.contains(line)) && !table.contains("fe80::1 dev good proto dhcp"),
        "{table}"
    );

    // Its lifetime ends without a word.
    far.run(|| advertise(2, 1, "2001:db8:99:"));
    let uplink = follow(uplink).await;
    assert_eq!(gateway(&uplink).as_deref(), Some("fe80::1"));

    // Behind the same port there is another network, in which nothing answers the old address: the kernel may choose no such one.
    far.run(|| ip("link set server down"));
    assert_eq!(tokio::time::timeout(limit, network.changed(&uplink)).await.unwrap(), Change::Lost);
    far.run(bring_up);
    address_in("2001:db8:97", 2).await;
    let held = String::from_utf8(Command::new("ip").args(["-6", "addr"]).output().unwrap().stdout).unwrap();
    assert!(!held.contains("2001:db8:99:"), "{held}");
}

const ICMPV6: Option<socket2::Protocol> = Some(socket2::Protocol::ICMPV6);

fn index_of_server() -> u32 {
    nix::net::if_::if_nametoindex("server").unwrap()
}

/// Says as the router `fe80::N`, on the port `server`, that it is a default router for so many seconds, and what the link's prefix is.
fn advertise(router: u16, lifetime: u16, prefix: &str) {
    let index = index_of_server();
    let at = |ip: &str| socket2::SockAddr::from(std::net::SocketAddrV6::new(ip.parse().unwrap(), 0, 0, index));
    let socket = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::RAW, ICMPV6).unwrap();
    socket.bind(&at(&format!("fe80::{router}"))).unwrap();
    socket.set_multicast_hops_v6(255).unwrap();
    let prefix: std::net::Ipv6Addr = format!("{prefix}:").parse().unwrap();
    let [high, low] = lifetime.to_be_bytes();
    let head = [134, 0, 0, 0, 64, 0, high, low, 0, 0, 0, 0, 0, 0, 0, 0];
    // Valid and preferred for an hour, on the link and for addresses (RFC 4861, 4.6.2).
    let option = [3, 4, 64, 0xc0, 0, 0, 14, 16, 0, 0, 14, 16, 0, 0, 0, 0];
    socket.send_to(&[&head[..], &option, &prefix.octets()].concat(), &at("ff02::1")).unwrap();
}
