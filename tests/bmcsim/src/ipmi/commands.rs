//! Commands: of the session, of the BMC, of the chassis (20, 22, 28, 34).

use super::GUID;
use super::login::Session;
use super::sol;
use super::wire;
use crate::State;
use crate::computer::Computer;

/// The FRU data: no board, the product of maker ACME, model Anvil 3000, serial number ACME-1.
const FRU: &[u8] = b"\x01\0\0\0\x01\0\0\xfe\x01\x04\x19\xc4ACME\xcaAnvil 3000\xc0\xc0\xc6ACME-1\xc1\0\0\xe6";

/// A request outside sessions: Get Channel Authentication Capabilities alone.
pub(super) fn before_login(message: &[u8]) -> Option<Vec<u8>> {
    let (function, sequence, command, data) = wire::request(message)?;
    match (function, command, data) {
        // Version 2.0, no authentication of 1.5, every user has a name, sessions of 2.0.
        (6, 0x38, [0x8e, _]) => Some(wire::answer(6, sequence, command, 0, &[1, 0x80, 0x04, 0x02, 0, 0, 0, 0])),
        _ => Some(wire::answer(function, sequence, command, 0xd4, &[])),
    }
}

/// A request in a session.
pub(super) fn answer(message: &[u8], session: &mut Session, state: &mut State) -> Option<Vec<u8>> {
    let (function, sequence, command, data) = wire::request(message)?;
    if !state.takes(format!("{function:#04x} {command:#04x} {data:02x?}")) {
        return None;
    }
    state.computer.settle(&state.quirks);
    let (code, data) = result((function, command), data, session, state);
    Some(wire::answer(function, sequence, command, code, &data))
}

fn result(command: (u8, u8), data: &[u8], session: &mut Session, state: &mut State) -> (u8, Vec<u8>) {
    if session.privilege >= 3 {
        match command {
            (6, 0x48) => return sol::activate(data, &session.name(), state),
            (6, 0x49) => return sol::deactivate(data, &session.name(), state),
            (6, 0x4b) => return sol::instance(state),
            _ => {}
        }
    }
    let State { quirks, accounts, computer, serial, .. } = state;
    let changes = matches!(command, (0, 0x02 | 0x08));
    let needs = if changes && quirks.wants_administrator { 4 } else { 3 };
    let is_free = matches!(command, (6, 0x38 | 0x3b | 0x3c | 0x01 | 0x37) | (0, 0x01));
    if changes && quirks.read_only || !is_free && session.privilege < needs {
        return (0xd4, Vec::new());
    }
    match (command, data) {
        ((6, 0x3b), [0]) => (0, vec![session.privilege]),
        ((6, 0x3b), [wanted]) if *wanted > session.most() => (0x81, Vec::new()),
        ((6, 0x3b), [wanted]) => {
            session.privilege = *wanted;
            (0, vec![*wanted])
        }
        ((6, 0x3c), _) => {
            let name = session.name();
            accounts.sessions.retain(|open| *open != name);
            if serial.owner.as_ref() == Some(&name) {
                serial.owner = None;
            }
            (0, Vec::new())
        }
        ((6, 0x01), _) => (0, vec![0x20, 0x01, 0x01, 0x02, 0x02, 0x3f, 0xa2, 0x02, 0, 0, 1]),
        ((6, 0x37), _) => (0, GUID.to_vec()),
        ((0, 0x01), _) => (0, vec![u8::from(computer.is_on), 0, 0]),
        ((0, 0x02), [control]) => {
            let kind = match control {
                0 => "ForceOff",
                1 => "On",
                5 => "GracefulShutdown",
                _ => return (0xcc, Vec::new()),
            };
            (if computer.reset(kind, quirks) { 0 } else { 0xd5 }, Vec::new())
        }
        ((0, 0x08), [5, first, second, ..]) => {
            let once = first & 0x40 == 0;
            if !(quirks.reverts_boot || once && quirks.reverts_once) {
                set_flags(computer, *first, *second);
                computer.set_boot(quirks);
            }
            (0, Vec::new())
        }
        ((0, 0x08), [0, 2]) => (0x80, Vec::new()),
        ((0, 0x08), [0 | 3 | 4, ..]) => (0, Vec::new()),
        ((0, 0x09), [5, 0, 0]) => (0, [&[1, 5], flags(computer).as_slice()].concat()),
        ((0, 0x08 | 0x09), _) => (0x80, Vec::new()),
        ((0x0a, 0x40), []) => (0, [&[0x51, computer.sel.len() as u8], [0; 12].as_slice()].concat()),
        // Its clock began when it was made.
        ((0x0a, 0x48), []) => (0, 1000u32.to_le_bytes().to_vec()),
        ((0x0a, 0x43), [0, 0, low, high, 0, 0xff]) => {
            let newest = u16::try_from(computer.sel.len()).unwrap_or_default();
            let wanted = u16::from_le_bytes([*low, *high]);
            let id = if wanted == 0xffff { newest } else { wanted };
            match usize::from(id).checked_sub(1).and_then(|at| computer.sel.get(at)).filter(|record| record[2] != 0) {
                Some(record) => (0, [&[0xff, 0xff], &id.to_le_bytes(), &record[2..]].concat()),
                None => (0xcb, Vec::new()),
            }
        }
        ((0x0a, 0x10), [0]) => (0, vec![FRU.len() as u8, 0, 0]),
        ((0x0a, 0x11), [0, low, 0, count]) => match FRU.get(usize::from(*low)..) {
            Some(rest) => {
                let read = &rest[..rest.len().min(usize::from(*count))];
                (0, [&[read.len() as u8], read].concat())
            }
            None => (0xc9, Vec::new()),
        },
        _ => (0xc1, Vec::new()),
    }
}

fn set_flags(computer: &mut Computer, first: u8, second: u8) {
    let device = if first & 0x80 == 0 { 0 } else { second >> 2 & 0x0f };
    computer.target = match device {
        0 => "None",
        1 => "Pxe",
        _ => "Other",
    }
    .into();
    computer.enabled = match (device, first & 0x40) {
        (0, _) => "Disabled",
        (_, 0) => "Once",
        _ => "Continuous",
    }
    .into();
    computer.mode = if first & 0x20 == 0 { "Legacy" } else { "UEFI" }.into();
}

fn flags(computer: &Computer) -> [u8; 5] {
    let mode = if computer.mode == "UEFI" { 0x20 } else { 0 };
    let valid = match computer.enabled.as_str() {
        "Once" => 0x80,
        "Continuous" => 0xc0,
        _ => 0,
    };
    let device = if computer.target == "Pxe" { 0x04 } else { 0 };
    [valid | mode, device, 0, 0, 0]
}
