//! Hosts in network namespaces of their own: two coordinators, their database, and the machines. What a machine needs from its first DHCP
//! packet to its phone-home it gets from either coordinator, while the other one is cut off or dead.

use std::fs::{DirBuilder, File};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::DirBuilderExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use landfall_api::message::{ActionKind, ActionRef, ActionResult, CloudInitResult, EventBody, PhoneHomeReport};
use landfall_postgres::Server;
use landfall_session::{Instruction, SessionHandle, https_client, phone_home};
use nix::sched::{CloneFlags, setns};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::besieged::{Coordinator, LIMIT, Site, request};
use super::cable::{ask_of, client_in, ip};
use super::flood::fetch;
use super::several::{LEADS, LED};
use super::site::agent::{done_receipt, session, written};

const SWITCH: usize = 0;
const FIRST: usize = 1;
const SECOND: usize = 2;
const DATABASE: usize = 3;
const MACHINES: [usize; 2] = [4, 5];

/// The machines' network, `10.78.0.0/24`.
const BOOT: usize = 0;
/// The database's network, `10.78.1.0/24`.
const DATA: usize = 1;

/// Two machines that would get the last of four addresses from a server that knows neither's lease, by their hashes.
const MACS: [&str; 2] = ["52:54:00:00:00:02", "52:54:00:00:00:03"];

/// Namespaces, each with a cable to a switch's bridge of each of its networks.
struct Hosts {
    names: [String; 6],
}

impl Hosts {
    fn new() -> Self {
        let hosts = Self { names: std::array::from_fn(|n| format!("lf-hosts-{}-{n}", std::process::id())) };
        for name in &hosts.names {
            ip(&["netns", "add", name]);
            ip(&["-n", name, "link", "set", "lo", "up"]);
        }
        for network in [BOOT, DATA] {
            ip(&["-n", &hosts.names[SWITCH], "link", "add", &format!("br{network}"), "type", "bridge"]);
            ip(&["-n", &hosts.names[SWITCH], "link", "set", &format!("br{network}"), "up"]);
        }
        for (host, network) in [
            (FIRST, BOOT),
            (SECOND, BOOT),
            (MACHINES[0], BOOT),
            (MACHINES[1], BOOT),
            (FIRST, DATA),
            (SECOND, DATA),
            (DATABASE, DATA),
        ] {
            let [switch, name] = [SWITCH, host].map(|n| hosts.names[n].as_str());
            let (port, own) = (port(host, network), format!("e{network}"));
            ip(&["-n", switch, "link", "add", &port, "type", "veth", "peer", "name", &own, "netns", name]);
            ip(&["-n", switch, "link", "set", &port, "master", &format!("br{network}"), "up"]);
            let machine = MACHINES.iter().position(|machine| *machine == host);
            if let Some(machine) = machine {
                ip(&["-n", name, "link", "set", &own, "address", MACS[machine]]);
            }
            // A machine gets its address from a coordinator.
            let subnet = if machine.is_some() { "169.254.0" } else { ["10.78.0", "10.78.1"][network] };
            ip(&["-n", name, "addr", "add", &format!("{subnet}.{host}/24"), "dev", &own]);
            ip(&["-n", name, "link", "set", &own, "up"]);
        }
        hosts
    }

    /// Does this on a host: sockets and processes that it makes are there.
    fn on<T: Send>(&self, host: usize, work: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/run/netns/{}", self.names[host])).unwrap();
        let work = || {
            setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        };
        // A thread of its own: where it is ends with it.
        std::thread::scope(|scope| scope.spawn(work).join().unwrap())
    }

    /// Nothing passes the switch to or from a host, and neither end sees that its cable leads nowhere.
    fn cut(&self, host: usize, network: usize) {
        ip(&["-n", &self.names[SWITCH], "link", "set", &port(host, network), "nomaster"]);
    }

    fn mend(&self, host: usize, network: usize) {
        let bridge = format!("br{network}");
        ip(&["-n", &self.names[SWITCH], "link", "set", &port(host, network), "master", &bridge]);
    }
}

fn port(host: usize, network: usize) -> String {
    format!("p{host}-{network}")
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            // Never made, if the test failed that early.
            let _status = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// Both coordinators' sites: what one host has the other one has, but for its address.
fn sites() -> [Site; 2] {
    let others = ["https://10.78.0.2:7443", "https://10.78.0.1:7443"];
    let dhcp = "[dhcp]\ninterface = \"e0\"\nmode = \"full\"\nrange = \"10.78.0.1-10.78.0.4\"\n";
    let store = "[store]\nurl = \"postgresql://landfall@10.78.1.3/test0?sslmode=disable\"\n";
    let site = |n: usize| {
        let site = Site::new(["10.78.0.1", "10.78.0.2"][n], [7480, 7443, 69], &format!("{dhcp}{store}"));
        let path = site.dir.path().join("c.toml");
        let config = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, format!("others = [\"{}\"]\n{config}", others[n])).unwrap();
        site
    };
    [site(0), site(1)]
}

