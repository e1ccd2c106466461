//! Serial over LAN from its activation on: one packet at a time each way, acknowledged and sent again (15.11). Pure: the caller says what
//! time it is.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::sol::{self, Packet, status};
use crate::ConsoleEvent;

/// A packet is sent again after so long without an acknowledgement, or after the BMC refused it.
const AGAIN: Duration = Duration::from_millis(500);
/// So often a packet is sent in all: 10 s. A BMC that starts its computer refuses characters for some seconds.
const TRIES: u32 = 20;
/// Bytes that wait to be sent at most; more are not taken from the caller.
const MAX_WAITING: usize = 4096;

/// What waits to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Typed {
    Byte(u8),
    Break,
}

/// The packet that is not acknowledged yet.
#[derive(Debug)]
struct Flight {
    sequence: u8,
    /// Empty: a break.
    characters: Vec<u8>,
    /// How often it was sent since characters of it were last taken.
    tries: u32,
    /// When it is to be sent.
    at: Instant,
}

/// Both directions.
#[derive(Debug)]
pub(super) struct Link {
    /// Characters of one packet.
    chunk: usize,
    waiting: VecDeque<Typed>,
    flight: Option<Flight>,
    /// The number of the newest packet sent.
    sent: u8,
    /// The number of the newest packet received, 0: none; and how many characters it had.
    received: (u8, usize),
    unavailable: bool,
    events: VecDeque<ConsoleEvent>,
    ended: bool,
}

impl Link {
    pub(super) fn new(chunk: usize) -> Self {
        Self {
            chunk,
            waiting: VecDeque::new(),
            flight: None,
            sent: 0,
            received: (0, 0),
            unavailable: false,
            events: VecDeque::new(),
            ended: false,
        }
    }

    /// Whether more may be typed.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < MAX_WAITING
    }

    /// Whether all that was typed has been taken.
    pub(super) fn is_idle(&self) -> bool {
        self.flight.is_none() && self.waiting.is_empty()
    }

    pub(super) fn type_in(&mut self, bytes: &[u8]) {
        self.waiting.extend(bytes.iter().copied().map(Typed::Byte));
    }

    pub(super) fn send_break(&mut self) {
        self.waiting.push_back(Typed::Break);
    }

    /// What has happened, the oldest first.
    pub(super) fn event(&mut self) -> Option<ConsoleEvent> {
        self.events.pop_front()
    }

    /// Whether the BMC says that it has ended it.
    pub(super) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// When [`Link::due`] may have something next; absent: not before something else happens.
    pub(super) fn wakes(&self) -> Option<Instant> {
        self.flight.as_ref().map(|flight| flight.at)
    }

    /// A packet to be sent now.
    pub(super) fn due(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.flight.as_ref().is_some_and(|flight| flight.tries == TRIES && flight.at <= now) {
            // It is not sent on later: who typed it for what was on the screen then has another before them now.
            let in_flight = self.flight.take().map_or(0, |flight| flight.characters.len().max(1));
            self.events.push_back(ConsoleEvent::Unsent(in_flight + self.waiting.len()));
            self.waiting.clear();
        }
        if self.flight.is_none() {
            let characters = match self.waiting.front()? {
                Typed::Break => {
                    self.waiting.pop_front();
                    Vec::new()
                }
                Typed::Byte(_) => self.characters(),
            };
            self.sent = sol::after(self.sent);
            self.flight = Some(Flight { sequence: self.sent, characters, tries: 0, at: now });
        }
        let flight = self.flight.as_mut().filter(|flight| flight.at <= now)?;
        flight.tries += 1;
        flight.at = now + AGAIN;
        Some(match flight.characters.as_slice() {
            [] => sol::break_for(flight.sequence),
            characters => sol::characters(flight.sequence, characters),
        })
    }

    /// The next characters, up to a break.
    fn characters(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        while let (true, Some(Typed::Byte(byte))) = (out.len() < self.chunk, self.waiting.front()) {
            out.push(*byte);
            self.waiting.pop_front();
        }
        out
    }

    /// Takes a packet from the BMC; the acknowledgement that is to be sent, if any.
    pub(super) fn take(&mut self, payload: &[u8], now: Instant) -> Option<Vec<u8>> {
        let packet = sol::packet(payload)?;
        self.acknowledged(&packet, now);
        let is = |bit: u8| packet.status & bit != 0;
        if is(status::UNAVAILABLE) != self.unavailable {
            self.unavailable = is(status::UNAVAILABLE);
            let event = if self.unavailable { ConsoleEvent::Unavailable } else { ConsoleEvent::Available };
            self.events.push_back(event);
        }
        let answer = self.characters_of(&packet);
        self.ended |= is(status::DEACTIVATED);
        answer
    }

    /// What the BMC says of the packet that was sent last.
    fn acknowledged(&mut self, packet: &Packet<'_>, now: Instant) {
        let Some(flight) = &mut self.flight else { return };
        if packet.acknowledges != flight.sequence {
            return;
        }
        let (accepted, is_refused) = (usize::from(packet.accepted), packet.status & status::NACK != 0);
        // Intel's acknowledge a whole packet with a count of zero.
        if !is_refused && (accepted == 0 || accepted >= flight.characters.len()) {
            self.flight = None;
            return;
        }
        let taken = accepted.min(flight.characters.len());
        if taken > 0 {
            flight.characters.drain(..taken);
            flight.tries = 0;
            if flight.characters.is_empty() {
                self.flight = None;
                return;
            }
            // What is left is another packet: with the same number the BMC would take it for a copy.
            self.sent = sol::after(self.sent);
            flight.sequence = self.sent;
        }
        // An answer that is repeated does not put the next try off.
        flight.at = if is_refused || taken == 0 { flight.at.min(now + AGAIN) } else { now };
    }

    /// What the computer wrote, each character once.
    fn characters_of(&mut self, packet: &Packet<'_>) -> Option<Vec<u8>> {
        let (newest, before) = self.received;
        let (sequence, length) = (packet.sequence, packet.characters.len());
        if sequence == 0 {
            return None;
        }
        // Late: the one before, which is acknowledged already.
        let is_late = newest != 0 && sol::after(sequence) == newest;
        if !is_late {
            // One that is sent again may have more than the first time.
            let known = if sequence == newest { before } else { 0 };
            let is_new = sequence != newest;
            if is_new && packet.status & status::OVERRUN != 0 {
                self.events.push_back(ConsoleEvent::Overrun);
            }
            if let Some(new @ [_, ..]) = packet.characters.get(known..) {
                self.events.push_back(ConsoleEvent::Output(new.to_vec()));
            }
            if is_new && packet.status & status::BREAK != 0 {
                self.events.push_back(ConsoleEvent::Break);
            }
            self.received = (sequence, length.max(known));
        }
        Some(sol::acknowledgement(sequence, length))
    }
}

#[cfg(test)]
#[path = "sol_tests.rs"]
mod tests;
