//! Opens a session: finds the suite, proves the password both ways, and takes the privilege.

use super::channel::Channel;
use super::keys::{BY_NAME, Exchange};
use super::line::{Line, TRIES};
use super::message::{Answer, Command, answer, request};
use super::packet::{early, early_message, kind, plain, setup};
use super::random::random;
use super::session::Session;
use super::setup::{self as payload, Role};
use super::suite::Suite;
use crate::Account;

/// An unanswered RAKP begins again at Open Session: a BMC that gets it twice computes with another random number. So long each attempt
/// waits for one, in milliseconds. Few attempts, since each may leave a session at the BMC that is open by half.
const ATTEMPTS: [&[u64]; 5] = [&[1000], &[1000], &[2000], &[2000], &[4000]];
/// Tags of one suite's attempts: three each.
const TAGS: u8 = 16;
/// The tag of the first request of all. Nothing that is late can be an answer to it.
pub(super) const FIRST_TAG: u8 = 1;

/// Why there is no session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// No answer, for that reason.
    Silent(String),
    /// It took a login up, and does not go on with it.
    Unfinished,
    /// It has no room for one more session.
    Full,
    /// The account, with what is wrong.
    Account(&'static str),
    /// The account may not have this privilege.
    Role,
    /// A status or a completion code.
    Status(&'static str, u8, &'static str),
    /// What it says is not what it should be.
    Invalid(&'static str),
    /// What it cannot do.
    Lacks(&'static str),
}

/// What the BMC says before a login.
struct Capabilities {
    /// A BMC key (Kg) is set (22.13: "KG status").
    has_key: bool,
}

/// One login, with the privilege `role` and the first suite that the BMC has: a loss of packets does not make the weaker
/// one the first the next time.
pub(super) async fn log_in(line: Line, account: &Account, role: Role) -> Result<Session, Failed> {
    let capabilities = capabilities(&line, role).await?;
    let mut silent = None;
    for (suite, first) in Suite::ALL.into_iter().zip((FIRST_TAG..).step_by(TAGS.into())) {
        match attempts(&line, account, role, (suite, first), &capabilities).await {
            Ok(channel) => {
                let mut session = Session::new(line, channel);
                return match set_privilege(&mut session, role).await {
                    Ok(()) => Ok(session),
                    Err(failed) => {
                        session.close().await;
                        Err(failed)
                    }
                };
            }
            Err(None) => {}
            // It answers, but not to this suite: some drop what they do not know.
            Err(Some(Failed::Silent(why))) => silent = Some(why),
            Err(Some(failed)) => return Err(failed),
        }
    }
    Err(silent.map_or(
        Failed::Lacks("cipher suite 17 or 3, without which passwords and commands are not protected"),
        Failed::Silent,
    ))
}

/// Asks without a session (22.13).
async fn capabilities(line: &Line, role: Role) -> Result<Capabilities, Failed> {
    // Of this channel (0Eh), with what IPMI 2.0 adds (80h).
    let message = request(Command::CAPABILITIES, 0, &[0x8e, role.number()]);
    let found: Answer = line
        .ask(
            TRIES,
            &mut (),
            |()| early(&message),
            |(), bytes| answer(early_message(bytes)?).filter(|answer| answer.is_to(Command::CAPABILITIES, 0)),
        )
        .await
        .map_err(Failed::Silent)?;
    match (found.code, found.data.as_slice()) {
        (0, [_, types, status, extended, ..]) if types & 0x80 != 0 && extended & 0x02 != 0 => {
            Ok(Capabilities { has_key: status & 0x20 != 0 })
        }
        (0, _) => Err(Failed::Lacks("IPMI 2.0 over LAN (RMCP+); or it is switched off there")),
        // It may be one that only lacks this command.
        _ => Ok(Capabilities { has_key: false }),
    }
}

/// A session's keys, after as many attempts as it takes. `None`: the BMC lacks the suite.
async fn attempts(
    line: &Line, account: &Account, role: Role, (suite, first): (Suite, u8), capabilities: &Capabilities,
) -> Result<Channel, Option<Failed>> {
    for (wait, tag) in ATTEMPTS.into_iter().zip((first..).step_by(3)) {
        match one_attempt(line, account, role, suite, (tag, wait)).await {
            Ok(None) => {}
            Ok(Some(channel)) => return Ok(channel),
            Err(Some(Failed::Invalid(_))) if capabilities.has_key => {
                return Err(Some(Failed::Lacks(
                    "a login by the password alone: a BMC key (Kg) is set there; remove it",
                )));
            }
            Err(failed) => return Err(failed),
        }
    }
    Err(Some(Failed::Unfinished))
}

/// What an answer's status means, if it is none that goes on.
fn check(name: &'static str, status: u8) -> Result<(), Option<Failed>> {
    match status {
        0 => Ok(()),
        status if payload::lacks_suite(status) => Err(None),
        status if payload::is_full(status) => Err(Some(Failed::Full)),
        status if payload::refuses_role(status) => Err(Some(Failed::Role)),
        // The BMC says no more: which of the two is wrong stays its secret.
        status if payload::refuses_account(status) => Err(Some(Failed::Account(""))),
        status => Err(Some(Failed::Status(name, status, payload::meaning(status)))),
    }
}

/// One run of Open Session and RAKP 1 to 4; absent: a RAKP was not answered.
async fn one_attempt(
    line: &Line, account: &Account, role: Role, suite: Suite, (tag, once): (u8, &'static [u64]),
) -> Result<Option<Channel>, Option<Failed>> {
    // A new id each time: late answers to an earlier attempt are not taken.
    let console = u32::from_le_bytes(random()).max(1);
    let asked = |tag: u8, sent: u8, body: Vec<u8>, received: u8, tries: &'static [u64]| async move {
        line.ask(
            tries,
            &mut (),
            |()| plain(sent, &body),
            |(), bytes| {
                // An error without a tag may be a late one, of another suite's Open Session.
                let untagged = received != kind::OPEN_ANSWER || tag == FIRST_TAG;
                let reply = payload::reply(setup(bytes, received)?, tag, untagged, console)?;
                Some((reply.status, reply.body.to_vec()))
            },
        )
        .await
    };

    let opened = asked(tag, kind::OPEN_REQUEST, payload::open(tag, console, suite), kind::OPEN_ANSWER, TRIES).await;
    let (status, body) = opened.map_err(|why| Some(Failed::Silent(why)))?;
    check("Open Session", status)?;
    // One that answers with another suite than it was asked for would have another kept: never.
    let bmc = payload::opened(&body, suite).ok_or(None)?;

    let (username, password) = (account.username.as_bytes(), account.password.as_bytes());
    let (random, role) = (random(), BY_NAME | role.number());
    let first = payload::rakp_1(tag + 1, bmc, &random, role, username);
    let Ok((status, body)) = asked(tag + 1, kind::RAKP_1, first, kind::RAKP_2, once).await else { return Ok(None) };
    if payload::lost(status) {
        return Ok(None);
    }
    check("RAKP 1", status)?;
    let (bmc_random, guid, code) = payload::rakp_2(&body).ok_or(Some(Failed::Invalid("RAKP 2 is too short")))?;
    let exchange = Exchange { suite, console, bmc, console_random: random, bmc_random, guid, role, username, password };
    if !exchange.bmc_is_right(code) {
        // Nothing was proved to the BMC yet: it counts no failed login.
        return Err(Some(Failed::Account(": it does not have this password for it")));
    }

    let second = payload::rakp_3(tag + 2, bmc, &exchange.proof());
    let Ok((status, body)) = asked(tag + 2, kind::RAKP_3, second, kind::RAKP_4, once).await else { return Ok(None) };
    if payload::lost(status) {
        return Ok(None);
    }
    check("RAKP 3", status)?;
    let keys = exchange.keys(&body).ok_or(Some(Failed::Invalid("the code of RAKP 4 is wrong")))?;
    Ok(Some(Channel::new(suite, keys, console, bmc)))
}

/// A session begins with the privilege of a user (22.18).
async fn set_privilege(session: &mut Session, role: Role) -> Result<(), Failed> {
    let answer = session.ask(Command::SET_PRIVILEGE, &[role.number()]).await.map_err(Failed::Silent)?;
    match answer.code {
        0 => Ok(()),
        // Not for this user; more than the channel or the session may have; not with this privilege.
        0x80..=0x82 | 0xd4 => Err(Failed::Role),
        code => Err(Failed::Status(Command::SET_PRIVILEGE.name, code, "")),
    }
}
