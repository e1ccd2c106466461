//! Asks once for another DHCPv6 server, before this one starts to give out addresses.

use std::io;
use std::net::{SocketAddr, SocketAddrV6};

use dhcproto::v6::{DhcpOption, IANA, Message, MessageType};
use dhcproto::{Encodable, Encoder};
use tokio::time::{Duration, Instant, timeout_at};
use uuid::Uuid;

use super::super::DhcpError;
use super::super::probe::PROBE_LIMIT;
use super::super::socket::Sharing;
use super::packet::{SERVER_ID, options};
use super::socket::{ALL_SERVERS, CLIENT_PORT, SERVER_PORT, identifier, open};

/// Asked again after this, in case the first packet was lost.
const REPEAT: Duration = Duration::from_secs(1);

/// Fails if another DHCPv6 server answers on the interface within [`PROBE_LIMIT`].
///
/// # Errors
/// [`DhcpError::OtherServerV6`] with its address; [`DhcpError::Bind`] or [`DhcpError::Probe`] if it cannot be asked.
pub async fn refuse_other_servers(interface: &str) -> Result<(), DhcpError> {
    let (socket, scope) = open(interface, CLIENT_PORT, Sharing::Shared)?;
    let own = identifier(interface);
    let failed = |source| DhcpError::Probe { interface: interface.to_owned(), source };
    let random = *Uuid::new_v4().as_bytes();
    let xid = [random[0], random[1], random[2]];
    // DUID-UUID: no server holds a lease for it.
    let id = [&[0, 4][..], &random].concat();
    let mut message = Message::new_with_id(MessageType::Solicit, xid);
    message.opts_mut().insert(DhcpOption::ClientId(id.clone()));
    message.opts_mut().insert(DhcpOption::IANA(IANA { id: 1, t1: 0, t2: 0, opts: Vec::new().into_iter().collect() }));
    message.opts_mut().insert(DhcpOption::ElapsedTime(0));
    let mut question = Vec::new();
    message.encode(&mut Encoder::new(&mut question)).map_err(|error| failed(io::Error::other(error)))?;
    let servers = SocketAddr::V6(SocketAddrV6::new(ALL_SERVERS, SERVER_PORT, 0, scope));
    let deadline = Instant::now() + PROBE_LIMIT;
    let mut buffer = [0; 1500];
    loop {
        match socket.send_to(&question, servers).await {
            // The interface is new: its own address is still being checked.
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable && Instant::now() < deadline => {}
            sent => drop(sent.map_err(failed)?),
        }
        let again = (Instant::now() + REPEAT).min(deadline);
        while let Ok(received) = timeout_at(again, socket.recv_from(&mut buffer)).await {
            let (length, from) = received.map_err(failed)?;
            if answers(&buffer[..length], xid, &own) {
                let SocketAddr::V6(from) = from else { continue };
                return Err(DhcpError::OtherServerV6 { server: *from.ip(), interface: interface.to_owned() });
            }
        }
        if Instant::now() >= deadline {
            return Ok(());
        }
    }
}

/// Whether this is another server's answer to our question: with an address or without one it would answer machines, too.
fn answers(bytes: &[u8], xid: [u8; 3], own: &[u8]) -> bool {
    let Some(([kind, of @ ..], rest)) = bytes.split_first_chunk::<4>() else { return false };
    let is_answer = matches!(MessageType::from(*kind), MessageType::Advertise | MessageType::Reply);
    is_answer && *of == xid && !options(rest).any(|(code, data)| code == SERVER_ID && data == own)
}
