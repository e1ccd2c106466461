//! IPMI 2.0 over LAN, the BMC's side, with cipher suites 3 and 17. Written from the specification (v2.0 rev. 1.1), and not from the
//! client.

mod commands;
mod crypto;
mod login;
mod sol;
mod wire;

use std::collections::HashMap;
use std::net::SocketAddr;

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::shared::Shared;

use self::login::Session;
use self::sol::{Outgoing, Sol};
use self::wire::Arrived;

/// The BMC's GUID, as SMBIOS writes it: 01234567-89ab-4cde-8f01-23456789abcd.
const GUID: [u8; 16] = *b"\x67\x45\x23\x01\xab\x89\xde\x4c\x8f\x01\x23\x45\x67\x89\xab\xcd";

/// Answers until the task is aborted: its port, and the task.
pub(crate) async fn spawn(shared: Shared) -> (u16, JoinHandle<()>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port on loopback");
    let port = socket.local_addr().expect("an address").port();
    let task = tokio::spawn(async move {
        let mut changes = shared.changed.subscribe();
        let mut controller = Controller {
            shared,
            sessions: HashMap::new(),
            arrived: HashMap::new(),
            last: Vec::new(),
            sol: Sol::default(),
        };
        let mut buffer = [0; 1024];
        loop {
            let wakes = controller.sol.wakes();
            tokio::select! {
                received = socket.recv_from(&mut buffer) => {
                    // Word of a client that is gone is no packet.
                    let Ok((length, from)) = received else { continue };
                    for packet in controller.answers(&buffer[..length], from) {
                        drop(socket.send_to(&packet, from).await);
                    }
                }
                _ = changes.changed() => {}
                () = sleep_until(wakes.unwrap_or_else(Instant::now)), if wakes.is_some() => {}
            }
            for (packet, to) in controller.serial() {
                drop(socket.send_to(&packet, to).await);
            }
        }
    });
    (port, task)
}

struct Controller {
    shared: Shared,
    /// By their ids here.
    sessions: HashMap<u32, Session>,
    /// Packets of each kind so far.
    arrived: HashMap<u8, u32>,
    /// The newest answer.
    last: Vec<u8>,
    sol: Sol,
}

impl Controller {
    /// What a packet is answered with, and what the quirks make of that.
    fn answers(&mut self, bytes: &[u8], from: SocketAddr) -> Vec<Vec<u8>> {
        let quirks = self.shared.lock().quirks.clone();
        let Some(arrived) = wire::read(bytes) else { return Vec::new() };
        let count = self.arrived.entry(arrived.kind()).or_default();
        *count += 1;
        let dropped = quirks.drops_packets && *count % 2 == 1;
        if quirks.is_down || dropped {
            return Vec::new();
        }
        self.shared.lock().requests.push(format!("payload {:#04x}", arrived.kind()));
        self.shared.notify();
        if quirks.hangs {
            return Vec::new();
        }
        let Some(answer) = self.answer(&arrived, from) else { return Vec::new() };
        let mut sent = vec![answer.clone()];
        if quirks.answers_twice {
            sent.push(answer.clone());
        }
        if quirks.repeats_old && !self.last.is_empty() {
            sent.insert(0, self.last.clone());
        }
        self.last = answer;
        self.shared.notify();
        sent
    }

    fn answer(&mut self, arrived: &Arrived<'_>, from: SocketAddr) -> Option<Vec<u8>> {
        let mut state = self.shared.lock();
        match arrived {
            Arrived::Early(message) => Some(wire::early(&commands::before_login(message)?)),
            Arrived::Setup(kind, payload) => {
                let (kind, payload) = match kind {
                    0x10 => (0x11, login::open(payload, &mut self.sessions, &state.quirks)?),
                    0x12 => (0x13, login::first(payload, &mut self.sessions, &mut state)?),
                    0x14 => (0x15, login::second(payload, &mut self.sessions, &mut state)?),
                    _ => return None,
                };
                Some(wire::setup(kind, &payload))
            }
            Arrived::Session(packet) => {
                let session = self.sessions.get_mut(&packet.session)?;
                if !state.accounts.sessions.contains(&session.name()) {
                    return None;
                }
                let message = session.open(packet)?;
                self.sol.note(&session.name(), from);
                if packet.is_sol {
                    let answer = self.sol.take(&message, &session.name(), from, &mut state)?;
                    return Some(session.seal(1, &answer));
                }
                let answer = commands::answer(&message, session, &mut state)?;
                Some(session.seal(0, &answer))
            }
        }
    }

    /// What Serial over LAN has to send, and where.
    fn serial(&mut self) -> Vec<(Vec<u8>, SocketAddr)> {
        let mut state = self.shared.lock();
        if state.quirks.is_down || state.quirks.hangs {
            return Vec::new();
        }
        let (due, sessions) = (self.sol.due(&mut state), &mut self.sessions);
        let sealed = |(name, to, payload): Outgoing| {
            let session = sessions.values_mut().find(|session| session.name() == name)?;
            state.accounts.sessions.contains(&name).then(|| (session.seal(1, &payload), to))
        };
        due.into_iter().filter_map(sealed).collect()
    }
}
