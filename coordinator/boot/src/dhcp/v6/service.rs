//! The socket around the decisions: receive, look up, decide, answer, log.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dhcproto::v6::MessageType;
use dhcproto::{Encodable, Encoder};
use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

use super::super::bootfile::BootServer;
use super::super::packet::Client;
use super::super::service::{LINES, MAX_PACKET};
use super::super::socket::Sharing;
use super::super::standing::Standings;
use super::super::{DhcpError, Silence};
use super::address::Link;
use super::answer::{Addresses, Gives, answer};
use super::packet::Request;
use super::probe::refuse_other_servers;
use super::socket::{SERVER_PORT, identifier, open};
use crate::config::{Config, DhcpMode};
use crate::policy::{BootPolicy, Service, Unserved};
use crate::router_advert::{Advert, RouterAdverts};
use landfall_edge::gate::Limiter;
use landfall_edge::metrics::metrics;

/// Log lines about another server, per second.
static RIVALS: Limiter = Limiter::a_second(1);

/// A DHCPv6 service that listens, and answers once [`DhcpV6Service::run`] is polled.
pub struct DhcpV6Service {
    interface: String,
    gives: Gives,
    socket: UdpSocket,
    standings: Standings,
    /// What tells the hosts of the link that there is such a service, where this is the only one.
    adverts: Option<RouterAdverts>,
}

impl DhcpV6Service {
    /// Asks for other servers (3 s, full mode only) and binds port 547. `own`: the coordinator's address. `None` if DHCP is off. `discovery`: whether unknown machines are answered; may change while it runs.
    ///
    /// # Errors
    /// [`DhcpError`]: the service must not run.
    pub async fn start(
        config: &Config, own: Ipv6Addr, (policy, discovery): (Arc<dyn BootPolicy>, Arc<AtomicBool>),
    ) -> Result<Option<Self>, DhcpError> {
        let dhcp = &config.dhcp;
        if dhcp.mode == DhcpMode::Off {
            return Ok(None);
        }
        let interface = dhcp.served_interface()?;
        let (socket, _) = open(&interface, SERVER_PORT, Sharing::Alone)?;
        let (mut addresses, mut adverts) = (None, None);
        if dhcp.mode == DhcpMode::Full {
            let link = Link { own, prefix_length: dhcp.prefix_length };
            if !config.takes_over {
                refuse_other_servers(&interface).await?;
            }
            let coordinators = config.coordinator_urls();
            addresses = Some(Addresses { link, lease: dhcp.lease.get(), dns: dhcp.dns_v6(), coordinators });
            let advert = Advert::Managed { prefix: link.prefix(), length: link.prefix_length };
            let failed = |source| DhcpError::Adverts { interface: interface.clone(), source };
            adverts = Some(RouterAdverts::start(&interface, advert).map_err(failed)?);
        }
        let gives = Gives { id: identifier(&interface), server: BootServer::of(config, own), addresses };
        Ok(Some(Self { standings: Standings::new(policy, discovery), interface, gives, socket, adverts }))
    }

    /// The link whose addresses are given out here, in full mode.
    pub fn link(&self) -> Option<Link> {
        self.gives.addresses.as_ref().map(|addresses| addresses.link)
    }

    /// Serves until cancelled.
    ///
    /// # Errors
    /// [`DhcpError::Receive`] when a socket fails for good, such as when the interface went away.
    pub async fn run(mut self, cancel: CancellationToken) -> Result<(), DhcpError> {
        let adverts = self.adverts.take().map(|adverts| tokio::spawn(adverts.run(cancel.clone())));
        let mut buffer = [0; MAX_PACKET];
        loop {
            let received = tokio::select! {
                () = cancel.cancelled() => break,
                received = self.socket.recv_from(&mut buffer) => received,
            };
            match received {
                Ok((length, from @ SocketAddr::V6(v6))) => self.on_packet(&buffer[..length], *v6.ip(), from).await,
                Ok((_, SocketAddr::V4(_))) => {}
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => {}
                Err(source) => return Err(DhcpError::Receive { interface: self.interface, source }),
            }
        }
        if let Some(adverts) = adverts {
            // It ends by the same cancellation.
            drop(adverts.await);
        }
        Ok(())
    }

