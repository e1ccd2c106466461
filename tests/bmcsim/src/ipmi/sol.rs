//! Serial over LAN, the BMC's side (15, 24). Written from the specification, and not from the client.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

use crate::State;

/// Characters of a packet to the client at most.
const CHUNK: usize = 32;
/// A packet is sent again after so long.
const AGAIN: Duration = Duration::from_millis(100);

/// A packet that the client has not acknowledged.
struct Flight {
    sequence: u8,
    characters: Vec<u8>,
    sent: u32,
    at: Instant,
}

/// The packets of both directions.
#[derive(Default)]
pub(super) struct Sol {
    /// Where each session's packets come from.
    from: HashMap<String, SocketAddr>,
    /// The owner at the last look.
    owner: Option<String>,
    sent: u8,
    flight: Option<Flight>,
    /// The newest packet of the client, how much of it was taken, and how often it came.
    newest: (u8, usize, u32),
}

/// A packet: to which session, where that is, and what.
pub(super) type Outgoing = (String, SocketAddr, Vec<u8>);

/// Activate Payload (24.1).
pub(super) fn activate(data: &[u8], session: &str, state: &mut State) -> (u8, Vec<u8>) {
    let State { serial, quirks, accounts, .. } = state;
    let is_other = serial.owner.as_ref().is_some_and(|owner| owner != session && accounts.sessions.contains(owner));
    match data {
        [1, 1, ..] if quirks.console_off => (0x81, Vec::new()),
        [1, 1, ..] if quirks.console_taken || is_other => (0x80, Vec::new()),
        // Neither encrypted nor authenticated is refused.
        [1, 1, flags, ..] if flags & 0xc0 != 0xc0 => (0x84, Vec::new()),
        [1, 1, _, 0, 0, 0] => {
            serial.owner = Some(session.to_owned());
            serial.activated += 1;
            let (port, size) = (623u16.to_le_bytes(), (CHUNK as u16 + 4).to_le_bytes());
            (0, [&[0, 0, 0, 0], &size[..], &size, &port, &[0xff, 0xff]].concat())
        }
        _ => (0xcc, Vec::new()),
    }
}

/// Deactivate Payload (24.2).
pub(super) fn deactivate(data: &[u8], session: &str, state: &mut State) -> (u8, Vec<u8>) {
    if data != [1, 1, 0, 0, 0, 0] {
        return (0xcc, Vec::new());
    }
    let was_taken = std::mem::take(&mut state.quirks.console_taken);
    match state.serial.owner.take() {
        None if !was_taken => return (0x80, Vec::new()),
        None => {}
        Some(owner) => state.serial.evicted = (owner != session).then_some(owner),
    }
    state.serial.deactivated += 1;
    (0, Vec::new())
}

/// Get Payload Instance Info (24.5).
pub(super) fn instance(state: &State) -> (u8, Vec<u8>) {
    let owner = state.serial.owner.as_ref().and_then(|name| u32::from_str_radix(name, 16).ok());
    (0, [&owner.unwrap_or_default().to_le_bytes()[..], &[0; 8]].concat())
}

impl Sol {
    /// A packet of a session: the answer to it, if any.
    pub(super) fn take(
        &mut self, payload: &[u8], session: &str, from: SocketAddr, state: &mut State,
    ) -> Option<Vec<u8>> {
        let [sequence, acknowledges, _, operation, characters @ ..] = payload else { return None };
        self.from.insert(session.to_owned(), from);
        self.look(state);
        if state.serial.owner.as_deref() != Some(session) {
            return None;
        }
        if self.flight.as_ref().is_some_and(|flight| flight.sequence == *acknowledges && operation & 0x40 == 0) {
            self.flight = None;
        }
        let State { serial, quirks, computer, .. } = state;
        if *sequence == 0 {
            return None;
        }
        if self.newest.0 == *sequence {
            self.newest.2 += 1;
        } else {
            self.newest = (*sequence, usize::MAX, 1);
        }
        if quirks.console_loses && self.newest.2 == 1 {
            return None;
        }
        let answer = |accepted: usize, status: u8| Some(vec![0, *sequence, accepted as u8, status]);
        if quirks.console_needs_power && !computer.is_on {
            return answer(0, 0x60);
        }
        if quirks.console_refuses > 0 {
            quirks.console_refuses -= 1;
            return answer(0, 0x40);
        }
        if self.newest.1 == usize::MAX {
            let taken = characters.len().min(quirks.console_takes.unwrap_or(usize::MAX));
            serial.typed.extend(&characters[..taken]);
            serial.breaks += u32::from(operation & 0x10 != 0);
            if serial.echoes {
                serial.output.extend(&characters[..taken]);
            }
            self.newest.1 = taken;
        }
        answer(self.newest.1, 0)
    }

    /// A new owner begins with new numbers.
    fn look(&mut self, state: &State) {
        if self.owner != state.serial.owner {
            self.owner.clone_from(&state.serial.owner);
            (self.sent, self.flight, self.newest) = (0, None, (0, 0, 0));
        }
    }

    /// What is to be sent now.
    pub(super) fn due(&mut self, state: &mut State) -> Vec<Outgoing> {
        self.look(state);
        let mut out = Vec::new();
        if let Some(gone) = state.serial.evicted.take()
            && let Some(from) = self.from.get(&gone)
        {
            out.push((gone, *from, vec![0, 0, 0, 0x10]));
        }
        let Some((owner, from)) = self.owner.as_ref().and_then(|owner| Some((owner.clone(), *self.from.get(owner)?)))
        else {
            return out;
        };
        if self.flight.is_none() && !state.serial.output.is_empty() {
            self.sent = self.sent % 15 + 1;
            let count = state.serial.output.len().min(CHUNK);
            let characters = state.serial.output.drain(..count).collect();
            self.flight = Some(Flight { sequence: self.sent, characters, sent: 0, at: Instant::now() });
        }
        if let Some(flight) = self.flight.as_mut().filter(|flight| flight.at <= Instant::now()) {
            flight.sent += 1;
            flight.at = Instant::now() + AGAIN;
            let packet = [&[flight.sequence, 0, 0, 0], flight.characters.as_slice()].concat();
            let copies = match flight.sent {
                1 if state.quirks.console_loses => 0,
                _ if state.quirks.console_repeats => 2,
                _ => 1,
            };
            out.extend(std::iter::repeat_n((owner, from, packet), copies));
        }
        out
    }

    /// A session begins or goes on: where its packets come from.
    pub(super) fn note(&mut self, session: &str, from: SocketAddr) {
        self.from.insert(session.to_owned(), from);
    }

    /// When something is due next.
    pub(super) fn wakes(&self) -> Option<Instant> {
        self.flight.as_ref().map(|flight| flight.at)
    }
}
