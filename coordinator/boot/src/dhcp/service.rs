//! The sockets around the decisions: receive, look up, decide, keep, answer, log.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dhcproto::v4::MessageType;
use landfall_api::MacAddr;
use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

use super::bootfile::BootServer;
use super::full::{self, Network, Subnet, Subnets};
use super::lease_file::{LeaseFile, Saver};
use super::leases::{DECLINED_LIFE, MAX_RANGE, Pool};
#[cfg(test)]
use super::leases::{Lease, LeaseState};
use super::packet::{Client, Request};
use super::reply::Reply;
use super::rival::Rival;
use super::socket::{PXE_PORT, SERVER_PORT, Sharing, open, resolve};
use super::standing::Standings;
use super::{DhcpError, Silence, Standing, probe, proxy};
use crate::config::{AddressRange, Config, DhcpMode, SubnetConfig};
use crate::policy::{BootPolicy, Service, Unserved};
use landfall_edge::gate::Limiter;
use landfall_edge::metrics::metrics;

/// Log lines per second about packets without an answer: any host can send them.
pub(super) static LINES: Limiter = Limiter::a_second(20);

/// A packet longer than Ethernet's is cut, and then fails to parse.
pub(super) const MAX_PACKET: usize = 1500;

/// The addresses that the full server has leased, shared with code that looks up the holder of one.
#[derive(Debug, Clone)]
pub struct Leases {
    subnets: Arc<Mutex<Subnets>>,
    clock: Clock,
}

/// Seconds since 1970 as the wall's clock had them at the start, counted on by a clock that is never set: whatever sets the
/// other one ends no lease early, and none years late.
#[derive(Debug, Clone, Copy)]
struct Clock {
    started: u64,
    at: Instant,
}

impl Clock {
    #[allow(clippy::disallowed_methods, reason = "an edge: leases are dated for the next start")]
    fn start() -> Self {
        // Before 1970 every lease counts as just begun, which is harmless.
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        Self { started, at: Instant::now() }
    }

    fn now(self) -> u64 {
        self.started + self.at.elapsed().as_secs()
    }
}

/// A client waits so long for its lease to be stored, and every other one behind it. A disk that is full or slow must lock none of them
/// out: the address comes from a hash, so a lost lease is given to the same machine again.
const SAVE_LIMIT: Duration = Duration::from_millis(500);

impl Leases {
    /// Leases that hold for an hour, for tests.
    #[cfg(test)]
    pub(crate) fn of<const N: usize>(given: [(Ipv4Addr, MacAddr); N]) -> Self {
        let clock = Clock::start();
        let until = clock.now() + 3600;
        let lease = |mac| Lease { mac, state: LeaseState::Bound, until, unknown: false, reserved: false };
        let range = AddressRange { first: Ipv4Addr::new(10, 77, 0, 1), last: Ipv4Addr::new(10, 77, 0, 254) };
        let mut pool = Pool::new(range, Vec::new()).expect("254 addresses are few");
        pool.restore(given.map(|(address, mac)| (address, lease(mac))), u64::MAX);
        let network = Network {
            inside: range.first,
            netmask: Ipv4Addr::new(255, 255, 255, 0),
            router: None,
            dns: Vec::new(),
            coordinators: Vec::new(),
            lease: std::time::Duration::from_secs(3600),
        };
        Self { subnets: Arc::new(Mutex::new(Subnets::new(Subnet { network, pool }, Vec::new()))), clock }
    }

    /// The Ethernet address that holds this address now.
    pub fn holder(&self, address: Ipv4Addr) -> Option<MacAddr> {
        self.lock().holder(address, self.clock.now())
    }

