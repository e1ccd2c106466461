//! The DHCP client as a state machine (RFC 2131, figure 5), without a socket and without a clock.
//!
//! The caller sends what the client returns, passes in what arrives, and calls [`Client::tick`] at [`Client::due`]. It
//! asks for ever: a switch port in spanning-tree learning, or a server that is rebooting, is no reason to give up.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use dhcproto::Encodable;
use dhcproto::v4::{DhcpOption, Flags, Message, MessageType, OptionCode};
use landfall_api::{MacAddr, SZTP_REDIRECT};
use landfall_session::Backoff;

use super::lease::{Answer, Lease};

/// First wait for an answer. RFC 2131 says 4 s; firmware and iPXE have just asked on this very port, so a missing
/// answer is more likely a lost frame than a slow server.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait between two DISCOVERs. RFC 2131 says 64 s; a person stands before the machine.
const LONGEST_WAIT: Duration = Duration::from_secs(16);
/// REQUESTs for one offer before asking for offers again.
const REQUESTS: u32 = 4;
/// RFC 2131 4.4.5: no renewal is repeated sooner.
const RENEW_WAIT: Duration = Duration::from_secs(60);

/// The destination of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    /// 255.255.255.255
    Everyone,
    /// The server that lent the address.
    Server(Ipv4Addr),
}

/// What the caller must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send a datagram.
    Send(Vec<u8>, To),
    /// The lease is held from now on; also after each renewal.
    Bound(Lease),
    /// The lease is held no more.
    Lost(String),
}

#[derive(Debug, Clone)]
enum Phase {
    Selecting,
    Requesting { offer: Lease, asked: u32 },
    Bound { lease: Lease, since: Instant },
    Renewing { lease: Lease, since: Instant },
    Rebinding { lease: Lease, since: Instant },
}

/// One port's client.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    mac: MacAddr,
    xid: u32,
    phase: Phase,
    due: Option<Instant>,
    backoff: Backoff,
    began: Instant,
    /// When the newest request was sent: a lease counts from here.
    requested: Instant,
    unanswered: u32,
    /// What a server that answers does in place of lending an address.
    trouble: Option<String>,
    /// The link came back and the lease is in doubt: ask by the backoff's waits and not by the lease's.
    in_doubt: bool,
}

impl Client {
    /// A client that asks at once. `xid` should be random.
    pub(crate) fn new(mac: MacAddr, xid: u32, now: Instant) -> Self {
        Self {
            mac,
            xid,
            phase: Phase::Selecting,
            due: Some(now),
            backoff: Backoff::new(FIRST_WAIT, LONGEST_WAIT),
            began: now,
            requested: now,
            unanswered: 0,
            trouble: None,
            in_doubt: false,
        }
    }

    /// When to call [`Client::tick`]; `None`: the lease never ends.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// DISCOVERs sent since the last answer.
    pub(crate) fn unanswered(&self) -> u32 {
        self.unanswered
    }

    /// What a server that answers does in place of lending an address; nothing while one lends it.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// The link came back: it may be another network now, so any lease is checked with any server at once.
    pub(crate) fn link_returned(&mut self, now: Instant) {
        self.phase = match self.phase.clone() {
            Phase::Bound { lease, since } | Phase::Renewing { lease, since } => Phase::Rebinding { lease, since },
            // What the former network's server offered says nothing of this one's.
            Phase::Requesting { .. } => Phase::Selecting,
            other => other,
        };
        self.in_doubt = true;
        self.trouble = None;
        self.backoff.reset();
        self.due = Some(now);
    }

    /// Time has come.
    pub(crate) fn tick(&mut self, now: Instant) -> Vec<Step> {
        if self.due.is_none_or(|due| now < due) {
            return Vec::new();
        }
        match self.phase.clone() {
            Phase::Selecting => {
                self.unanswered = self.unanswered.saturating_add(1);
                if self.unanswered >= REQUESTS {
                    // It does not even answer any more.
                    self.trouble = None;
                }
                self.due = Some(now + self.backoff.step());
                vec![Step::Send(self.discover(now), To::Everyone)]
            }
            Phase::Requesting { offer, asked } if asked < REQUESTS => {
                self.due = Some(now + self.backoff.step());
                let message = self.request(now, &offer, Some(offer.server));
                self.phase = Phase::Requesting { offer, asked: asked + 1 };
                vec![Step::Send(message, To::Everyone)]
            }
            Phase::Requesting { offer, .. } => {
                let Lease { server, address, .. } = offer;
                self.trouble = Some(format!("the DHCP server {server} offers {address} and does not confirm it"));
                self.start_again(now)
            }
            Phase::Bound { lease, since } | Phase::Renewing { lease, since } => self.renew(now, lease, since),
            Phase::Rebinding { lease, since } => self.rebind(now, lease, since),
        }
    }

    fn renew(&mut self, now: Instant, lease: Lease, since: Instant) -> Vec<Step> {
        let Some(times) = lease.length else {
            self.due = None;
            return Vec::new();
        };
        let rebind = since + times.rebind;
        if now >= rebind {
            return self.rebind(now, lease, since);
        }
        self.due = Some(rebind.min(now + ((rebind - now) / 2).max(RENEW_WAIT)));
        let (server, message) = (lease.server, self.request(now, &lease, None));
        self.phase = Phase::Renewing { lease, since };
        vec![Step::Send(message, To::Server(server))]
    }

