//! The payloads that set up a session: Open Session and RAKP 1 to 4 (13.17 to 13.24). Pure.

use super::packet::u32_at;
use super::suite::{CONFIDENTIALITY, Suite};

/// The privilege that a session is to have (table 13-9, "requested maximum privilege level").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Enough for the power and the boot device (appendix G).
    Operator,
    /// What some BMCs want for them.
    Administrator,
}

impl Role {
    pub(super) const fn number(self) -> u8 {
        match self {
            Self::Operator => 0x03,
            Self::Administrator => 0x04,
        }
    }
}

/// What is common to the answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply<'a> {
    /// Table 13-15.
    pub(super) status: u8,
    /// What follows the console's id.
    pub(super) body: &'a [u8],
}

/// Open Session.
pub(super) fn open(tag: u8, console: u32, suite: Suite) -> Vec<u8> {
    // Privilege 0: the highest that the suite may have. What is wanted is said in RAKP 1.
    let mut bytes = vec![tag, 0, 0, 0];
    bytes.extend(console.to_le_bytes());
    for (kind, algorithm) in [(0, suite.authentication()), (1, suite.integrity()), (2, CONFIDENTIALITY)] {
        bytes.extend([kind, 0, 0, 8, algorithm, 0, 0, 0]);
    }
    bytes
}

/// RAKP 1.
pub(super) fn rakp_1(tag: u8, bmc: u32, random: &[u8; 16], role: u8, username: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag, 0, 0, 0];
    bytes.extend(bmc.to_le_bytes());
    bytes.extend(random);
    bytes.extend([role, 0, 0, u8::try_from(username.len()).unwrap_or(u8::MAX)]);
    bytes.extend(username);
    bytes
}

/// RAKP 3.
pub(super) fn rakp_3(tag: u8, bmc: u32, proof: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag, 0, 0, 0];
    bytes.extend(bmc.to_le_bytes());
    bytes.extend(proof);
    bytes
}

/// Reads an answer; absent: it is to another request. `untagged`: an error without a tag is taken.
pub(super) fn reply(payload: &[u8], tag: u8, untagged: bool, console: u32) -> Option<Reply<'_>> {
    let (answered, status) = (*payload.first()?, *payload.get(1)?);
    if status != 0 {
        // OpenBMC leaves the tag and the id of an error at zero, and others leave the id out.
        let id = payload.get(4..).and_then(|rest| u32_at(rest, 0)).unwrap_or_default();
        let ours = (answered == tag || untagged && answered == 0) && (id == console || id == 0);
        return ours.then_some(Reply { status, body: &[] });
    }
    let ours = answered == tag && u32_at(payload, 4)? == console;
    ours.then_some(Reply { status, body: payload.get(8..).unwrap_or_default() })
}

/// The session's id at the BMC, of the body of an answer to Open Session that took this suite.
pub(super) fn opened(body: &[u8], suite: Suite) -> Option<u32> {
    let algorithm = |at: usize| body.get(4 + at * 8 + 4).copied();
    let taken = [algorithm(0)?, algorithm(1)?, algorithm(2)?];
    let wanted = [suite.authentication(), suite.integrity(), CONFIDENTIALITY];
    u32_at(body, 0).filter(|id| *id != 0 && taken == wanted)
}

/// The BMC's random number, its GUID and its code, of the body of RAKP 2.
pub(super) fn rakp_2(body: &[u8]) -> Option<([u8; 16], [u8; 16], &[u8])> {
    let (random, rest) = body.split_first_chunk()?;
    let (guid, code) = rest.split_first_chunk()?;
    Some((*random, *guid, code))
}

/// Whether a status says that the BMC lacks the suite (table 13-15: an algorithm or the suite is not known or not allowed).
pub(super) const fn lacks_suite(status: u8) -> bool {
    matches!(status, 0x04..=0x07 | 0x10 | 0x11)
}

/// Whether a status says that the account is not right: a name of a wrong length, an unknown name, a wrong code.
pub(super) const fn refuses_account(status: u8) -> bool {
    matches!(status, 0x0c | 0x0d | 0x0f)
}

/// Whether a status says that there is no room for one more session.
pub(super) const fn is_full(status: u8) -> bool {
    matches!(status, 0x01 | 0x0b)
}

/// Whether a status says that the account may not have the privilege.
pub(super) const fn refuses_role(status: u8) -> bool {
    matches!(status, 0x09 | 0x0a)
}

/// Whether a status says that the BMC does not know the session, or not any more: the login begins again.
pub(super) const fn lost(status: u8) -> bool {
    matches!(status, 0x02 | 0x08)
}

/// A status in words.
pub(super) const fn meaning(status: u8) -> &'static str {
    match status {
        0x12 => ": it does not take a parameter",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_error_is_no_answer_to_another_request() {
        let error = |tag: u8, id: u32| [&[tag, 0x11, 0, 0], id.to_le_bytes().as_slice()].concat();
        for (payload, untagged, taken) in [
            (error(17, 9), false, true),
            (error(17, 0), false, true),
            (error(1, 9), false, false),
            (error(1, 0), true, false),
            (error(0, 0), true, true),
            (error(0, 0), false, false),
            (error(17, 8), true, false),
        ] {
            assert_eq!(reply(&payload, 17, untagged, 9).is_some(), taken, "{payload:x?}");
        }
    }
}