    fn lock(&self) -> MutexGuard<'_, Subnets> {
        // Every change of a pool is complete in itself: a panic elsewhere leaves nothing half done.
        self.subnets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Mode {
    Proxy,
    Full { leases: Leases, saver: Saver },
}

/// A DHCP service that listens, and answers once [`DhcpService::run`] is polled.
pub struct DhcpService {
    interface: String,
    standings: Standings,
    server: BootServer,
    mode: Mode,
    main: UdpSocket,
    pxe: UdpSocket,
    rival: Rival,
}

impl DhcpService {
    /// Checks, asks for other servers (up to 3 s, full mode only) and binds ports 67 and 4011. `own`: the coordinator's address. `None`
    /// if DHCP is off. `discovery`: whether unknown machines are answered; may change while it runs.
    ///
    /// # Errors
    /// [`DhcpError`]: the service must not run.
    pub async fn start(
        config: &Config, own: Ipv4Addr, (policy, discovery): (Arc<dyn BootPolicy>, Arc<AtomicBool>),
    ) -> Result<Option<Self>, DhcpError> {
        if config.dhcp.mode == DhcpMode::Off {
            return Ok(None);
        }
        let interface = config.dhcp.served_interface()?;
        let server = BootServer::of(config, own);
        // Bound before the question, so that a second coordinator on this host fails by the port, at once.
        let main = open(&interface, SERVER_PORT, Sharing::Alone)?;
        let pxe = open(&interface, PXE_PORT, Sharing::Alone)?;
        let mode = if config.dhcp.mode == DhcpMode::Full {
            let file = policy.shared_file().map_or_else(|| LeaseFile::new(&config.data_dir), LeaseFile::shared);
            let mode = full_mode(config, own, file).await?;
            if !config.takes_over {
                let ours: Vec<_> = config.other_addresses().chain([own]).collect();
                probe::refuse_other_servers(&interface, own, &ours).await?;
            }
            mode
        } else {
            Mode::Proxy
        };
        let standings = Standings::new(policy, discovery);
        Ok(Some(Self { interface, standings, server, mode, main, pxe, rival: Rival::default() }))
    }

    /// The interface and the leases on it, in full mode.
    pub fn leases(&self) -> Option<(&str, Leases)> {
        match &self.mode {
            Mode::Proxy => None,
            Mode::Full { leases, .. } => Some((&self.interface, leases.clone())),
        }
    }

    /// Serves until cancelled.
    ///
    /// # Errors
    /// [`DhcpError::Receive`] when a socket fails for good, such as when the interface went away.
    pub async fn run(self, cancel: CancellationToken) -> Result<(), DhcpError> {
        let outcome = self.serve(&cancel).await;
        // The next one that serves begins with them.
        if let Mode::Full { saver, .. } = &self.mode {
            saver.finish(SAVE_LIMIT).await;
        }
        outcome
    }

    async fn serve(&self, cancel: &CancellationToken) -> Result<(), DhcpError> {
        let (mut main, mut pxe) = ([0; MAX_PACKET], [0; MAX_PACKET]);
        loop {
            let received = tokio::select! {
                () = cancel.cancelled() => return Ok(()),
                received = self.main.recv_from(&mut main) => received.map(|(n, from)| (&main[..n], from, SERVER_PORT)),
                received = self.pxe.recv_from(&mut pxe) => received.map(|(n, from)| (&pxe[..n], from, PXE_PORT)),
            };
            match received {
                Ok((bytes, from, port)) => self.on_packet(bytes, from, port).await,
                // An ICMP error for an earlier reply, say; the socket itself is sound.
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => {}
                Err(source) => return Err(DhcpError::Receive { interface: self.interface.clone(), source }),
            }
        }
    }

    async fn on_packet(&self, bytes: &[u8], from: SocketAddr, port: u16) {
        let request = match Request::parse(bytes) {
            Ok(request) => request,
            Err(reason) => {
                tracing::debug!(service = "dhcp", %from, port, answer = "none", %reason);
                return;
            }
        };
        let policy = self.standings.policy();
        let outcome = match self.standings.of(request.mac).await {
            Ok(standing) => self.decide(&request, standing, port).await,
            Err(reason) => Err(reason),
        };
        match outcome {
            Ok(reply) => {
                // An ordinary client boots nothing, and a netbooting one with an address may still have no boot file.
                match self.server.boot_file(request.client, request.arch, request.mac).err() {
                    Some(reason) if is_shown(&request, &reason) => policy.unserved(unserved(&request, &reason)),
                    None if reply.kind() != Some(MessageType::Nak) => policy.served(request.mac, Service::Dhcp),
                    _ => {}
                }
                self.complain_about_reservation(&request, &reply);
                self.send(&request, &reply, from, port).await;
            }
            Err(reason) => {
                if is_shown(&request, &reason) {
                    policy.unserved(unserved(&request, &reason));
                }
                metrics().dhcp_unanswered.add(1);
                if let (Mode::Full { .. }, Silence::OtherServer(server)) = (&self.mode, &reason) {
                    self.rival.chosen(*server, &self.interface);
                }
                log_silence(&request, &reason, port);
            }
        }
    }

