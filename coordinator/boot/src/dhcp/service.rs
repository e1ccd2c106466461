//! The sockets around the decisions: receive, look up, decide, keep, answer, log.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use landfall_api::MacAddr;
use tokio::{net::UdpSocket, time::timeout};
use tokio_util::sync::CancellationToken;

use super::bootfile::{ARM64_LOADER, BootServer};
use super::full::{self, Network};
use super::lease_file::LeaseFile;
use super::leases::{DECLINED_LIFE, Pool};
#[cfg(test)]
use super::leases::{Lease, LeaseState};
use super::packet::{Client, Request};
use super::reply::Reply;
use super::rival::Rival;
use super::socket::{PXE_PORT, SERVER_PORT, Sharing, open, resolve};
use super::{DhcpError, LOOKUP_LIMIT, Silence, Standing, UNKNOWN_A_SECOND, probe, proxy};
#[cfg(test)]
use crate::config::AddressRange;
use crate::config::{Config, DhcpMode};
use crate::policy::BootPolicy;
use landfall_edge::gate::Limiter;
use landfall_edge::metrics::metrics;

/// Log lines per second about packets without an answer: any host can send them.
static LINES: Limiter = Limiter::a_second(20);

/// A packet longer than Ethernet's is cut, and then fails to parse.
const MAX_PACKET: usize = 1500;

/// The addresses that the full server has leased, shared with code that looks up the holder of one.
#[derive(Debug, Clone)]
pub struct Leases {
    pool: Arc<Mutex<Pool>>,
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

impl Leases {
    /// Leases that hold for an hour, for tests.
    #[cfg(test)]
    pub(crate) fn of<const N: usize>(given: [(Ipv4Addr, MacAddr); N]) -> Self {
        let clock = Clock::start();
        let lease = |mac| Lease { mac, state: LeaseState::Bound, until: clock.now() + 3600, unknown: false };
        let range = AddressRange { first: Ipv4Addr::new(10, 77, 0, 1), last: Ipv4Addr::new(10, 77, 0, 254) };
        let mut pool = Pool::new(range, Vec::new()).expect("254 addresses are few");
        pool.restore(given.map(|(address, mac)| (address, lease(mac))), u64::MAX);
        Self { pool: Arc::new(Mutex::new(pool)), clock }
    }

    /// The Ethernet address that holds this address now.
    pub fn holder(&self, address: Ipv4Addr) -> Option<MacAddr> {
        self.lock().holder(address, self.clock.now())
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        // Every change of the pool is complete in itself: a panic elsewhere leaves nothing half done.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Mode {
    Proxy,
    Full { leases: Leases, network: Network, file: LeaseFile },
}

/// A DHCP service that listens, and answers once [`DhcpService::run`] is polled.
pub struct DhcpService {
    interface: String,
    discovery: Arc<AtomicBool>,
    server: BootServer,
    mode: Mode,
    main: UdpSocket,
    pxe: UdpSocket,
    policy: Arc<dyn BootPolicy>,
    unknown: Limiter,
    rival: Rival,
}

impl DhcpService {
    /// Checks, asks for other servers (up to 3 s, full mode only) and binds ports 67 and 4011. `None` if DHCP is off.
    ///
    /// # Errors
    /// [`DhcpError`]: the service must not run.
    pub async fn start(config: &Config, policy: Arc<dyn BootPolicy>) -> Result<Option<Self>, DhcpError> {
        if config.dhcp.mode == DhcpMode::Off {
            return Ok(None);
        }
        let interface = config.dhcp.interface.clone().ok_or(DhcpError::Config {
            key: "dhcp.interface",
            what: "is missing".to_owned(),
            hint: "name the interface with the machines to serve",
        })?;
        let server = BootServer {
            address: config.advertise,
            http_port: config.http.listen.port(),
            arm64: config.boot.bootloaders.join(ARM64_LOADER).is_file(),
            uki: config.boot.uki.is_some(),
        };
        // Bound before the question, so that a second coordinator on this host fails by the port, at once.
        let main = open(&interface, SERVER_PORT, Sharing::Alone)?;
        let pxe = open(&interface, PXE_PORT, Sharing::Alone)?;
        let mode = if config.dhcp.mode == DhcpMode::Full {
            let mode = full_mode(config)?;
            probe::refuse_other_servers(&interface, config.advertise).await?;
            mode
        } else {
            Mode::Proxy
        };
        let discovery = Arc::new(AtomicBool::new(config.dhcp.discovery));
        Ok(Some(Self {
            interface,
            discovery,
            server,
            mode,
            main,
            pxe,
            policy,
            unknown: Limiter::a_second(UNKNOWN_A_SECOND),
            rival: Rival::default(),
        }))
    }

