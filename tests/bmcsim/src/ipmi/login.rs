//! Open Session and RAKP 1 to 4, and the session that they make (13.17 to 13.32).

use std::collections::{HashMap, HashSet};

use ring::rand::{SecureRandom as _, SystemRandom};

use super::GUID;
use super::crypto::{decrypt, encrypt, short, sign, sign_short};
use super::wire::{self, Sealed, number};
use crate::quirks::Quirks;
use crate::{State, USERNAME};

/// A session, open or on the way.
pub(super) struct Session {
    id: u32,
    console: u32,
    suite: u8,
    console_random: Vec<u8>,
    random: [u8; 16],
    role: u8,
    username: Vec<u8>,
    keys: Option<[Vec<u8>; 2]>,
    sent: u32,
    received: HashSet<u32>,
    /// The present privilege: a user's at first.
    pub(super) privilege: u8,
}

impl Session {
    /// Its name among the open ones.
    pub(super) fn name(&self) -> String {
        format!("{:08x}", self.id)
    }

    /// What RAKP 1 asked for at most.
    pub(super) const fn most(&self) -> u8 {
        self.role & 0x0f
    }

    fn role_and_name(&self) -> Vec<u8> {
        [&[self.role, self.username.len() as u8], self.username.as_slice()].concat()
    }

    pub(super) fn open(&mut self, packet: &Sealed<'_>) -> Option<Vec<u8>> {
        let [integrity, encryption] = self.keys.as_ref()?;
        let (signed, code) = packet.all.split_at_checked(packet.all.len().checked_sub(short(self.suite))?)?;
        if !signed.len().is_multiple_of(4) || sign_short(self.suite, integrity, signed) != code {
            return None;
        }
        // A packet that is sent again needs a number of its own.
        if !self.received.insert(packet.sequence) {
            return None;
        }
        decrypt(encryption, packet.encrypted)
    }

    pub(super) fn seal(&mut self, kind: u8, message: &[u8]) -> Vec<u8> {
        let Some([integrity, encryption]) = &self.keys else { return Vec::new() };
        self.sent += 1;
        let mut packet = wire::session(kind, self.console, self.sent, &encrypt(encryption, self.sent, message));
        let code = sign_short(self.suite, integrity, &packet[4..]);
        packet.extend(code);
        packet
    }
}

/// The start of an answer: tag, status, and two bytes; then the console's id.
fn begin(tag: u8, status: u8, third: u8, console: u32) -> Vec<u8> {
    [&[tag, status, third, 0], console.to_le_bytes().as_slice()].concat()
}

pub(super) fn open(payload: &[u8], sessions: &mut HashMap<u32, Session>, quirks: &Quirks) -> Option<Vec<u8>> {
    if payload.len() != 32 {
        return None;
    }
    let (tag, console) = (payload[0], number(&payload[4..])?);
    let suite = match (payload[12], payload[20], payload[28]) {
        (1, 1, 1) => 3,
        (3, 4, 1) => 17,
        _ => 0,
    };
    let known = if quirks.suites.is_empty() { suite != 0 } else { quirks.suites.contains(&suite) };
    if !known && quirks.ignores_suites {
        return None;
    }
    if !known {
        // "No cipher suite match with proposed security algorithms".
        return Some(begin(tag, 0x11, 0, console));
    }
    let id = 0x0200_0001 + sessions.len() as u32;
    let mut random = [0; 16];
    SystemRandom::new().fill(&mut random).ok()?;
    sessions.insert(
        id,
        Session {
            id,
            console,
            suite,
            console_random: Vec::new(),
            random,
            role: 0,
            username: Vec::new(),
            keys: None,
            sent: 0,
            received: HashSet::new(),
            privilege: 2,
        },
    );
    let mut answer = begin(tag, 0, 4, console);
    answer.extend(id.to_le_bytes());
    answer.extend(&payload[8..]);
    Some(answer)
}

/// RAKP 1: answered with 2.
pub(super) fn first(payload: &[u8], sessions: &mut HashMap<u32, Session>, state: &mut State) -> Option<Vec<u8>> {
    let (tag, length) = (*payload.first()?, usize::from(*payload.get(27)?));
    let Some(session) = sessions.get_mut(&number(&payload[4..])?) else { return Some(begin(tag, 0x02, 0, 0)) };
    session.console_random = payload[8..24].to_vec();
    session.role = payload[24];
    session.username = payload.get(28..28 + length)?.to_vec();
    let console = session.console;
    if session.role & 0x10 == 0 || session.username != USERNAME.as_bytes() || state.accounts.is_locked {
        // "Unauthorized name": like OpenBMC without the tag and the id.
        state.accounts.fails(&state.quirks);
        return Some(begin(0, 0x0d, 0, 0));
    }
    if state.quirks.is_operator && session.most() > 3 {
        return Some(begin(tag, 0x0a, 0, console));
    }
    let signed = [
        console.to_le_bytes().as_slice(),
        &session.id.to_le_bytes(),
        &session.console_random,
        &session.random,
        &GUID,
        &session.role_and_name(),
    ]
    .concat();
    let code = sign(session.suite, state.accounts.password.as_bytes(), &signed);
    let mut answer = begin(tag, 0, 0, console);
    answer.extend(session.random);
    answer.extend(GUID);
    answer.extend(code);
    Some(answer)
}

/// RAKP 3: answered with 4. Here a wrong password counts.
pub(super) fn second(payload: &[u8], sessions: &mut HashMap<u32, Session>, state: &mut State) -> Option<Vec<u8>> {
    let (tag, id) = (*payload.first()?, number(payload.get(4..)?)?);
    let Some(session) = sessions.get_mut(&id) else { return Some(begin(tag, 0x02, 0, 0)) };
    let password = state.accounts.password.as_bytes();
    let proof = [session.random.as_slice(), &session.console.to_le_bytes(), &session.role_and_name()].concat();
    if payload[8..] != sign(session.suite, password, &proof) {
        state.accounts.fails(&state.quirks);
        return Some(begin(tag, 0x0f, 0, session.console));
    }
    let both = [&session.console_random, session.random.as_slice(), &session.role_and_name()].concat();
    let key = sign(session.suite, password, &both);
    session.keys = Some([1, 2].map(|constant| sign(session.suite, &key, &[constant; 20])));
    let name = session.name();
    if !state.accounts.sessions.contains(&name) {
        state.accounts.opened += 1;
        state.accounts.sessions.push(name);
    }
    let check = [session.console_random.as_slice(), &id.to_le_bytes(), &GUID].concat();
    let mut answer = begin(tag, 0, 0, session.console);
    answer.extend(sign_short(session.suite, &key, &check));
    Some(answer)
}