    /// Says that a port gets another address than the one reserved for it.
    fn complain_about_reservation(&self, request: &Request, reply: &Reply) {
        let given = reply.message.yiaddr();
        if let Some(reserved) = self.standings.policy().address_for(request.mac)
            && !given.is_unspecified()
            && given != reserved
            && let Some(left_out) = LINES.step()
        {
            tracing::warn!(
                service = "dhcp", mac = %request.mac, %reserved, %given, left_out, "a port gets another address than the one reserved for it, \
                    which is in another subnet, still leased to another host, or the coordinator's own"
            );
        }
    }

    async fn decide(&self, request: &Request, standing: Standing, port: u16) -> Result<Reply, Silence> {
        let policy = self.standings.policy();
        let answers = match self.mode {
            Mode::Proxy => policy.can_serve(),
            Mode::Full { .. } => policy.gives_addresses(),
        };
        if !answers {
            return Err(Silence::NotActive);
        }
        match &self.mode {
            _ if port == PXE_PORT => proxy::answer_4011(request, standing, &self.server),
            Mode::Proxy => proxy::answer_67(request, standing, &self.server),
            Mode::Full { leases, saver } => {
                let (outcome, kept) = {
                    let mut subnets = leases.lock();
                    let before = subnets.revision();
                    let now = leases.clock.now();
                    let outcome = full::answer(request, standing, &mut subnets, policy, &self.server, now);
                    (outcome, (subnets.revision() != before).then(|| subnets.kept()))
                };
                if let Some(kept) = kept {
                    saver.save(kept, SAVE_LIMIT).await;
                    // Another one may lead since, and not know of it.
                    if !policy.gives_addresses() {
                        return Err(Silence::NotActive);
                    }
                }
                outcome
            }
        }
    }