    /// Whether unknown machines are answered; may change while it runs.
    pub fn discovery(&self) -> Arc<AtomicBool> {
        self.discovery.clone()
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
        let outcome = match self.standing(request.mac).await {
            Ok(standing) => self.decide(&request, standing, port).await,
            Err(reason) => Err(reason),
        };
        match outcome {
            Ok(reply) => self.send(&request, &reply, from, port).await,
            Err(reason) => {
                metrics().dhcp_unanswered.add(1);
                if let (Mode::Full { .. }, Silence::OtherServer(server)) = (&self.mode, &reason) {
                    self.rival.chosen(*server, &self.interface);
                }
                log_silence(&request, &reason, port);
            }
        }
    }

    async fn standing(&self, mac: MacAddr) -> Result<Standing, Silence> {
        match timeout(LOOKUP_LIMIT, self.policy.known(mac)).await {
            Ok(Ok(true)) => Ok(Standing::Known),
            Ok(Ok(false)) if self.discovery.load(Ordering::Relaxed) => {
                if self.unknown.step().is_some() {
                    Ok(Standing::Discovered)
                } else {
                    Err(Silence::TooManyUnknown)
                }
            }
            Ok(Ok(false)) => Ok(Standing::Unknown),
            Ok(Err(e)) => Err(Silence::Lookup(e.to_string())),
            Err(_) => Err(Silence::Lookup(format!("no answer within {} s", LOOKUP_LIMIT.as_secs()))),
        }
    }

    async fn decide(&self, request: &Request, standing: Standing, port: u16) -> Result<Reply, Silence> {
        match &self.mode {
            _ if port == PXE_PORT => proxy::answer_4011(request, standing, &self.server),
            Mode::Proxy => proxy::answer_67(request, standing, &self.server),
            Mode::Full { leases, network, file } => {
                let (outcome, kept) = {
                    let mut pool = leases.lock();
                    let before = pool.revision();
                    let now = leases.clock.now();
                    let outcome = full::answer(request, standing, &mut pool, network, &self.server, now);
                    (outcome, (pool.revision() != before).then(|| pool.kept()))
                };
                if let Some(kept) = kept {
                    save(file.clone(), kept).await;
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

fn full_mode(config: &Config) -> Result<Mode, DhcpError> {
    let invalid = |key, what: String, hint| DhcpError::Config { key, what, hint };
    let range = config
        .dhcp
        .range
        .ok_or_else(|| invalid("dhcp.range", "is missing".to_owned(), "write one such as 10.77.0.100-10.77.0.199"))?;
    let network = Network {
        netmask: config.dhcp.netmask,
        router: config.dhcp.router,
        dns: config.dhcp.dns.clone(),
        lease: config.dhcp.lease.get(),
    };
    for end in [range.first, range.last] {
        if !network.same_subnet(end, config.advertise) {
            return Err(invalid(
                "dhcp.range",
                format!("{end} is not in the subnet of advertise ({}/{})", config.advertise, config.dhcp.netmask),
                "machines must reach the coordinator directly: correct dhcp.range, dhcp.netmask or advertise",
            ));
        }
    }
    let taken = network.router.into_iter().chain(network.dns.iter().copied()).chain([config.advertise]);
    let mut pool = Pool::new(range, taken.chain(network.reserved(range.first)).collect())
        .map_err(|e| invalid("dhcp.range", e.to_string(), "make it narrower"))?;
    let file = LeaseFile::new(&config.data_dir);
    let kept = file.load().map_err(|source| DhcpError::Leases { path: file.path().to_owned(), source })?;
    let clock = Clock::start();
    // A lease is kept for twice its time at most, see `Pool::bind`.
    pool.restore(kept, clock.now() + 2 * network.lease.as_secs().max(DECLINED_LIFE.as_secs()));
    Ok(Mode::Full { leases: Leases { pool: Arc::new(Mutex::new(pool)), clock }, network, file })
}

/// Off the async threads, and before the client gets its answer. A full disk must not lock every machine out: the address comes
/// from a hash, so a lost lease is given to the same machine again.
async fn save(file: LeaseFile, kept: std::collections::BTreeMap<Ipv4Addr, super::leases::Lease>) {
    let path = file.path().to_owned();
    let saved = tokio::task::spawn_blocking(move || file.save(kept)).await;
    if let Err(error) = saved.unwrap_or_else(|e| Err(std::io::Error::other(e))) {
        tracing::error!(service = "dhcp", path = %path.display(), %error, "cannot store the leases");
    }
}

fn log_silence(request: &Request, reason: &Silence, port: u16) {
    let (kind, mac, client) = (request.kind_str(), request.mac, request.client);
    // On a network with ordinary clients theirs is the bulk, and none of it is about us.
    if client == Client::Ordinary || matches!(reason, Silence::OtherServer(_) | Silence::Kind) {
        tracing::debug!(service = "dhcp", kind, %mac, client = client.as_str(), port, answer = "none", %reason);
    } else if let Some(left_out) = LINES.step() {
        tracing::info!(
            service = "dhcp", kind, %mac, arch = request.arch, client = client.as_str(), port, answer = "none", %reason,
            left_out
        );
    }
}
