//! TFTP, read-only, for the two or three loaders that firmware fetches.
//!
//! Own code instead of the async-tftp crate: that one brings a second async runtime, takes any number of transfers at
//! once, follows the client's block size into IP fragments, and does not tell how a transfer ended, which the log must.

mod packet;
mod transfer;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use landfall_api::MacAddr;
use tokio::{net::UdpSocket, sync::Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::packet::{ACCESS_VIOLATION, Incoming, NOT_FOUND, ReadRequest, UNDEFINED};
use self::transfer::{Ending, send_file};
use super::dhcp::bootfile::{ARM64_LOADER, BIOS_LOADER, UEFI_LOADER};
use super::neighbours::Neighbours;

/// Everything that is served; a name not in here does not exist.
pub const LOADERS: [&str; 3] = [BIOS_LOADER, UEFI_LOADER, ARM64_LOADER];

/// Transfers at one time. Firmware asks again by itself, so a whole rack powered on at once only waits.
const MAX_TRANSFERS: usize = 64;
/// A loader is a few hundred kilobytes; something larger is not one.
const MAX_FILE: u64 = 16 << 20;

/// Why the TFTP service cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum TftpError {
    /// The port cannot be had.
    #[error("cannot listen for TFTP on {listen}; is another TFTP server running, or are the rights missing?")]
    Bind {
        /// The address.
        listen: SocketAddr,
        /// Why.
        source: io::Error,
    },
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
    directory: PathBuf,
    advertise: Ipv4Addr,
    neighbours: Neighbours,
}

impl TftpService {
    /// Binds the port. Transfers answer from `advertise`, the address that clients asked.
    ///
    /// # Errors
    /// [`TftpError::Bind`].
    pub async fn start(
        listen: SocketAddr,
        directory: PathBuf,
        advertise: Ipv4Addr,
        neighbours: Neighbours,
    ) -> Result<Self, TftpError> {
        let socket = UdpSocket::bind(listen).await.map_err(|source| TftpError::Bind { listen, source })?;
        Ok(Self { socket, files: Arc::new(Files { directory, advertise, neighbours }) })
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
        let places = Arc::new(Semaphore::new(MAX_TRANSFERS));
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
                Some(Incoming::Read(request)) => match places.clone().try_acquire_owned() {
                    Ok(place) => {
                        let (files, cancel) = (self.files.clone(), cancel.clone());
                        transfers.spawn(async move {
                            let _place = place;
                            tokio::select! {
                                () = cancel.cancelled() => {}
                                () = files.serve(client, request) => {}
                            }
                        });
                    }
                    // No answer at all: the client asks again, and by then there is room.
                    Err(_) => tracing::warn!(service = "tftp", %client, path = request.path, answer = "none",
                        reason = "too many transfers at once"),
                },
                Some(Incoming::Write) => {
                    tracing::info!(service = "tftp", %client, answer = "error", reason = "read-only");
                    self.refuse(client, ACCESS_VIOLATION, "read-only").await;
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
            tracing::debug!(service = "tftp", %client, %error, "the refusal could not be sent");
        }
    }
}

impl Files {
    async fn serve(&self, client: SocketAddr, request: ReadRequest) {
        let mac = self.mac(client);
        let path = request.path.as_str();
        match self.transfer(client, &request).await {
            Ok((bytes, Ending::Complete)) => {
                tracing::info!(service = "tftp", %client, mac, path, bytes, done = true);
            }
            Ok((bytes, Ending::SizeOnly)) => {
                tracing::info!(service = "tftp", %client, mac, path, bytes, done = false, reason = "size only");
            }
            Ok((bytes, Ending::Refused(reason))) => {
                tracing::warn!(service = "tftp", %client, mac, path, bytes, done = false, reason);
            }
            Ok((bytes, Ending::Silent)) => {
                tracing::warn!(service = "tftp", %client, mac, path, bytes, done = false, reason = "client went silent");
            }
            Err(error) => tracing::warn!(service = "tftp", %client, mac, path, bytes = 0, done = false, %error),
        }
    }

    fn mac(&self, client: SocketAddr) -> Option<String> {
        let IpAddr::V4(ip) = client.ip() else { return None };
        self.neighbours.mac(ip).as_ref().map(MacAddr::to_string)
    }

    async fn transfer(&self, client: SocketAddr, request: &ReadRequest) -> io::Result<(usize, Ending)> {
        // Off-address hosts (NAT, tests on loopback) cannot bind what they advertise.
        let socket = match UdpSocket::bind((self.advertise, 0)).await {
            Ok(socket) if client.ip().is_loopback() == self.advertise.is_loopback() => socket,
            _ => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?,
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
        match self.load(name).await {
            Ok(content) => send_file(&socket, request, &content).await,
            Err(e) => {
                refuse(if e.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { UNDEFINED }, "cannot be read").await;
                Err(e)
            }
        }
    }

    async fn load(&self, name: &str) -> io::Result<Vec<u8>> {
        let path = self.directory.join(name);
        let length = tokio::fs::metadata(&path).await?.len();
        if length > MAX_FILE {
            return Err(io::Error::other(format!("{} has {length} bytes, more than any loader", path.display())));
        }
        tokio::fs::read(&path).await
    }
}

#[cfg(test)]
mod tests;
