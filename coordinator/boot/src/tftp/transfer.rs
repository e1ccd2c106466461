//! One file to one client, block by block, each acknowledged before the next.

use std::{io, sync::Arc, time::Duration};

use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

use landfall_edge::gate::Seat;

use super::packet::{DEFAULT_BLOCK, Incoming, ReadRequest, data};

/// How often one packet is sent before the client counts as gone.
const SENDS: u32 = 6;
/// The first wait for an acknowledgement, doubling up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(4);
/// The longest a whole transfer may take: a loader is under a megabyte.
const WHOLE: Duration = Duration::from_secs(300);

/// How a transfer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// Everything was acknowledged.
    Complete,
    /// The client only wanted the size, and said so by refusing the rest, as UEFI does before it reads.
    SizeOnly,
    /// The client gave up, in its words.
    Refused(String),
    /// The client did not acknowledge a packet, however often it was sent.
    Silent,
}

/// Sends `content` over a socket connected to the client. Returns the bytes acknowledged and the ending.
///
/// # Errors
/// When the socket fails.
pub(super) async fn send_file(
    socket: &UdpSocket, request: &ReadRequest, content: &[u8], seat: &Arc<Seat>,
) -> io::Result<(usize, Ending)> {
    let deadline = Instant::now() + WHOLE;
    seat.waits();
    let mut proven = None;
    let mut acknowledged = || {
        seat.moved();
        // From the first on the client's address is known to be its own.
        proven.get_or_insert_with(|| seat.begin());
    };
    let block = usize::from(request.block.unwrap_or(DEFAULT_BLOCK));
    let first_wait = request.timeout.map_or(FIRST_WAIT, |s| Duration::from_secs(s.into()));
    if let Some(ack) = request.option_ack(content.len()) {
        match exchange(socket, &ack, 0, first_wait, deadline).await? {
            None => acknowledged(),
            Some(Ending::Refused(_)) if request.wants_size => return Ok((0, Ending::SizeOnly)),
            Some(ending) => return Ok((0, ending)),
        }
    }
    // A file that is a multiple of the block size ends with an empty block.
    for index in 0..=content.len() / block {
        let start = index * block;
        let part = &content[start..content.len().min(start + block)];
        // The number wraps: clients count blocks modulo 2^16 too.
        let number = (index as u16).wrapping_add(1);
        if let Some(ending) = exchange(socket, &data(number, part), number, first_wait, deadline).await? {
            return Ok((start, ending));
        }
        acknowledged();
    }
    Ok((content.len(), Ending::Complete))
}

/// Sends one packet until it is acknowledged; `None` if it was.
async fn exchange(
    socket: &UdpSocket, packet: &[u8], number: u16, first_wait: Duration, deadline: Instant,
) -> io::Result<Option<Ending>> {
    let mut wait = first_wait;
    let mut buffer = [0; 600];
    for _ in 0..SENDS {
        match socket.send(packet).await {
            // The client closed its port: it is gone, or has all it wanted.
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => return Ok(Some(Ending::Silent)),
            sent => sent?,
        };
        let until = (Instant::now() + wait).min(deadline);
        // Only a timeout sends again: answering a duplicate acknowledgement with a duplicate block would double every
        // packet from there on (the sorcerer's apprentice).
        while let Ok(received) = timeout_at(until, socket.recv(&mut buffer)).await {
            let length = match received {
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => return Ok(Some(Ending::Silent)),
                received => received?,
            };
            match Incoming::parse(&buffer[..length]) {
                Some(Incoming::Ack(n)) if n == number => return Ok(None),
                Some(Incoming::Error { code, message }) => {
                    return Ok(Some(Ending::Refused(format!("error {code} {message}"))));
                }
                _ => {}
            }
        }
        if Instant::now() >= deadline {
            break;
        }
        wait = (wait * 2).min(LONGEST_WAIT.max(first_wait));
    }
    Ok(Some(Ending::Silent))
}
