//! The network between computers and coordinator: bytes in memory, late, stalled, cut off, or lost with the computer
//! that held them.
//!
//! A stream under TCP loses nothing in its middle, so neither does this one: it is late, it stops, or it ends.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use landfall_session::{ConnectError, Credentials, Dial, Dialling, Target, Validity, Wire};
use landfall_sim::chance::Chance;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, split};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::flag::Flag;

/// The address of every peer.
pub(crate) const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1)), 7443);
/// As the agent's own connector gives up.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// What a connection holds in each direction.
const BUFFER: usize = 64 * 1024;

/// A connection as the coordinator gets it.
pub(crate) struct Incoming {
    pub(crate) stream: DuplexStream,
    /// The certificate that the other end showed, DER.
    pub(crate) certificate: Option<Vec<u8>>,
}

/// How a connection is.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Line {
    Good,
    /// One end is gone without a notice: everything sent vanishes.
    Silent,
    /// Reset: both ends notice.
    Cut,
}

/// The whole network.
#[derive(Clone)]
pub(crate) struct Net(Arc<Inner>);

/// Where a coordinator listens.
#[derive(Clone)]
struct Server {
    coordinator: u64,
    out: mpsc::Sender<Incoming>,
    /// True while it is cut off from all computers.
    apart: Flag<bool>,
}

/// A connection: the computer's port, which coordinator has its other end, and how it is.
type Connected = (u64, u64, Flag<Line>);

struct Inner {
    /// Where coordinators listen, the newest last.
    servers: Mutex<Vec<Server>>,
    lines: Mutex<Vec<Connected>>,
    chance: Mutex<Chance>,
    /// In a hundred: connections refused on the way, and chunks that are very late.
    rough: u64,
    calm: Flag<bool>,
}

fn own<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Net {
    pub(crate) fn new(chance: Chance, rough: u64, calm: Flag<bool>) -> Self {
        let (servers, lines) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { servers, lines, chance: Mutex::new(chance), rough, calm }))
    }

    /// From now on connections to the coordinator of this number come out here, unless it is `apart`.
    pub(crate) fn listen(&self, coordinator: u64, apart: Flag<bool>) -> mpsc::Receiver<Incoming> {
        let (out, incoming) = mpsc::channel(64);
        own(&self.0.servers).push(Server { coordinator, out, apart });
        incoming
    }

    /// That coordinator is gone, and every connection with it.
    pub(crate) fn unplug_server(&self, coordinator: u64, how: Line) {
        own(&self.0.servers).retain(|server| server.coordinator != coordinator);
        own(&self.0.lines).retain(|(_, of, line)| {
            if *of == coordinator {
                line.set(how);
            }
            *of != coordinator
        });
    }

    /// A coordinator that listens. Of several, any: an agent does not know which of them has the store.
    fn server(&self) -> Option<Server> {
        let servers = own(&self.0.servers);
        let any = if servers.len() > 1 { self.draw(|chance| chance.below(servers.len() as u64)) } else { 0 };
        servers.get(usize::try_from(any).ok()?).cloned()
    }

    /// A computer is gone, and its connections with it.
    pub(crate) fn unplug(&self, port: u64, how: Line) {
        own(&self.0.lines).retain(|(of, _, line)| {
            if *of == port {
                line.set(how);
            }
            *of != port
        });
    }

    fn draw<T>(&self, with: impl FnOnce(&mut Chance) -> T) -> T {
        with(&mut own(&self.0.chance))
    }

    fn is_rough(&self) -> bool {
        let rough = self.0.rough;
        !self.0.calm.get() && self.draw(|chance| chance.percent(rough))
    }
}

/// A computer's port: its way to the coordinator for as long as one boot lasts.
#[derive(Clone)]
pub(crate) struct Port {
    pub(crate) net: Net,
    pub(crate) number: u64,
    /// False once this boot is over; what is left of its program then gets nowhere.
    pub(crate) power: Flag<bool>,
    /// True while the computer is cut off.
    pub(crate) apart: Flag<bool>,
}