    async fn on_packet(&self, bytes: &[u8], sender: Ipv6Addr, from: SocketAddr) {
        let request = match Request::parse(bytes, sender) {
            Ok(request) => request,
            Err(reason) => {
                // An operator wants to know of these two: the host gets no address.
                if matches!(reason, Silence::NoMac | Silence::RelayedV6) && LINES.step().is_some() {
                    tracing::info!(service = "dhcp", %from, answer = "none", %reason);
                } else {
                    tracing::debug!(service = "dhcp", %from, answer = "none", %reason);
                }
                return;
            }
        };
        let policy = self.standings.policy();
        let answers = if self.gives.addresses.is_some() { policy.gives_addresses() } else { policy.can_serve() };
        let outcome = match self.standings.of(request.mac).await {
            _ if !answers => Err(Silence::NotActive),
            Ok(standing) => answer(&request, standing, &self.gives),
            Err(reason) => Err(reason),
        };
        match outcome {
            Ok(reply) if !gives_boot_file(&request) => self.send(&request, &reply, from).await,
            Ok(reply) => {
                match self.gives.server.boot_file(request.client, request.arch, request.mac).err() {
                    Some(reason) if is_shown(&request, &reason) => policy.unserved(unserved(&request, from, &reason)),
                    None => policy.served(request.mac, Service::Dhcp),
                    _ => {}
                }
                self.send(&request, &reply, from).await;
            }
            Err(reason) => {
                metrics().dhcp_unanswered.add(1);
                if reason == Silence::AnotherServer && self.gives.addresses.is_some() && RIVALS.step().is_some() {
                    tracing::warn!(
                        service = "dhcp", interface = self.interface, mac = %request.mac,
                        "a machine chose another DHCPv6 server on this link; two servers conflict: stop it"
                    );
                }
                let (kind, mac, client) = (request.kind_str(), request.mac, request.client.as_str());
                if !is_shown(&request, &reason) {
                    tracing::debug!(service = "dhcp", kind, %mac, client, %from, answer = "none", %reason);
                    return;
                }
                policy.unserved(unserved(&request, from, &reason));
                if let Some(left_out) = LINES.step() {
                    tracing::info!(
                        service = "dhcp", kind, %mac, arch = request.arch, client, answer = "none", %reason, left_out
                    );
                }
            }
        }
    }

    async fn send(&self, request: &Request, reply: &dhcproto::v6::Message, to: SocketAddr) {
        let mut bytes = Vec::with_capacity(512);
        let sent = match reply.encode(&mut Encoder::new(&mut bytes)) {
            Ok(()) => self.socket.send_to(&bytes, to).await.map(drop),
            Err(error) => Err(std::io::Error::other(error)),
        };
        let kind = if reply.msg_type() == MessageType::Advertise { "advertise" } else { "reply" };
        let given = request.asked.first().filter(|_| gives_boot_file(request)).and_then(|asked| {
            let addresses = self.gives.addresses.as_ref()?;
            Some(addresses.link.address(request.mac, asked.number))
        });
        match sent {
            Ok(()) => {
                metrics().dhcp_answers.of(&[("kind", kind)]).add(1);
                tracing::info!(
                    service = "dhcp", kind = request.kind_str(), mac = %request.mac, arch = request.arch,
                    client = request.client.as_str(), answer = kind, ip = given.map(tracing::field::display), %to,
                );
            }
            Err(error) => tracing::warn!(
                service = "dhcp", kind = request.kind_str(), mac = %request.mac, %to, %error, "cannot send the answer"
            ),
        }
    }
}

/// Whether an answer to it may name a boot file.
fn gives_boot_file(request: &Request) -> bool {
    use MessageType as M;
    matches!(request.kind, M::Solicit | M::Request | M::Renew | M::Rebind | M::InformationRequest)
}

fn is_shown(request: &Request, reason: &Silence) -> bool {
    request.client != Client::Ordinary && !matches!(reason, Silence::AnotherServer | Silence::Kind)
}

fn unserved(request: &Request, from: SocketAddr, reason: &Silence) -> Unserved {
    Unserved {
        mac: request.mac,
        service: Service::Dhcp,
        client: request.client.as_str(),
        from: Some(from.ip()),
        unknown: *reason == Silence::UnknownMachine,
        reason: reason.to_string(),
    }
}