/// Waits until a coordinator has logged this so many times.
async fn until(coordinator: &Coordinator, said: &str, times: usize) {
    let begun = Instant::now();
    while coordinator.log().matches(said).count() < times {
        assert!(begun.elapsed() < LIMIT, "not {times} times {said:?}:\n{}", coordinator.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A machine, which is a namespace, and threads in it.
struct Machine<'a> {
    name: &'static str,
    mac: &'static str,
    namespace: &'a str,
    runtime: &'a Runtime,
}

impl Machine<'_> {
    /// Does this in the machine.
    async fn does<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        self.runtime.spawn(work).await.unwrap()
    }

    /// Its firmware: an address from this coordinator, and from it its loader and its boot script too.
    async fn boots(&self, site: &Site, xid: u32) -> (Ipv4Addr, String) {
        let (namespace, mac) = (self.namespace.to_owned(), self.mac);
        let server: Ipv4Addr = site.address.parse().unwrap();
        let dhcp = client_in(&namespace, 68);
        let asks = move || {
            let offered = ask_of(&dhcp, mac, xid, None, server).0;
            ask_of(&dhcp, mac, xid + 1, Some(offered), server).0
        };
        let address = tokio::task::spawn_blocking(asks).await.unwrap();
        ip(&["-n", &namespace, "addr", "replace", &format!("{address}/24"), "dev", "e0"]);
        let (tftp, http) = ((server, site.tftp).into(), (server, site.http));
        let loads = async move {
            tokio::task::block_in_place(|| loads_by_tftp(tftp));
            let stream = TcpStream::connect(http).await.unwrap();
            let (status, script) = request(stream, "GET", &format!("/boot/ipxe?mac={mac}"), "").await;
            assert_eq!(status, 200, "{script}");
            script
        };
        (address, self.does(loads).await)
    }

    /// Its agent, which comes to this coordinator first.
    async fn installs(&self, site: &Site, script: &str) -> Installs {
        // The last coordinator of the command line is the one that is dialled first.
        let script = format!("{script} landfall.coordinator=https://{}:{}", site.address, site.tls);
        let (name, mac) = (self.name, self.mac);
        self.does(async move { Installs::begin(&script, name, mac).await }).await
    }
}

/// The loader, which is asked for again where a packet is lost.
fn loads_by_tftp(server: SocketAddr) {
    let begun = Instant::now();
    loop {
        match fetch(&UdpSocket::bind("0.0.0.0:0").unwrap(), server) {
            Some(length) => return assert_eq!(length, 1 << 20, "the loader of {server}"),
            None => assert!(begun.elapsed() < LIMIT, "no loader from {server}"),
        }
    }
}

/// A machine's agent in mid-install.
struct Installs {
    handle: SessionHandle,
    instructions: mpsc::Receiver<Instruction>,
    run: landfall_api::message::Assignment,
}

impl Installs {
    async fn begin(script: &str, name: &str, mac: &str) -> Self {
        let (handle, mut instructions, _) = session(script, name, mac).await;
        let first = timeout(LIMIT, instructions.recv()).await.unwrap().unwrap();
        let Instruction::Assign { assignment, .. } = first else { panic!("an assignment was expected, not {first:?}") };
        let installs = Self { handle, instructions, run: *assignment };
        installs.report(0, EventBody::Started).await;
        installs
    }

    /// Reports of an action's first attempt, until it is acknowledged.
    async fn report(&self, index: u32, body: EventBody) {
        let action = ActionRef { workflow_uid: self.run.workflow_uid, action_index: index, attempt: 1 };
        self.handle.report(action, body).await.unwrap();
        self.handle.flush(LIMIT).await.unwrap();
    }

    async fn writes(&self, disk: &str) {
        let receipt = done_receipt(&self.run, disk);
        self.report(0, EventBody::ReceiptWritten { receipt: receipt.clone() }).await;
        self.report(0, EventBody::Finished { result: written(receipt) }).await;
    }

    /// The rest of the run, and the installed system's first report: to the first of its addresses that answers. Which one did.
    async fn ends(mut self) -> String {
        self.report(1, EventBody::Started).await;
        let seeded = ActionResult::CloudInit(CloudInitResult { root_device: "vda1".into() });
        self.report(1, EventBody::Finished { result: seeded }).await;
        self.report(2, EventBody::Started).await;
        self.report(2, EventBody::Finished { result: ActionResult::Reboot }).await;
        while let Ok(instruction) = self.instructions.try_recv() {
            assert!(!matches!(instruction, Instruction::Assign { .. }), "it was ordered a second time");
        }
        let ActionKind::CloudInit(seed) = &self.run.actions[1].kind else { panic!("a seed") };
        let unit = seed.phone_home.as_ref().unwrap();
        let client = https_client(&unit.ca_pins, None).unwrap();
        let (report, begun) = (PhoneHomeReport::default(), Instant::now());
        for url in [&unit.url].into_iter().chain(&unit.other_urls).cycle() {
            let reported = phone_home(&client, url, &unit.bearer_token, &report);
            if let Ok(Ok(())) = timeout(Duration::from_secs(5), reported).await {
                return url.clone();
            }
            assert!(begun.elapsed() < LIMIT, "no coordinator took the phone-home: {} {:?}", unit.url, unit.other_urls);
        }
        unreachable!("a cycle of addresses has no end")
    }
}

