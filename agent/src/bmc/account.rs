//! An account in the BMC, for who comes over its LAN port: finds its place in the BMC's list of users, sets it, and has the BMC prove it.

use std::io;
use std::net::IpAddr;

use landfall_api::{BmcAccount, BmcAccountResult, BmcPrivilege};

use super::device::{Answer, Command, Device};
use super::lan;

// By the section that defines each.

/// 22.26.
const SET_USER_ACCESS: Command = Command(0x06, 0x43);
/// 22.27.
const GET_USER_ACCESS: Command = Command(0x06, 0x44);
/// 22.28.
const SET_USER_NAME: Command = Command(0x06, 0x45);
/// 22.29.
const GET_USER_NAME: Command = Command(0x06, 0x46);
/// 22.30; also enables a user, and tests a password.
const SET_USER_PASSWORD: Command = Command(0x06, 0x47);

// What that command is to do.
const DISABLE: u8 = 0;
const ENABLE: u8 = 1;
const SET: u8 = 2;
const TEST: u8 = 3;
/// With the number of the user: the password stands in 20 bytes, else in 16.
const IN_20_BYTES: u8 = 0x80;

/// The access of a user on a channel: a restriction to callbacks, and IPMI's messages allowed.
const CALLBACK_ONLY: u8 = 0x40;
const MESSAGES: u8 = 0x10;
/// With which it is set: the byte counts, link authentication and IPMI's messages are allowed.
const ALLOW: u8 = 0x80 | 0x20 | MESSAGES;
/// The same, and nothing is allowed.
const NOTHING: u8 = 0x80;
/// The part of an access that is the privilege.
const LIMIT: u8 = 0x0f;
// Privileges (22.26).
const OPERATOR: u8 = 3;
const ADMINISTRATOR: u8 = 4;
const NO_ACCESS: u8 = 0x0f;
/// The first user that may have a name: user 1 is the one without (6.9.1).
const FIRST: u8 = 2;
/// What some BMCs answer to the question for the name of a user that has none.
const NO_NAME: u8 = 0xcc;

/// Why the BMC does not have the account.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AccountError {
    /// No device, or it cannot be opened, which is in the log then.
    #[error("the kernel shows no BMC: /dev/ipmi0 is not there, or cannot be opened")]
    NoDevice,
    #[error("the BMC cannot be asked: {0}")]
    Silent(#[from] io::Error),
    #[error("no LAN port of the BMC has an address")]
    NoAddress,
    #[error("all {0} users of the BMC have another name, or one that cannot be changed")]
    Full(u8),
    #[error("the BMC does not {what}: {} (completion code {code:#04x})", meaning(*code))]
    Refused { what: String, code: u8 },
    #[error("the BMC took the account, and shows that user {user} {what}")]
    NotKept { user: u8, what: &'static str },
}

/// A completion code in words (table 5-2; 22.30 for the first two).
const fn meaning(code: u8) -> &'static str {
    match code {
        0x80 => "it has another password",
        0x81 => "it keeps passwords of another size",
        0xc1 | 0xc2 => "it does not know the command",
        0xc4 => "it has no room",
        0xc7 | 0xc8 => "the request has a length that it does not want",
        0xc9 | 0xcc => "it does not allow a value in it",
        0xcb => "there is no such user or channel",
        0xd4 => "the machine's own system may not do that",
        0xd5 | 0xd6 => "it does not do that in its present state, or it is switched off there",
        _ => "it gives no reason",
    }
}

/// Sets the account; one that is there already is set again. Blocking: each answer takes some milliseconds, and there are up to 63 users.
pub(crate) fn set(account: &BmcAccount) -> Result<BmcAccountResult, AccountError> {
    let device = Device::open().ok_or(AccountError::NoDevice)?;
    set_by(&|command, data| device.call(command, data), account)
}

