//! The DHCP server behind a relay, which is dnsmasq: addresses of the relayed subnet, and reserved ones.

use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::besieged::{MAC, Site};
use super::cable::{Cable, ask, client_in, ip};

const BMC: &str = "52:54:00:00:00:f1";

/// The relay with the namespace behind it; both end with it.
struct Relay {
    dnsmasq: Child,
    behind: String,
}

impl Relay {
    /// A second cable at the far end of the first: `10.79.0.1` the relay's.
    fn new(cable: &Cable) -> Self {
        let [near, far] = &cable.names;
        let behind = format!("{far}-r");
        ip(&["netns", "add", &behind]);
        ip(&["-n", far, "link", "add", "e1", "type", "veth", "peer", "name", "e0", "netns", &behind]);
        ip(&["-n", far, "addr", "add", "10.79.0.1/24", "dev", "e1"]);
        ip(&["-n", far, "link", "set", "e1", "up"]);
        // Without an address the kernel would not take in what the relay sends to the client's.
        ip(&["-n", &behind, "addr", "add", "10.79.0.250/24", "dev", "e0"]);
        ip(&["-n", &behind, "link", "set", "e0", "up"]);
        ip(&["-n", near, "route", "add", "10.79.0.0/24", "via", "10.78.0.2"]);
        let dnsmasq = Command::new("ip")
            .args([
                "netns", "exec", far, "dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=0", "--interface=e1",
            ])
            .arg("--dhcp-relay=10.79.0.1,10.78.0.1")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { dnsmasq, behind }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.dnsmasq.kill().unwrap();
        self.dnsmasq.wait().unwrap();
        ip(&["netns", "del", &self.behind]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relayed_subnet_and_a_bmc_get_their_addresses() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: making network namespaces needs root");
        return;
    }
    let cable = Cable::new("relay");
    let relay = Relay::new(&cable);
    let subnet = "[[dhcp.subnets]]\nrange = \"10.79.0.100-10.79.0.199\"\nrouter = \"10.79.0.1\"";
    let range = "range = \"10.78.0.100-10.78.0.199\"";
    let more = format!("[dhcp]\ninterface = \"e0\"\nmode = \"full\"\n{range}\n{subnet}\n");
    let site = Site::new("10.78.0.1", [7480, 7443, 69], &more);
    let _coordinator = site.start(&["ip", "netns", "exec", &cable.names[0]]);
    let reserved = Ipv4Addr::new(10, 79, 0, 30);
    let spec = json!({"identity": {"macs": [MAC]}, "reservations": [{"mac": BMC, "address": reserved}]});
    site.apply("Machine", "m1", spec).await;
    let (behind, link) = (client_in(&relay.behind, 68), cable.client(68));
    let (offered, _) = ask(&behind, MAC, 1, None);
    assert_eq!(offered.octets()[..3], [10, 79, 0], "{offered}");
    assert!((100..200).contains(&offered.octets()[3]), "{offered}");
    assert_eq!(ask(&behind, MAC, 2, Some(offered)).0, offered);
    assert_eq!(ask(&behind, BMC, 3, None).0, reserved);
    let (own, _) = ask(&link, BMC, 4, None);
    assert_eq!(own.octets()[..3], [10, 78, 0], "on another subnet it gets an address of that one");
    assert_eq!(site.api("GET", "/sightings", &json!({})).await["items"], json!([]));
}
