//! The neighbours of the ports, as they announce themselves by LLDP: every half minute, by default.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::time::Duration;
use std::{future, io, thread};

use landfall_api::{MachineFacts, Neighbour};
use nix::net::if_::if_indextoname;
use nix::sys::socket::{LinkAddr, recvfrom, setsockopt};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::watch;
use tokio::time::sleep;

use super::lldp::{self, ETHER_TYPE};
use super::original_port::OriginalPort;

/// A longer frame is not read to its end. A port takes 1500 bytes, unless the MTU is changed.
const FRAME: usize = 1500;
/// The thread looks so often whether it is still needed, and waits so long after an error.
const LOOK: Duration = Duration::from_secs(10);
/// Between an announcement and new facts.
const SETTLE: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 5 });

/// By the port's name.
type Known = BTreeMap<String, Neighbour>;

/// What was heard last on each port.
#[derive(Clone)]
pub(crate) struct Neighbours(watch::Receiver<Known>);

impl Neighbours {
    /// Listens on every port.
    ///
    /// # Errors
    /// The kernel has no packet sockets, or the process may have none.
    pub(super) fn listen() -> io::Result<Self> {
        // Of one EtherType on every port. Without the header of the frame: only the payload is read.
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(i32::from(ETHER_TYPE.to_be()))))?;
        socket.set_read_timeout(Some(LOOK))?;
        setsockopt(&socket, OriginalPort, &true)?;
        let (sender, known) = watch::channel(Known::new());
        thread::Builder::new().name("lldp".into()).spawn(move || follow(&socket, &sender))?;
        Ok(Self(known))
    }

    /// There are none.
    pub(crate) fn none() -> Self {
        Self(watch::channel(Known::new()).1)
    }

    /// Adds to each port what is at its other end.
    pub(crate) fn fill(&self, facts: &mut MachineFacts) {
        let known = self.0.borrow();
        for nic in &mut facts.nics {
            nic.neighbour = known.get(&nic.name).cloned();
        }
    }

    /// Waits until one is heard that `facts` do not name.
    pub(crate) async fn changed(&self, facts: &MachineFacts) {
        let is_new = |known: &Known| {
            let mut ports = facts.nics.iter();
            ports.any(|nic| known.get(&nic.name).is_some_and(|heard| nic.neighbour.as_ref() != Some(heard)))
        };
        if self.0.clone().wait_for(is_new).await.is_err() {
            future::pending::<()>().await;
        }
        // Others may follow; and a cable full of announcements must not have the facts sent without pause.
        sleep(SETTLE).await;
    }
}

fn follow(socket: &Socket, known: &watch::Sender<Known>) {
    while !known.is_closed() {
        match hear(socket) {
            Ok(Some((port, neighbour))) => {
                known.send_if_modified(|known| known.insert(port, neighbour.clone()) != Some(neighbour));
            }
            Ok(None) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => {
                tracing::debug!("LLDP: {e}");
                thread::sleep(LOOK);
            }
        }
    }
}

/// The next frame: the port that it came by, and what it announces.
fn hear(socket: &Socket) -> io::Result<Option<(String, Neighbour)>> {
    let mut frame = [0; FRAME];
    let (length, from) = recvfrom::<LinkAddr>(socket.as_raw_fd(), &mut frame)?;
    let index = from.and_then(|from| u32::try_from(from.ifindex()).ok());
    // The port may have gone.
    let port = index.and_then(|index| if_indextoname(index).ok()?.into_string().ok());
    Ok(port.zip(lldp::read(&frame[..length])))
}