    fn rebind(&mut self, now: Instant, lease: Lease, since: Instant) -> Vec<Step> {
        let Some(times) = lease.length else {
            // Held for ever, and asked about only because the link came back.
            self.due = Some(now + self.backoff.step());
            let message = self.request(now, &lease, None);
            self.phase = Phase::Rebinding { lease, since };
            return vec![Step::Send(message, To::Everyone)];
        };
        let expire = since + times.expire;
        if now >= expire {
            let mut steps = vec![Step::Lost("the lease ran out and no server renewed it".into())];
            steps.extend(self.start_again(now));
            return steps;
        }
        let wait = if self.in_doubt { self.backoff.step() } else { ((expire - now) / 2).max(RENEW_WAIT) };
        self.due = Some(expire.min(now + wait));
        let message = self.request(now, &lease, None);
        self.phase = Phase::Rebinding { lease, since };
        vec![Step::Send(message, To::Everyone)]
    }

    fn start_again(&mut self, now: Instant) -> Vec<Step> {
        self.phase = Phase::Selecting;
        self.in_doubt = false;
        self.backoff.reset();
        // A new exchange has a new number, so a late answer to the old one is not taken for one to this.
        self.xid = self.xid.wrapping_add(1);
        self.began = now;
        self.due = Some(now + self.backoff.step());
        Vec::new()
    }

    /// A datagram arrived.
    pub(crate) fn receive(&mut self, datagram: &[u8], now: Instant) -> Vec<Step> {
        let Some(answer) = Answer::parse(datagram, self.mac, self.xid) else { return Vec::new() };
        self.unanswered = 0;
        match (self.phase.clone(), answer) {
            // The first usable offer is as good as any.
            (Phase::Selecting, Answer::Offer(offer)) => {
                self.phase = Phase::Requesting { offer, asked: 0 };
                self.backoff.reset();
                self.due = Some(now);
                self.tick(now)
            }
            (Phase::Requesting { offer, .. }, Answer::Ack(lease)) if lease.server == offer.server => self.bind(lease),
            (Phase::Renewing { .. } | Phase::Rebinding { .. }, Answer::Ack(lease)) => self.bind(lease),
            (Phase::Requesting { offer, .. }, Answer::Nak { server, message })
                if server.is_none_or(|s| s == offer.server) =>
            {
                let why = if message.is_empty() { message } else { format!(": {message}") };
                self.trouble =
                    Some(format!("the DHCP server {} offers {} and refuses it{why}", offer.server, offer.address));
                self.start_again(now)
            }
            (Phase::Renewing { .. } | Phase::Rebinding { .. }, Answer::Nak { message, .. }) => {
                let mut steps = vec![Step::Lost(format!("the server takes the lease back: {message}"))];
                steps.extend(self.start_again(now));
                steps
            }
            // Another server's answer, or one that comes too late.
            _ => Vec::new(),
        }
    }

    fn bind(&mut self, lease: Lease) -> Vec<Step> {
        self.backoff.reset();
        self.in_doubt = false;
        self.trouble = None;
        self.due = lease.length.map(|times| self.requested + times.renew);
        self.phase = Phase::Bound { lease: lease.clone(), since: self.requested };
        vec![Step::Bound(lease)]
    }

    fn discover(&self, now: Instant) -> Vec<u8> {
        let mut message = self.message(MessageType::Discover, now);
        message.set_flags(Flags::default().set_broadcast());
        encode(&message)
    }

    /// With `server`, a REQUEST that selects its offer; without, one that renews what is held.
    fn request(&mut self, now: Instant, lease: &Lease, server: Option<Ipv4Addr>) -> Vec<u8> {
        self.requested = now;
        let mut message = self.message(MessageType::Request, now);
        if let Some(server) = server {
            message.set_flags(Flags::default().set_broadcast());
            message.opts_mut().insert(DhcpOption::ServerIdentifier(server));
            message.opts_mut().insert(DhcpOption::RequestedIpAddress(lease.address));
        } else {
            message.set_ciaddr(lease.address);
        }
        encode(&message)
    }

    fn message(&self, kind: MessageType, now: Instant) -> Message {
        let zero = Ipv4Addr::UNSPECIFIED;
        let mut message = Message::new_with_id(self.xid, zero, zero, zero, zero, &self.mac.0);
        // Relays and slow servers look at how long a client has been waiting.
        message.set_secs(u16::try_from(now.saturating_duration_since(self.began).as_secs()).unwrap_or(u16::MAX));
        let options = message.opts_mut();
        options.insert(DhcpOption::MessageType(kind));
        // Type 1 (Ethernet) and the address, as iPXE sends it: the server then lends the same address again.
        options.insert(DhcpOption::ClientIdentifier([&[1], self.mac.0.as_slice()].concat()));
        options.insert(DhcpOption::MaxMessageSize(1472));
        options.insert(DhcpOption::ClassIdentifier(b"landfall-agent".to_vec()));
        options.insert(DhcpOption::ParameterRequestList(vec![
            OptionCode::SubnetMask,
            OptionCode::ClasslessStaticRoute,
            OptionCode::Router,
            OptionCode::DomainNameServer,
            OptionCode::InterfaceMtu,
            OptionCode::AddressLeaseTime,
            OptionCode::Renewal,
            OptionCode::Rebinding,
            OptionCode::from(SZTP_REDIRECT),
        ]));
        message
    }
}

/// A message of ours is a few fixed options: it always fits its encoding.
fn encode(message: &Message) -> Vec<u8> {
    message.to_vec().unwrap_or_default()
}

#[cfg(test)]
mod tests;
