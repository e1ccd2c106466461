//! IPMI 2.0 over LAN, the BMC's side, with cipher suites 3 and 17. Written from the specification (v2.0 rev. 1.1), and not from the
//! client.

mod commands;
mod crypto;
mod login;
mod wire;

use std::collections::HashMap;

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use crate::shared::Shared;

use self::login::Session;
use self::wire::Arrived;

/// The BMC's GUID, as SMBIOS writes it: 01234567-89ab-4cde-8f01-23456789abcd.
const GUID: [u8; 16] = *b"\x67\x45\x23\x01\xab\x89\xde\x4c\x8f\x01\x23\x45\x67\x89\xab\xcd";

/// Answers until the task is aborted: its port, and the task.
pub(crate) async fn spawn(shared: Shared) -> (u16, JoinHandle<()>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port on loopback");
    let port = socket.local_addr().expect("an address").port();
    let task = tokio::spawn(async move {
        let mut controller = Controller { shared, sessions: HashMap::new(), arrived: HashMap::new(), last: Vec::new() };
        let mut buffer = [0; 1024];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            for packet in controller.answers(&buffer[..length]) {
                // The client may be gone.
                drop(socket.send_to(&packet, from).await);
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
}

impl Controller {
    /// What a packet is answered with, and what the quirks make of that.
    fn answers(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
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
        let Some(answer) = self.answer(&arrived) else { return Vec::new() };
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

    fn answer(&mut self, arrived: &Arrived<'_>) -> Option<Vec<u8>> {
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
                let answer = commands::answer(&message, session, &mut state)?;
                Some(session.seal(&answer))
            }
        }
    }
}
