//! TFTP, read-only, for the two or three loaders that firmware fetches.
//!
//! Own code instead of the async-tftp crate: that one brings a second async runtime, takes any number of transfers at
//! once, follows the client's block size into IP fragments, and does not tell how a transfer ended, which the log must.
//!
//! | bound | number |
//! |---|---|
//! | transfers | [`MAX_TRANSFERS`] |
//! | of one address (this host itself: no limit of its own) | [`TRANSFERS_EACH`] |
//!
//! A request's address may be forged, an acknowledgement proves it. When all places are taken, a transfer without an
//! acknowledgement for [`UNPROVEN`] gives way, first one of the address with the most transfers.

mod files;
mod packet;
mod transfer;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use landfall_api::MacAddr;
use tokio::net::UdpSocket;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::files::Loaders;
use self::packet::{ACCESS_VIOLATION, Incoming, NOT_FOUND, ReadRequest, UNDEFINED};
use self::transfer::{Ending, send_file};
use super::dhcp::bootfile::{ARM64_LOADER, BIOS_LOADER, UEFI_LOADER};
use super::neighbours::Neighbours;
use landfall_edge::gate::{Admission, Gate, Limiter, Limits, Seat, each_of, origin};
use landfall_edge::metrics::metrics;
use landfall_edge::text::{MAX_PATH, cut};

/// Everything that is served; a name not in here does not exist.
pub const LOADERS: [&str; 3] = [BIOS_LOADER, UEFI_LOADER, ARM64_LOADER];

/// Transfers at one time, each with a port of its own. Firmware asks again by itself, so a whole rack powered on at once only
/// waits.
pub const MAX_TRANSFERS: usize = 256;
/// Of them, those of one address: firmware has one, and a second while the first still waits for its last acknowledgement.
pub const TRANSFERS_EACH: usize = 8;
/// A transfer without an acknowledgement for so long gives way when all places are taken: a client on the same network
/// answers within milliseconds.
pub const UNPROVEN: Duration = Duration::from_secs(1);
/// One that was once acknowledged, likewise; by then a packet was sent four times.
const STALLED: Duration = Duration::from_secs(8);
/// Log lines per second about requests that any host can send.
static LINES: Limiter = Limiter::a_second(10);

/// Why the TFTP service cannot start or go on.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum TftpError {
    /// The port cannot be had.
    #[error("cannot listen for TFTP on {listen}; check for another TFTP server, and check the process's rights")]
    Bind { listen: SocketAddr, source: io::Error },
    /// Receiving failed for good.
    #[error("receiving TFTP requests failed")]
    Receive(#[source] io::Error),
}

/// A TFTP service that listens, and answers once [`TftpService::run`] is polled.
pub struct TftpService {
    socket: UdpSocket,
    files: Arc<Files>,
}

struct Files {
    loaders: Loaders,
    advertise: IpAddr,
    neighbours: Neighbours,
}

impl TftpService {
    /// Binds the port. Transfers answer from `advertise`, the address that clients asked.
    ///
    /// # Errors
    /// [`TftpError::Bind`].
    pub async fn start(
        listen: SocketAddr, directory: PathBuf, advertise: IpAddr, neighbours: Neighbours,
    ) -> Result<Self, TftpError> {
        let socket = UdpSocket::bind(listen).await.map_err(|source| TftpError::Bind { listen, source })?;
        Ok(Self { socket, files: Arc::new(Files { loaders: Loaders::new(directory), advertise, neighbours }) })
    }

    /// The address that is listened on.
    ///
    /// # Errors
    /// When the socket cannot tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves until cancelled; transfers under way are then dropped, firmware asks again.
    ///
    /// # Errors
    /// [`TftpError::Receive`].
    pub async fn run(self, cancel: CancellationToken) -> Result<(), TftpError> {
        let gate = Gate::new(Limits { total: MAX_TRANSFERS, waiting: UNPROVEN, stalled: STALLED });
        let transfers = TaskTracker::new();
        let mut buffer = [0; 1500];
        loop {
            let (length, client) = tokio::select! {
                () = cancel.cancelled() => break,
                received = self.socket.recv_from(&mut buffer) => match received {
                    Ok(received) => received,
                    Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => continue,
                    Err(e) => return Err(TftpError::Receive(e)),
                },
            };
            match Incoming::parse(&buffer[..length]) {
                Some(Incoming::Read(mut request)) => {
                    if client.ip().to_canonical().is_ipv6() {
                        request.block = request.block.map(|block| block.min(packet::MAX_BLOCK_V6));
                    }
                    let each = each_of(client.ip(), TRANSFERS_EACH, MAX_TRANSFERS);
                    match gate.try_admit(&origin(client.ip()), each) {
                        Admission::Admitted(place) => {
                            let (files, cancel) = (self.files.clone(), cancel.clone());
                            transfers.spawn(async move {
                                tokio::select! {
                                    () = cancel.cancelled() => {}
                                    // Its place is already taken.
                                    () = place.seat().wanted() => {}
                                    () = files.serve(client, request, place.seat()) => {}
                                }
                            });
                        }
                        // No answer at all: the client asks again, and by then there is room.
                        Admission::Full => silent(client, &request, "too many transfers at once"),
                        Admission::TooMany => silent(client, &request, "its address has too many transfers"),
                    }
                }
                Some(Incoming::Write) => {
                    if let Some(left_out) = LINES.step() {
                        tracing::info!(service = "tftp", %client, answer = "error", reason = "read-only", left_out);
                    }
                    self.refuse(client, ACCESS_VIOLATION, "read-only").await;
                }
                Some(Incoming::OtherMode(mode)) => {
                    if let Some(left_out) = LINES.step() {
                        tracing::info!(
                            service = "tftp", %client, answer = "error", reason = "not octet mode", mode, left_out
                        );
                    }
                    self.refuse(client, UNDEFINED, "only octet mode is supported: set the client to binary").await;
                }
                // Stray acknowledgements and noise.
                _ => tracing::debug!(service = "tftp", %client, bytes = length, answer = "none"),
            }
        }
        transfers.close();
        transfers.wait().await;
        Ok(())
    }

