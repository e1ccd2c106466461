//! DHCPv6 on one port (RFC 8415): an address where the router says so, or only name servers. A state machine without a socket and
//! without a clock, as `dhcp::client` is for IPv4.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use dhcproto::v6::{DhcpOption, DhcpOptions, IAAddr, IANA, Message, MessageType, ORO, OptionCode};
use dhcproto::{Encodable, Encoder};
use landfall_api::{MacAddr, SZTP_REDIRECT_V6, redirected};
use landfall_session::Backoff;

/// First wait for an answer (RFC 8415, 7.6: SOL_TIMEOUT), and the longest; RFC says an hour, a person stands before the machine.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(16);
/// REQUESTs for one offer before asking for offers again (REQ_MAX_RC is 10, over half an hour).
const REQUESTS: u32 = 4;
/// A shorter lifetime is taken as this: a server's mistake must not make the agent ask without pause.
const SHORTEST: Duration = Duration::from_secs(60);

/// What the router has the client ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asks {
    /// Name servers and no address.
    NameServers,
    /// An address, with name servers.
    Address,
}

/// What the server gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    /// The address lent.
    pub(super) address: Option<Ipv6Addr>,
    /// Name servers, best first.
    pub(super) nameservers: Vec<Ipv6Addr>,
    /// The coordinators that the server names.
    pub(super) coordinators: Vec<String>,
}

/// What the caller must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Send a datagram to every server.
    Send(Vec<u8>),
    /// This is given from now on; also after each renewal.
    Bound(Given),
    /// The address must not be used any more.
    Lost,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Soliciting,
    Requesting { offer: Lease, asked: u32 },
    Bound { lease: Lease, since: Instant },
    Informed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Lease {
    server: Vec<u8>,
    address: Ipv6Addr,
    renew: Duration,
    rebind: Duration,
    expire: Duration,
}

/// One port's client.
pub(super) struct Client {
    asks: Asks,
    mac: MacAddr,
    xid: u32,
    phase: Phase,
    due: Instant,
    backoff: Backoff,
    began: Instant,
}

impl Client {
    /// A client that asks at once. `xid` should be random.
    pub(super) fn new(asks: Asks, mac: MacAddr, xid: u32, now: Instant) -> Self {
        let backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        Self { asks, mac, xid, phase: Phase::Soliciting, due: now, backoff, began: now }
    }

    /// When [`Client::tick`] is to be called.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Asks again at once: the network may be another one now, or the server may say more.
    pub(super) fn check(&mut self, now: Instant) {
        match self.phase {
            Phase::Informed => self.begin(now),
            Phase::Bound { .. } => self.due = now,
            Phase::Soliciting | Phase::Requesting { .. } => {}
        }
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, now: Instant) -> Vec<Step> {
        match self.phase.clone() {
            Phase::Informed => {
                self.begin(now);
                Vec::new()
            }
            Phase::Soliciting => vec![self.solicit(now)],
            Phase::Requesting { asked: REQUESTS.., .. } => {
                self.begin(now);
                vec![self.solicit(now)]
            }
            Phase::Requesting { offer, asked } => {
                let message = self.message(now, MessageType::Request, Some(&offer));
                self.phase = Phase::Requesting { offer, asked: asked + 1 };
                vec![self.send(now, message)]
            }
            Phase::Bound { lease, since } => {
                let age = now.saturating_duration_since(since);
                if age >= lease.expire {
                    self.begin(now);
                    return vec![Step::Lost, self.solicit(now)];
                }
                let kind = if age >= lease.rebind { MessageType::Rebind } else { MessageType::Renew };
                let message = self.message(now, kind, Some(&lease));
                let step = self.send(now, message);
                self.due = self.due.min(since + lease.expire);
                vec![step]
            }
        }
    }

