//! Checks for another DHCP server once, before the full server starts: two servers on one network lease each other's
//! addresses.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use dhcproto::v4::{DhcpOption, Flags, Message, MessageType, Opcode, OptionCode, borrowed};
use dhcproto::{Encodable, Encoder};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::DhcpError;
use super::socket::{CLIENT_PORT, SERVER_PORT, Sharing, open};

/// How long an answer is waited for. dnsmasq pings an address for three seconds before it offers it, and answers nothing
/// else meanwhile; that is why an INFORM is sent first, which it answers at once.
pub const PROBE_LIMIT: Duration = Duration::from_secs(3);
/// Asked again after this, in case the first packet was lost (a bridge port may still be learning).
const REPEAT: Duration = Duration::from_secs(1);

/// Fails if another DHCP server than `ours` answers on the interface within [`PROBE_LIMIT`]. `own`: the address that asks.
///
/// # Errors
/// [`DhcpError::OtherServer`] with its address; [`DhcpError::Bind`] or [`DhcpError::Probe`] if it cannot be asked.
pub async fn refuse_other_servers(interface: &str, own: Ipv4Addr, ours: &[Ipv4Addr]) -> Result<(), DhcpError> {
    let socket = open(interface, CLIENT_PORT, Sharing::Shared)?;
    let probe_error = |source| DhcpError::Probe { interface: interface.to_owned(), source };
    let random = *Uuid::new_v4().as_bytes();
    // Locally administered and of this process alone: no server holds a lease or a reservation for it.
    let mac = [0x02, random[0], random[1], random[2], random[3], random[4]];
    let xid = u32::from_be_bytes([random[9], random[10], random[11], random[12]]);
    let deadline = Instant::now() + PROBE_LIMIT;
    let mut buffer = [0; 1500];
    loop {
        for kind in [MessageType::Inform, MessageType::Discover] {
            let packet = question(kind, xid, mac, own).map_err(probe_error)?;
            socket.send_to(&packet, SocketAddr::from((Ipv4Addr::BROADCAST, SERVER_PORT))).await.map_err(probe_error)?;
        }
        let again = (Instant::now() + REPEAT).min(deadline);
        while let Ok(received) = timeout_at(again, socket.recv_from(&mut buffer)).await {
            let (length, from) = received.map_err(probe_error)?;
            if let Some(server) = answering_server(&buffer[..length], xid, from)
                && !ours.contains(&server)
            {
                return Err(DhcpError::OtherServer { server, interface: interface.to_owned() });
            }
        }
        if Instant::now() >= deadline {
            return Ok(());
        }
    }
}

fn question(kind: MessageType, xid: u32, mac: [u8; 6], own: Ipv4Addr) -> io::Result<Vec<u8>> {
    let ciaddr = if kind == MessageType::Inform { own } else { Ipv4Addr::UNSPECIFIED };
    let none = Ipv4Addr::UNSPECIFIED;
    let mut message = Message::new_with_id(xid, ciaddr, none, none, none, &mac);
    message.set_opcode(Opcode::BootRequest).set_flags(Flags::default().set_broadcast());
    message.opts_mut().insert(DhcpOption::MessageType(kind));
    message.opts_mut().insert(DhcpOption::ParameterRequestList(vec![OptionCode::SubnetMask, OptionCode::Router]));
    let mut bytes = Vec::with_capacity(300);
    message.encode(&mut Encoder::new(&mut bytes)).map_err(io::Error::other)?;
    bytes.resize(bytes.len().max(300), 0);
    Ok(bytes)
}

/// The server that sent this answer to our question, if it is one. A ProxyDHCP server's is not: it gives no addresses.
fn answering_server(bytes: &[u8], xid: u32, from: SocketAddr) -> Option<Ipv4Addr> {
    let packet = borrowed::Message::new(bytes).ok()?;
    if packet.opcode() != Opcode::BootReply || packet.xid() != xid {
        return None;
    }
    let (mut kind, mut server) = (None, None);
    for option in packet.opts() {
        match u8::from(option.code()) {
            53 => kind = option.data().first().copied().map(MessageType::from),
            54 => server = <[u8; 4]>::try_from(option.data()).ok().map(Ipv4Addr::from),
            _ => {}
        }
    }
    let gives_addresses = match kind? {
        MessageType::Offer => !packet.yiaddr().is_unspecified(),
        MessageType::Ack | MessageType::Nak => true,
        _ => false,
    };
    let sender = match from {
        SocketAddr::V4(from) => Some(*from.ip()),
        SocketAddr::V6(_) => None,
    };
    gives_addresses.then_some(()).and(server.or(sender))
}