fn set_by(
    ask: &impl Fn(Command, &[u8]) -> io::Result<Answer>, account: &BmcAccount,
) -> Result<BmcAccountResult, AccountError> {
    let (facts, channel) = lan::gather(ask)?;
    let address = facts.address.map(IpAddr::from).or(facts.address_v6.map(IpAddr::from));
    let (Some(channel), Some(address)) = (channel, address) else { return Err(AccountError::NoAddress) };
    let must =
        |command, data: &[u8], what: String| ask(command, data)?.map_err(|code| AccountError::Refused { what, code });
    let (user, named) = place(ask, channel, &account.username)?;
    let wanted = match account.privilege {
        BmcPrivilege::Operator => OPERATOR,
        BmcPrivilege::Administrator => ADMINISTRATOR,
    };
    let may = |what: &str| format!("show what its user {user} {what}");
    let mut privilege = wanted;
    if named {
        // One that may do more keeps that: it may be the only administrator.
        let has = must(GET_USER_ACCESS, &[channel, user], may("may do"))?.get(3).map_or(0, |access| access & LIMIT);
        if (OPERATOR..=ADMINISTRATOR).contains(&has) {
            privilege = has.max(wanted);
        }
    } else {
        // The user before may have left a password, and rights on other channels.
        // Refusals are dropped: many BMCs refuse to disable a user without a name, and the place has no name until the password is set.
        let _ = ask(SET_USER_PASSWORD, &[user, DISABLE])?;
        for other in lan::CHANNELS.filter(|other| *other != channel) {
            // Refusals are dropped: not every channel is there.
            let _ = ask(SET_USER_ACCESS, &[NOTHING | other, user, NO_ACCESS])?;
        }
    }
    let access = || {
        let what = format!("give its user {user} the privilege {} on channel {channel}", account.privilege.as_str());
        must(SET_USER_ACCESS, &[ALLOW | channel, user, privilege], what)
    };
    let enable = || must(SET_USER_PASSWORD, &[user, ENABLE], format!("enable its user {user}"));
    if named {
        // Before the password: once that is another one, nothing may fail any more.
        access()?;
        enable()?;
    }
    let password = |operation, long| {
        let text = account.password.expose();
        let bytes = if long { padded::<20>(text).to_vec() } else { padded::<16>(text).to_vec() };
        let size = if long { IN_20_BYTES } else { 0 };
        [vec![size | user, operation], bytes].concat()
    };
    let long = ask(SET_USER_PASSWORD, &password(SET, true))?;
    if let Err(code) = long {
        let what = format!("take the password of its user {user}");
        if account.password.expose().len() > 16 {
            return Err(AccountError::Refused { what: what + " in 20 bytes, and it does not fit in 16", code });
        }
        must(SET_USER_PASSWORD, &password(SET, false), what)?;
    }
    if !named {
        access()?;
        // Last: until it has its own password the place has no name by which it could be used.
        let data = [&[user][..], &padded::<16>(&account.username)].concat();
        must(SET_USER_NAME, &data, format!("name its user {user} \"{}\"", account.username))?;
        enable()?;
    }
    must(SET_USER_PASSWORD, &password(TEST, long.is_ok()), format!("confirm the password of its user {user}"))?;

    let kept = must(GET_USER_ACCESS, &[channel, user], may("may do"))?;
    let access = kept.get(3).copied().unwrap_or_default();
    let is_disabled = kept.get(1).is_some_and(|byte| byte >> 6 == 2);
    let what = match access {
        _ if is_disabled => "is disabled",
        _ if access & MESSAGES == 0 || access & CALLBACK_ONLY != 0 => "may not send commands",
        _ if access & LIMIT != privilege => "has another privilege",
        _ if name(ask, user)?.as_deref() != Some(&account.username) => "has another name",
        _ => return Ok(BmcAccountResult { address, user }),
    };
    Err(AccountError::NotKept { user, what })
}

/// The user that has the name, and `true`; else the first that has none and may be given one. No other's account is ever one of these.
fn place(
    ask: &impl Fn(Command, &[u8]) -> io::Result<Answer>, channel: u8, wanted: &str,
) -> Result<(u8, bool), AccountError> {
    let users = ask(GET_USER_ACCESS, &[channel, 1])?;
    let users = users.map_err(|code| AccountError::Refused { what: "say how many users it has".into(), code })?;
    let count = |at: usize| users.get(at).map_or(0, |byte| byte & 0x3f);
    let (last, fixed) = (count(0), count(2));
    let mut free = None;
    for user in FIRST..=last {
        match name(ask, user)? {
            Some(name) if name == wanted => return Ok((user, true)),
            Some(name) if name.is_empty() && user > fixed => {
                free.get_or_insert(user);
            }
            _ => {}
        }
    }
    free.map(|user| (user, false)).ok_or(AccountError::Full(last))
}

/// The name of a user, as far as it is text; empty: it has none. `None`: the BMC does not say.
fn name(ask: &impl Fn(Command, &[u8]) -> io::Result<Answer>, user: u8) -> io::Result<Option<String>> {
    Ok(match ask(GET_USER_NAME, &[user])? {
        Ok(bytes) => {
            let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            Some(String::from_utf8_lossy(text).into_owned())
        }
        Err(NO_NAME) => Some(String::new()),
        Err(_) => None,
    })
}

/// The first `N` bytes of a text, filled with zeroes.
fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.iter_mut().zip(text.bytes()).for_each(|(to, byte)| *to = byte);
    bytes
}

#[cfg(test)]
mod tests;