    /// A datagram arrived.
    pub(super) fn receive(&mut self, datagram: &[u8], now: Instant) -> Vec<Step> {
        let Some(answer) = Answer::parse(datagram, self.xid, &self.duid(), iaid(self.mac)) else { return Vec::new() };
        match (self.asks, answer.kind, answer.lease.clone()) {
            (Asks::NameServers, Kind::Reply, _) => {
                self.phase = Phase::Informed;
                // RFC 8415, 7.6: IRT_DEFAULT.
                self.due = now + Duration::from_secs(86400);
                vec![Step::Bound(answer.given(None))]
            }
            (Asks::Address, Kind::Advertise, Some(offer)) if self.phase == Phase::Soliciting => {
                self.backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
                self.phase = Phase::Requesting { offer, asked: 0 };
                self.xid = self.xid.wrapping_add(1);
                self.tick(now)
            }
            (Asks::Address, Kind::Reply, Some(lease)) => {
                let expected = match &self.phase {
                    Phase::Requesting { offer, .. } => offer.server == lease.server,
                    // Rapid commit, and the answer to a renewal.
                    Phase::Soliciting | Phase::Bound { .. } => true,
                    Phase::Informed => false,
                };
                if !expected {
                    return Vec::new();
                }
                let given = answer.given(Some(lease.address));
                self.due = now + lease.renew;
                self.backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
                self.xid = self.xid.wrapping_add(1);
                self.phase = Phase::Bound { lease, since: now };
                vec![Step::Bound(given)]
            }
            // The server has no address, or does not know of the one that is to be renewed.
            (Asks::Address, Kind::Reply, None) => {
                let lost = matches!(self.phase, Phase::Bound { .. }).then_some(Step::Lost);
                self.begin(now + FIRST_WAIT);
                lost.into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    fn begin(&mut self, at: Instant) {
        self.phase = Phase::Soliciting;
        self.backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        self.xid = self.xid.wrapping_add(1);
        (self.due, self.began) = (at, at);
    }

    fn solicit(&mut self, now: Instant) -> Step {
        let kind = match self.asks {
            Asks::Address => MessageType::Solicit,
            Asks::NameServers => MessageType::InformationRequest,
        };
        let message = self.message(now, kind, None);
        self.send(now, message)
    }

    fn send(&mut self, now: Instant, message: Vec<u8>) -> Step {
        self.due = now + self.backoff.step();
        Step::Send(message)
    }

    fn message(&self, now: Instant, kind: MessageType, lease: Option<&Lease>) -> Vec<u8> {
        let [_, a, b, c] = self.xid.to_be_bytes();
        let mut message = Message::new_with_id(kind, [a, b, c]);
        let options = message.opts_mut();
        options.insert(DhcpOption::ClientId(self.duid()));
        let hundredths = now.saturating_duration_since(self.began).as_millis() / 10;
        options.insert(DhcpOption::ElapsedTime(u16::try_from(hundredths).unwrap_or(u16::MAX)));
        options.insert(DhcpOption::ORO(ORO {
            opts: vec![OptionCode::DomainNameServers, OptionCode::from(SZTP_REDIRECT_V6)],
        }));
        if self.asks == Asks::Address {
            let mut inside = DhcpOptions::new();
            if let Some(lease) = lease {
                let address =
                    IAAddr { addr: lease.address, preferred_life: 0, valid_life: 0, opts: DhcpOptions::new() };
                inside.insert(DhcpOption::IAAddr(address));
            }
            options.insert(DhcpOption::IANA(IANA { id: iaid(self.mac), t1: 0, t2: 0, opts: inside }));
        }
        match lease {
            None if kind == MessageType::Solicit => options.insert(DhcpOption::RapidCommit),
            // Any server may answer a REBIND.
            Some(lease) if kind != MessageType::Rebind => options.insert(DhcpOption::ServerId(lease.server.clone())),
            _ => {}
        }
        let mut bytes = Vec::new();
        // These options always fit.
        message.encode(&mut Encoder::new(&mut bytes)).unwrap_or_default();
        bytes
    }

    /// By the port's address (RFC 8415, 11.4): the same at each boot, so the server lends the same address again.
    fn duid(&self) -> Vec<u8> {
        [&[0, 3, 0, 1][..], &self.mac.0].concat()
    }
}

/// Of the port alone, so that it is the same at each boot.
fn iaid(mac: MacAddr) -> u32 {
    let [_, _, a, b, c, d] = mac.0;
    u32::from_be_bytes([a, b, c, d])
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Advertise,
    Reply,
}

/// An answer meant for this client.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    kind: Kind,
    lease: Option<Lease>,
    nameservers: Vec<Ipv6Addr>,
    coordinators: Vec<String>,
}

impl Answer {
    /// `None`: it is not DHCPv6, not for this client or of no use. Read here and not by dhcproto, which subtracts from stated lengths
    /// without a check.
    fn parse(datagram: &[u8], xid: u32, duid: &[u8], iaid: u32) -> Option<Self> {
        let (head, options) = datagram.split_at_checked(4)?;
        let kind = match MessageType::from(head[0]) {
            MessageType::Advertise => Kind::Advertise,
            MessageType::Reply => Kind::Reply,
            _ => return None,
        };
        let is = |wanted: OptionCode| move |option: &(OptionCode, &[u8])| option.0 == wanted;
        let found: Vec<(OptionCode, &[u8])> = list(options)?;
        let one = |wanted: OptionCode| found.iter().find(|o| is(wanted)(o)).map(|(_, value)| *value);
        if head[1..] != xid.to_be_bytes()[1..] || one(OptionCode::ClientId) != Some(duid) || failed(&found) {
            return None;
        }
        let server = one(OptionCode::ServerId)?.to_vec();
        let association = one(OptionCode::IANA).filter(|ia| ia.len() >= 12 && ia[..4] == iaid.to_be_bytes());
        let lease = association.and_then(|ia| lease(ia, server));
        let nameservers = one(OptionCode::DomainNameServers).unwrap_or_default().chunks_exact(16);
        let nameservers = nameservers.filter_map(|a| <[u8; 16]>::try_from(a).ok()).map(Ipv6Addr::from);
        // resolv.conf(5) takes three; one on the link alone would need the port's name.
        let usable = nameservers.filter(|a| !a.is_unspecified() && !a.is_multicast() && !a.is_unicast_link_local());
        let coordinators = redirected(one(OptionCode::from(SZTP_REDIRECT_V6)).unwrap_or_default());
        Some(Self { kind, lease, nameservers: usable.take(3).collect(), coordinators })
    }

    fn given(self, address: Option<Ipv6Addr>) -> Given {
        Given { address, nameservers: self.nameservers, coordinators: self.coordinators }
    }
}

/// The options of a message or of an option; `None` if one is cut short.
fn list(mut bytes: &[u8]) -> Option<Vec<(OptionCode, &[u8])>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (head, rest) = bytes.split_at_checked(4)?;
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let (value, rest) = rest.split_at_checked(length)?;
        found.push((OptionCode::from(u16::from_be_bytes([head[0], head[1]])), value));
        bytes = rest;
    }
    Some(found)
}

