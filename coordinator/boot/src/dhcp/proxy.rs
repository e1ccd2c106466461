//! ProxyDHCP: boot information for clients that get their address from another server.

use dhcproto::v4::{Flags, MessageType};

use super::bootfile::BootServer;
use super::packet::{Client, Request};
use super::reply::{Destination, Reply};
use super::{Silence, Standing};

/// Answers a packet that came to port 67, broadcast or relayed or unicast to this server.
///
/// # Errors
/// [`Silence`] with the reason.
pub fn answer_67(request: &Request, standing: Standing, server: &BootServer) -> Result<Reply, Silence> {
    if request.client == Client::Ordinary {
        return Err(Silence::NotNetbooting);
    }
    let kind = match request.kind {
        MessageType::Discover => MessageType::Offer,
        // A request names the server it is meant for. iPXE asks the proxy by name; a request without a name renews an
        // address, and that is not ours to answer.
        MessageType::Request => match request.server_id {
            Some(id) if id == server.address => MessageType::Ack,
            Some(id) => return Err(Silence::OtherServer(id)),
            None => return Err(Silence::Kind),
        },
        _ => return Err(Silence::Kind),
    };
    let to = if !request.giaddr.is_unspecified() {
        Destination::Relay(request.giaddr)
    } else if !request.ciaddr.is_unspecified() {
        Destination::Client(request.ciaddr)
    } else {
        Destination::Broadcast
    };
    build(request, standing, server, kind, to)
}

/// Answers a packet that came to port 4011: the client has an address by now and asks for its boot file.
///
/// # Errors
/// [`Silence`] with the reason.
pub fn answer_4011(request: &Request, standing: Standing, server: &BootServer) -> Result<Reply, Silence> {
    if request.client == Client::Ordinary {
        return Err(Silence::NotNetbooting);
    }
    match request.kind {
        MessageType::Request | MessageType::Inform => {
            build(request, standing, server, MessageType::Ack, Destination::Sender)
        }
        _ => Err(Silence::Kind),
    }
}

fn build(
    request: &Request, standing: Standing, server: &BootServer, kind: MessageType, to: Destination,
) -> Result<Reply, Silence> {
    standing.check()?;
    let file = server.boot_file(request.client, request.arch, request.mac)?;
    let mut reply = Reply::new(request, kind, server, to);
    reply.add_boot(request, &file, server, false)?;
    if matches!(to, Destination::Relay(_)) && request.ciaddr.is_unspecified() {
        // This reply gives no address, so a relay that goes by the flag would send it to 0.0.0.0.
        reply.message.set_flags(Flags::new(request.flags).set_broadcast());
    }
    Ok(reply)
}