async fn live(hosts: &Hosts, sites: &[Site; 2], machines: &[Machine<'_>; 2]) {
    let start = |host: usize| sites[host - FIRST].start(&["ip", "netns", "exec", &hosts.names[host]]);
    let first = start(FIRST);
    until(&first, LEADS, 1).await;
    let [from, to] = [0, 1].map(|n: usize| sites[n].dir.path().join("data"));
    DirBuilder::new().mode(0o700).create(&to).unwrap();
    std::fs::copy(from.join("secrets.key"), to.join("secrets.key")).unwrap();
    let second = start(SECOND);
    until(&second, LED, 1).await;

    let url = format!("http://{}:{}/images/os.zst", sites[0].address, sites[0].http);
    let image = json!({"url": url, "digest": format!("sha256:{}", "0a".repeat(32))});
    let actions = json!([
        {"name": "write", "writeImage": {"image": image}}, {"name": "seed", "cloudInit": {}},
        {"name": "restart", "reboot": {}},
    ]);
    sites[0].apply("Template", "os", json!({"actions": actions})).await;
    for machine in machines {
        sites[0].apply("Machine", machine.name, json!({"identity": {"macs": [machine.mac]}})).await;
        sites[0].api("POST", &format!("/machines/{}/provision", machine.name), &json!({"template": "os"})).await;
    }
    let [m1, m2] = machines;
    let (address, script) = m1.boots(&sites[0], 1).await;
    let one = m1.installs(&sites[0], &script).await;
    until(&first, "session opened machine=m1", 1).await;

    // The first host, which leads, loses its database.
    let begun = Instant::now();
    hosts.cut(FIRST, DATA);
    one.writes("m1").await;
    println!("cut from the database: acknowledged by the other host {:?} after it", begun.elapsed());
    until(&second, "session opened machine=m1", 1).await;
    until(&second, LEADS, 1).await;
    println!("cut from the database: the other host leads {:?} after it", begun.elapsed());
    // The second machine comes first: its address is the other one all the same.
    let (other, script) = m2.boots(&sites[1], 3).await;
    // Of the four there are, both coordinators have one, and the first machine has one.
    assert_eq!([address, other], [4, 3].map(|host| Ipv4Addr::new(10, 78, 0, host)));
    let again = m1.boots(&sites[1], 5).await;
    assert_eq!(again.0, address, "the lease is the first coordinator's");
    let two = m2.installs(&sites[1], &script).await;
    until(&second, "session opened machine=m2", 1).await;
    hosts.mend(FIRST, DATA);
    until(&first, LED, 1).await;

    // The machines do not reach the second one any more, which reaches the database, and leads.
    let begun = Instant::now();
    hosts.cut(SECOND, BOOT);
    two.writes("m2").await;
    println!("cut from the machines: acknowledged by the other host {:?} after it", begun.elapsed());
    until(&first, "session opened machine=m2", 1).await;
    let by = m1.does(one.ends()).await;
    assert!(by.starts_with("https://10.78.0.1:"), "{by}");
    hosts.mend(SECOND, BOOT);

    // The first one's host dies.
    drop(first);
    let by = m2.does(two.ends()).await;
    assert!(by.starts_with("https://10.78.0.2:"), "{by}");
    for name in ["m1", "m2"] {
        let machine = sites[1].api("GET", &format!("/machines/{name}"), &Value::Null).await;
        assert_eq!(machine["status"]["phase"], "Provisioned", "{machine:#}");
    }
    drop(second);
}

#[test]
fn either_host_serves_machines_without_the_other() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: making network namespaces needs root");
        return;
    }
    let hosts = Hosts::new();
    let access = "local all all trust\nhost all all 10.78.1.0/24 trust\n".to_owned();
    let prepare = || Server::prepared(&["listen_addresses=10.78.1.3"], 5432, &[("pg_hba.conf", access)]);
    let server = hosts.on(DATABASE, prepare);
    server.create();
    let sites = sites();
    // Their threads begin in their namespaces, and stay there.
    let runtimes = MACHINES.map(|machine| hosts.on(machine, || Runtime::new().unwrap()));
    let machines = [0, 1].map(|n: usize| Machine {
        name: ["m1", "m2"][n],
        mac: MACS[n],
        namespace: &hosts.names[MACHINES[n]],
        runtime: &runtimes[n],
    });
    Runtime::new().unwrap().block_on(live(&hosts, &sites, &machines));
}