/// Whether there is a status other than success (RFC 8415, 21.13).
fn failed(options: &[(OptionCode, &[u8])]) -> bool {
    options.iter().any(|(code, value)| *code == OptionCode::StatusCode && value.get(..2) != Some(&[0, 0]))
}

/// The first address of an association that may be used.
fn lease(association: &[u8], server: Vec<u8>) -> Option<Lease> {
    let seconds = |bytes: &[u8]| <[u8; 4]>::try_from(bytes).ok().map(u32::from_be_bytes);
    let inside = list(association.get(12..)?)?;
    if failed(&inside) {
        return None;
    }
    let (address, valid) = inside.iter().filter(|(code, _)| *code == OptionCode::IAAddr).find_map(|(_, value)| {
        let address = Ipv6Addr::from(<[u8; 16]>::try_from(value.get(..16)?).ok()?);
        let valid = seconds(value.get(20..24)?)?;
        let usable = !address.is_unspecified() && !address.is_multicast() && !address.is_unicast_link_local();
        (usable && valid > 0).then_some((address, valid))
    })?;
    let expire = Duration::from_secs(valid.into()).max(SHORTEST);
    // 0: the client chooses.
    let stated = |at: usize| {
        let stated = association.get(at..at + 4).and_then(seconds).map(|s| Duration::from_secs(s.into()));
        stated.filter(|time| !time.is_zero() && *time < expire)
    };
    let renew = stated(4).unwrap_or(expire / 2);
    let rebind = stated(8).filter(|time| *time > renew).unwrap_or((renew + expire * 3) / 4);
    Some(Lease { server, address, renew, rebind, expire })
}

#[cfg(test)]
mod tests;
