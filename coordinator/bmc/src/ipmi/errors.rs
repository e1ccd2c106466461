//! What went wrong, in the words of a person. Pure.

use super::login::Failed;
use crate::error::BmcError;

/// What a login that failed means.
pub(super) fn of_login(failed: Failed, url: &str, username: &str) -> BmcError {
    let (url, username) = (url.to_owned(), username.to_owned());
    match failed {
        Failed::Silent(why) => BmcError::Unreachable { url, why },
        Failed::Unfinished => {
            BmcError::Unreachable { url, why: "it begins a login and does not go on with it".to_owned() }
        }
        Failed::Full => BmcError::Unreachable { url, why: "it has no room for one more session".to_owned() },
        Failed::Account(said) => BmcError::Refused { url, username, said: said.to_owned() },
        Failed::Role => forbidden(url, username),
        Failed::Status(request, code, said) => BmcError::Answered { url, request, code, said },
        Failed::Invalid(what) => BmcError::Invalid { url, what: what.to_owned() },
        Failed::Lacks(what) => BmcError::Unsupported { url, what: what.to_owned() },
    }
}

/// The account lacks a privilege.
pub(super) fn forbidden(url: String, username: String) -> BmcError {
    BmcError::Forbidden { url, username, said: ": it is less than an Operator there".into() }
}

/// A completion code in words (table 5-2), behind a colon; or nothing.
pub(super) const fn meaning(code: u8) -> &'static str {
    match code {
        0x80 => ": it does not have this parameter",
        0xc0 => ": it is busy",
        0xc1 => ": it does not know this command",
        0xc3 => ": it ran out of time",
        0xc4 => ": it has no room left",
        0xc7 | 0xc8 => ": it wants other data",
        0xcc => ": it does not take this value",
        0xd2 => ": it is starting",
        0xd3 => ": the computer's part for it does not answer",
        0xd5 | 0xd6 => ": not at present",
        0xff => ": it does not say why",
        _ => "",
    }
}