impl Port {
    async fn connect(&self, credentials: Option<&Credentials>) -> Result<Box<dyn Wire>, ConnectError> {
        let unreachable =
            || ConnectError::Unreachable { address: ADDRESS, source: io::Error::from(io::ErrorKind::HostUnreachable) };
        if !self.power.get() {
            return std::future::pending().await;
        }
        sleep(Duration::from_millis(self.net.draw(|chance| 1 + chance.below(30)))).await;
        if timeout(CONNECT_LIMIT, self.apart.until(|apart| !apart)).await.is_err() || self.net.is_rough() {
            return Err(unreachable());
        }
        let refused =
            || ConnectError::Refused { address: ADDRESS, source: io::Error::from(io::ErrorKind::ConnectionRefused) };
        let server = self.net.server().ok_or_else(refused)?;
        if timeout(CONNECT_LIMIT, server.apart.until(|apart| !apart)).await.is_err() {
            return Err(unreachable());
        }
        let (here, cable_here) = tokio::io::duplex(BUFFER);
        let (there, cable_there) = tokio::io::duplex(BUFFER);
        let line = Flag::new(Line::Good);
        tokio::spawn(self.cable(cable_here, cable_there, line.clone(), server.apart));
        own(&self.net.0.lines).push((self.number, server.coordinator, line));
        let certificate = credentials.and_then(|c| c.chain().first()).map(|leaf| leaf.to_vec());
        server.out.send(Incoming { stream: there, certificate }).await.map_err(|_| refused())?;
        Ok(Box::new(here))
    }

    fn cable(
        &self, a: DuplexStream, b: DuplexStream, line: Flag<Line>, server_apart: Flag<bool>,
    ) -> impl Future<Output = ()> + use<> {
        let ((from_a, to_a), (from_b, to_b)) = (split(a), split(b));
        let pump = |from, to| Pump {
            from,
            to,
            line: line.clone(),
            apart: [self.apart.clone(), server_apart.clone()],
            net: self.net.clone(),
            chance: self.net.draw(Chance::split),
        };
        let (up, down) = (pump(from_a, to_b), pump(from_b, to_a));
        async move {
            tokio::join!(biased; up.run(), down.run());
        }
    }
}

impl Dial for Port {
    fn dial<'a>(&'a self, _: &'a Target, _: Validity, credentials: Option<&'a Credentials>) -> Dialling<'a> {
        Box::pin(async move { Ok((self.connect(credentials).await?, ADDRESS)) })
    }
}

/// One direction of one connection.
struct Pump {
    from: ReadHalf<DuplexStream>,
    to: WriteHalf<DuplexStream>,
    line: Flag<Line>,
    /// While the computer is cut off, and while the coordinator is.
    apart: [Flag<bool>; 2],
    net: Net,
    chance: Chance,
}

impl Pump {
    async fn run(mut self) {
        let line = self.line.clone();
        tokio::select! {
            biased;
            _ = line.until(|line| *line == Line::Cut) => {}
            () = self.carry() => {}
        }
    }

    async fn carry(&mut self) {
        let mut chunk = vec![0; 16 * 1024];
        while let Ok(length @ 1..) = self.from.read(&mut chunk).await {
            let late = self.net.is_rough() && self.chance.percent(10);
            let delay = if late { self.chance.below(4000) } else { 1 + self.chance.below(20) };
            sleep(Duration::from_millis(delay)).await;
            for apart in &self.apart {
                apart.until(|apart| !apart).await;
            }
            if self.line.get() == Line::Silent {
                continue;
            }
            if self.to.write_all(&chunk[..length]).await.is_err() {
                return;
            }
        }
        if self.line.get() == Line::Good {
            // The other end may have ended too.
            drop(self.to.shutdown().await);
        }
        std::future::pending().await
    }
}
