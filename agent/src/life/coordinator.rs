//! Which coordinator the agent serves: one that is named, one that the DHCP server of a port names, or one at the firmware's boot URL.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use landfall_api::Pin;
use landfall_session::{Proxy, Target, coordinator_beside};
use tokio::time::{sleep, timeout};

use crate::net::{Network, Port, Ports};
use crate::status::Board;

/// How long to wait for a first answer before the log says what is missing.
const PATIENCE: Duration = Duration::from_secs(15);
/// Then DHCP is asked again so often: a person may have mended a server meanwhile.
const ASK_AGAIN: Duration = Duration::from_secs(120);

/// How the agent knows its coordinator.
pub(crate) enum Coordinator {
    /// The kernel's command line, or that of the agent, names it.
    Named(Target),
    /// The network does.
    ByNetwork(ByNetwork),
}

/// What DHCP servers name, and where they name none the host of the firmware's boot URL. Nothing proves either, so what is
/// named has to prove itself by a key.
pub(crate) struct ByNetwork {
    network: Network,
    pins: Vec<Pin>,
    proxy: Option<Proxy>,
    /// The coordinator on the host of the firmware's boot URL.
    beside_boot_url: Option<String>,
    /// How often one was chosen: of several each has its turn.
    turn: AtomicUsize,
    kept: Kept,
}

/// The coordinator that the agent has enrolled with, and those that were named beside it; they are kept until the machine restarts. A
/// network that names others later is another site's: those would not know the workflow that this one has begun.
pub(crate) type Kept = Arc<OnceLock<Target>>;

impl Coordinator {
    /// The one to be tried now. Waits until one is known.
    pub(super) async fn next(&self, board: &Board) -> Target {
        match self {
            Self::Named(target) => target.clone(),
            Self::ByNetwork(by) => by.next(board).await,
        }
    }

    /// The agent has enrolled with this one. Answers it with those beside it, which take its place.
    pub(super) fn keep(&self, target: Target) -> Target {
        match self {
            Self::Named(_) => target,
            Self::ByNetwork(by) => by.keep(target),
        }
    }
}

impl ByNetwork {
    /// Of those that are named, one that proves itself by one of these keys, by way of this proxy. `boot_url`: the firmware's, if it has one.
    pub(crate) fn new(
        network: Network, pins: Vec<Pin>, proxy: Option<Proxy>, boot_url: Option<&str>, kept: Kept,
    ) -> Self {
        let beside_boot_url = boot_url.and_then(coordinator_beside);
        Self { network, pins, proxy, beside_boot_url, turn: AtomicUsize::new(0), kept }
    }

    async fn next(&self, board: &Board) -> Target {
        if let Some(kept) = self.kept.get() {
            return kept.clone();
        }
        let mut ports = self.network.ports();
        let mut wait = PATIENCE;
        loop {
            let (named, _) = self.named(&ports.borrow_and_update());
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            if let Some(target) = pick(named, turn) {
                if let Some(beside) = self
                    .beside_boot_url
                    .as_ref()
                    .filter(|url| Target::new(url, self.pins.clone()).is_ok_and(|it| it == target))
                {
                    tracing::info!(
                        "{beside} is tried, at the firmware's boot URL, unless a DHCP server names a coordinator (option 143)"
                    );
                    if turn > 0 {
                        self.network.check_leases();
                    }
                }
                return target.with_proxy(self.proxy.clone());
            }
            board.change(|status| status.coordinator = "waiting for a DHCP server that names it".to_owned());
            if !matches!(timeout(wait, ports.wait_for(|ports| !self.named(ports).0.is_empty())).await, Ok(Ok(_))) {
                // Without a sender the wait ends at once.
                if ports.has_changed().is_err() {
                    sleep(ASK_AGAIN).await;
                }
                let (_, invalid) = self.named(&ports.borrow());
                let why = match invalid.as_slice() {
                    [] if self.beside_boot_url.is_some() => "no port has an address by DHCP; check the DHCP server".to_owned(),
                    [] => "no DHCP server names a coordinator; the server that gives the address must name it, by option 143 \
                        of DHCP or 136 of DHCPv6 (https://HOST:7443), or the kernel command line, by landfall.coordinator"
                        .to_owned(),
                    some => format!("the coordinator that a DHCP server names is invalid: {}", some.join("; ")),
                };
                board.failed(&why);
                tracing::error!("{why}. DHCP is asked again every {} s", ASK_AGAIN.as_secs());
                self.network.check_leases();
                wait = ASK_AGAIN;
            }
        }
    }

    fn keep(&self, target: Target) -> Target {
        let beside = || {
            let ports = self.network.ports();
            let ports = ports.borrow();
            let servers = ports.values().filter(|port| port.carrier).flat_map(by_servers);
            beside(&target, servers, &self.pins)
        };
        self.kept.get_or_init(|| target.clone().beside(&beside())).clone()
    }

    fn named(&self, ports: &Ports) -> (Vec<Target>, Vec<String>) {
        let servers: Vec<&[String]> = ports.values().filter(|port| port.carrier).flat_map(by_servers).collect();
        named(&servers, self.beside_boot_url.as_ref(), &self.pins)
    }
}