    async fn send(&self, request: &Request, reply: &Reply, from: SocketAddr, port: u16) {
        let socket = if port == PXE_PORT { &self.pxe } else { &self.main };
        let to = resolve(reply.to, from);
        let sent = match reply.encode() {
            Ok(bytes) => socket.send_to(&bytes, to).await.map(|_| ()),
            Err(e) => Err(std::io::Error::other(e)),
        };
        let file = reply.message.fname().map(String::from_utf8_lossy).unwrap_or_default();
        if sent.is_ok() {
            metrics().dhcp_answers.of(&[("kind", reply.kind_str())]).add(1);
        }
        match sent {
            Ok(()) => tracing::info!(
                service = "dhcp", kind = request.kind_str(), mac = %request.mac, arch = request.arch,
                client = request.client.as_str(), port, answer = reply.kind_str(), ip = %reply.message.yiaddr(),
                %file, %to,
            ),
            Err(error) => tracing::warn!(
                service = "dhcp", kind = request.kind_str(), mac = %request.mac, port, %to, %error,
                "cannot send the answer"
            ),
        }
    }
}

async fn full_mode(config: &Config, own: Ipv4Addr, file: LeaseFile) -> Result<Mode, DhcpError> {
    let dhcp = &config.dhcp;
    let missing = || invalid("dhcp.range", "is missing".to_owned(), "write one such as 10.77.0.100-10.77.0.199");
    let range = dhcp.range.ok_or_else(missing)?;
    let network = |inside, netmask, router, dns: &[Ipv4Addr]| {
        let (dns, lease, coordinators) = (dns.to_vec(), dhcp.lease.get(), config.coordinator_urls());
        Network { inside, netmask, router, dns, coordinators, lease }
    };
    let resolvers = dhcp.dns_v4();
    let link = network(own, dhcp.netmask, dhcp.router, &resolvers);
    if let Some(end) = [range.first, range.last].into_iter().find(|end| !link.contains(*end)) {
        return Err(invalid(
            "dhcp.range",
            format!("{end} is not in the subnet of advertise ({own}/{})", dhcp.netmask),
            "correct dhcp.range, dhcp.netmask or advertise; subnets behind a relay stand in [[dhcp.subnets]]",
        ));
    }
    let mut all = vec![(range, link)];
    for subnet in &dhcp.subnets {
        let SubnetConfig { range, netmask, router, dns } = subnet;
        let network = network(range.first, *netmask, Some(*router), dns.as_ref().unwrap_or(&resolvers));
        if let Some(address) = [range.last, *router].into_iter().find(|address| !network.contains(*address)) {
            let what = format!("{address} is not in the subnet of {}/{netmask}", range.first);
            return Err(invalid("dhcp.subnets", what, "range and router are in one subnet: correct them, or netmask"));
        }
        let meets = |other: &Network| network.contains(other.inside) || other.contains(network.inside);
        if let Some((_, other)) = all.iter().find(|(_, other)| meets(other)) {
            let what = format!("the subnet of {}/{netmask} overlaps with that of {}", range.first, other.inside);
            return Err(invalid("dhcp.subnets", what, "each subnet has one entry, and the coordinator's own has none"));
        }
        all.push((*range, network));
    }
    // The file of leases is bounded, and written whole.
    let addresses = |range: &AddressRange| u64::from(u32::from(range.last) - u32::from(range.first)) + 1;
    let total: u64 = all.iter().map(|(range, _)| addresses(range)).sum();
    if total > u64::from(MAX_RANGE) {
        let what = format!("all ranges together have {total} addresses; at most {MAX_RANGE} are served");
        return Err(invalid("dhcp.subnets", what, "make them narrower"));
    }
    let kept = file.load().await.map_err(|source| DhcpError::Leases { file: file.to_string(), source })?;
    let clock = Clock::start();
    let filled = |(range, network): (AddressRange, Network)| {
        let coordinators = config.other_addresses().chain([own]);
        let never: Vec<Ipv4Addr> = network.ends().into_iter().chain(coordinators).collect();
        let taken = network.router.into_iter().chain(network.dns.iter().copied()).chain(never.iter().copied());
        let pool = Pool::new(range, taken.collect());
        let pool = pool.map_err(|e| invalid("dhcp.range", e.to_string(), "make it narrower"))?;
        let mut pool = pool.within(network.netmask, never);
        // A lease is kept for twice its time at most, see `Pool::bind`.
        let latest = clock.now() + 2 * network.lease.as_secs().max(DECLINED_LIFE.as_secs());
        pool.restore(kept.iter().map(|(address, lease)| (*address, *lease)), latest);
        Ok(Subnet { network, pool })
    };
    let mut subnets = all.into_iter().map(filled).collect::<Result<Vec<_>, _>>()?.into_iter();
    let own = subnets.next().ok_or_else(missing)?;
    Ok(Mode::Full {
        leases: Leases { subnets: Arc::new(Mutex::new(Subnets::new(own, subnets.collect()))), clock },
        saver: Saver::start(file),
    })
}

const fn invalid(key: &'static str, what: String, hint: &'static str) -> DhcpError {
    DhcpError::Config { key, what, hint }
}

/// Whether an operator wants to see it. On a network with ordinary clients theirs is the bulk, and none of it is about us.
fn is_shown(request: &Request, reason: &Silence) -> bool {
    request.client != Client::Ordinary && !matches!(reason, Silence::OtherServer(_) | Silence::Kind)
}

fn unserved(request: &Request, reason: &Silence) -> Unserved {
    let from = [request.giaddr, request.ciaddr].into_iter().find(|address| !address.is_unspecified());
    Unserved {
        mac: request.mac,
        service: Service::Dhcp,
        client: request.client.as_str(),
        from: from.map(IpAddr::V4),
        unknown: *reason == Silence::UnknownMachine,
        reason: reason.to_string(),
    }
}

fn log_silence(request: &Request, reason: &Silence, port: u16) {
    let (kind, mac, client) = (request.kind_str(), request.mac, request.client);
    if !is_shown(request, reason) {
        tracing::debug!(service = "dhcp", kind, %mac, client = client.as_str(), port, answer = "none", %reason);
    } else if let Some(left_out) = LINES.step() {
        tracing::info!(
            service = "dhcp", kind, %mac, arch = request.arch, client = client.as_str(), port, answer = "none", %reason,
            left_out
        );
    }
}