    async fn refuse(&self, client: SocketAddr, code: u16, message: &str) {
        if let Err(error) = self.socket.send_to(&packet::error(code, message), client).await {
            tracing::debug!(service = "tftp", %client, %error, "cannot send the refusal");
        }
    }
}

fn silent(client: SocketAddr, request: &ReadRequest, reason: &str) {
    if let Some(left_out) = LINES.step() {
        let path = cut(&request.path, MAX_PATH);
        tracing::warn!(service = "tftp", %client, path, answer = "none", reason, left_out);
    }
}

fn failed(client: SocketAddr, mac: Option<String>, path: &str, bytes: usize, reason: &str) {
    if let Some(left_out) = LINES.step() {
        tracing::warn!(service = "tftp", %client, mac, path, bytes, done = false, reason, left_out);
    }
}

impl Files {
    async fn serve(&self, client: SocketAddr, request: ReadRequest, seat: &Arc<Seat>) {
        let path = cut(&request.path, MAX_PATH);
        let outcome = self.transfer(client, &request, seat).await;
        let mac = self.mac(client).await;
        let ended = match &outcome {
            Ok((_, Ending::Complete)) => "complete",
            Ok((_, Ending::SizeOnly)) => "sizeOnly",
            Ok((_, Ending::Refused(_))) => "refused",
            Ok((_, Ending::Silent)) => "silent",
            Err(_) => "failed",
        };
        metrics().tftp_transfers.of(&[("ended", ended)]).add(1);
        match outcome {
            Ok((bytes, Ending::Complete)) => {
                tracing::info!(service = "tftp", %client, mac, path, bytes, done = true);
            }
            Ok((bytes, Ending::SizeOnly)) => {
                tracing::info!(service = "tftp", %client, mac, path, bytes, done = false, reason = "size only");
            }
            Ok((bytes, Ending::Refused(reason))) => failed(client, mac, path, bytes, &reason),
            Ok((bytes, Ending::Silent)) => failed(client, mac, path, bytes, "client went silent"),
            Err(error) => failed(client, mac, path, 0, &error.to_string()),
        }
    }

    async fn mac(&self, client: SocketAddr) -> Option<String> {
        self.neighbours.mac(client).await.as_ref().map(MacAddr::to_string)
    }

    async fn transfer(
        &self, client: SocketAddr, request: &ReadRequest, seat: &Arc<Seat>,
    ) -> io::Result<(usize, Ending)> {
        // Off-address hosts (NAT, tests on loopback) cannot bind what they advertise.
        let from = client.ip().to_canonical();
        let answers = from.is_loopback() == self.advertise.is_loopback() && from.is_ipv4() == self.advertise.is_ipv4();
        let socket = match UdpSocket::bind((self.advertise, 0)).await {
            Ok(socket) if answers => socket,
            _ => UdpSocket::bind((own_any(client.ip()), 0)).await?,
        };
        socket.connect(client).await?;
        let refuse = async |code, message: &str| {
            // Best effort: a client that does not hear it times out.
            let _sent = socket.send(&packet::error(code, message)).await;
        };
        let Some(name) = LOADERS.into_iter().find(|name| request.path.trim_start_matches('/') == *name) else {
            refuse(NOT_FOUND, "no such file").await;
            return Err(io::Error::new(io::ErrorKind::NotFound, "not one of the loaders"));
        };
        match self.loaders.load(name).await {
            Ok(content) => send_file(&socket, request, &content, seat).await,
            Err(e) => {
                refuse(if e.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { UNDEFINED }, "cannot be read").await;
                Err(e)
            }
        }
    }
}

/// Any address of this host, of the client's version of IP.
const fn own_any(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// For the fuzz target of this parser.
pub type Asked = (String, u16, Option<u8>, Option<Vec<u8>>);

/// For the fuzz target of this parser.
pub fn fuzzing_request(packet: &[u8], size: usize) -> Option<Asked> {
    let Some(Incoming::Read(request)) = Incoming::parse(packet) else { return None };
    let ack = request.option_ack(size);
    Some((request.path, request.block.unwrap_or(packet::DEFAULT_BLOCK), request.timeout, ack))
}

#[cfg(test)]
mod tests;