/// What the servers by which ports have addresses name, and what of that is no coordinator's address. First what each names first: one
/// server must not push the others out. Where they name none at all, the one beside the firmware's boot URL.
fn named(servers: &[&[String]], beside_boot_url: Option<&String>, pins: &[Pin]) -> (Vec<Target>, Vec<String>) {
    let most = servers.iter().map(|named| named.len()).max().unwrap_or_default();
    let by_dhcp = (0..most).flat_map(|at| servers.iter().filter_map(move |named| named.get(at)));
    let by_firmware = beside_boot_url.filter(|_| most == 0 && !servers.is_empty());
    targets(by_dhcp.chain(by_firmware), pins)
}

/// Those that are named by a server that names this one too.
fn beside<'a>(target: &Target, servers: impl Iterator<Item = &'a [String]>, pins: &[Pin]) -> Vec<Target> {
    let lists = servers.map(|named| targets(named.iter(), pins).0);
    lists.filter(|named| named.iter().any(|other| other.meets(target))).flatten().collect()
}

/// What a port's servers name, of those by which it has an address.
fn by_servers(port: &Port) -> impl Iterator<Item = &[String]> {
    let v4 = port.addresses.v4.as_ref().map(|_| &port.coordinators[..]);
    let v6 = port.addresses.v6.as_ref().map(|_| &port.coordinators_v6[..]);
    v4.into_iter().chain(v6)
}

fn pick(mut named: Vec<Target>, turn: usize) -> Option<Target> {
    let at = turn.checked_rem(named.len())?;
    Some(named.swap_remove(at))
}

/// Each coordinator once, and what is wrong with the other addresses.
fn targets<'a>(urls: impl Iterator<Item = &'a String>, pins: &[Pin]) -> (Vec<Target>, Vec<String>) {
    let (mut found, mut invalid) = (Vec::new(), Vec::new());
    for url in urls {
        match Target::new(url, pins.to_vec()) {
            Ok(target) if found.contains(&target) => {}
            Ok(target) => found.push(target),
            Err(e) => invalid.push(e.to_string()),
        }
    }
    (found, invalid)
}

#[cfg(test)]
mod tests {
    use landfall_session::pin_of_spki;

    use super::*;
    use crate::net::{Addresses, Setup};

    #[test]
    fn a_server_counts_while_the_port_has_its_address() {
        let setup = |address: &str| Setup {
            address: address.parse().unwrap(),
            routes: Vec::new(),
            nameservers: Vec::new(),
            mtu: None,
        };
        let (v4, v6) = (Some(setup("10.77.0.5/24")), Some(setup("fd77::5/64")));
        for (addresses, named) in [
            (Addresses { v4: v4.clone(), v6: v6.clone() }, &["https://a", "https://b"][..]),
            (Addresses { v4, v6: None }, &["https://a"]),
            (Addresses { v4: None, v6 }, &["https://b"]),
            (Addresses::default(), &[]),
        ] {
            let mac = landfall_api::MacAddr([2, 0, 0, 0, 0, 1]);
            let port = Port {
                name: "eth0".into(),
                mac,
                permanent_mac: mac,
                usb: false,
                carrier: true,
                addresses,
                coordinators: vec!["https://a".into()],
                coordinators_v6: vec!["https://b".into()],
                unanswered: 0,
                trouble: None,
            };
            assert_eq!(by_servers(&port).flatten().collect::<Vec<_>>(), named);
        }
    }

    #[test]
    fn each_named_coordinator_has_its_turn() {
        let pins = [pin_of_spki(b"ca")];
        let turns = |urls: &[&str]| {
            let urls: Vec<_> = urls.iter().map(|&url| url.to_owned()).collect();
            let turn = |turn| pick(targets(urls.iter(), &pins).0, turn).map(|target| target.to_string());
            (0..3).filter_map(turn).collect::<Vec<_>>()
        };
        let named = turns(&["https://a", "http://no", "https://b", "https://a"]);
        assert_eq!(named, ["https://a:7443", "https://b:7443", "https://a:7443"]);
        assert_eq!(turns(&["http://no"]), [""; 0]);
        let (_, invalid) = targets(["10.77.0.1:7443".to_owned()].iter(), &pins);
        assert!(invalid[0].contains("write https://host:port"), "{invalid:?}");
    }

    #[test]
    fn those_beside_the_coordinator_are_of_its_own_servers() {
        let pins = vec![pin_of_spki(b"ca")];
        let lists = [["https://a", "https://b"], ["https://c", "https://a"], ["https://d", "https://e"]];
        let lists = lists.map(|list| list.map(str::to_owned));
        let target = Target::new("https://a", pins.clone()).unwrap();
        let kept = target.clone().beside(&beside(&target, lists.iter().map(|list| &list[..]), &pins));
        assert_eq!(kept, Target::of(&["https://a", "https://b", "https://c"], pins).unwrap());
    }

    #[test]
    fn the_boot_url_counts_where_dhcp_names_none() {
        let pins = [pin_of_spki(b"ca")];
        let (url, by_dhcp) = ("https://b".to_owned(), ["https://a".to_owned()]);
        let found = |servers: &[&[String]]| {
            let (found, _) = named(servers, Some(&url), &pins);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(found(&[]), [""; 0], "no port has an address yet");
        assert_eq!(found(&[&[]]), ["https://b:7443"]);
        assert_eq!(found(&[&[], &by_dhcp]), ["https://a:7443"]);
        assert!(found(&[&["http://no".to_owned()]]).is_empty(), "what is invalid is reported, not replaced");
    }
}
