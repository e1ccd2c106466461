//! Error codes, and the one type in which a failure reaches a person.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Stable codes of everything that can go wrong. Programs decide by these, never by a message's text.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        #[non_exhaustive]
        pub enum ErrorCode { $($(#[doc = $doc])+ $name,)+ }
        impl ErrorCode {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$name,)+];
            /// The code as it appears on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }
            /// The code of that name; `Internal` for one this version does not know.
            pub fn from_wire(text: &str) -> Self {
                Self::ALL.iter().copied().find(|c| c.as_str() == text).unwrap_or(Self::Internal)
            }
        }
    };
}

codes! {
    /// A document does not parse or is contradictory.
    InvalidDocument,
    /// A template does not render.
    InvalidTemplate,
    /// No document of that kind and name.
    NotFound,
    /// The document changed since it was read.
    Conflict,
    /// It already exists, or another machine has the identity.
    AlreadyExists,
    /// The caller may not do that.
    Forbidden,
    /// The caller did not authenticate.
    Unauthenticated,
    /// The machine is busy with another workflow.
    MachineBusy,
    /// The workflow has ended; terminal states never change.
    WorkflowEnded,
    /// A URL cannot be reached, or answers with an error.
    SourceUnreachable,
    /// The input ended before its stated length.
    Truncated,
    /// The content's digest is not the one stated.
    DigestMismatch,
    /// The content does not have the stated format, or the format is not supported.
    BadFormat,
    /// The machine has less memory than the action takes.
    NotEnoughMemory,
    /// The image does not fit the disk.
    DiskTooSmall,
    /// The image was made for another logical sector size.
    WrongSectorSize,
    /// No disk matches the selector.
    NoDiskMatches,
    /// Several disks match the selector.
    AmbiguousDisk,
    /// The disk is in use.
    DiskInUse,
    /// The disk is no longer the chosen one.
    DiskChanged,
    /// The disk's receipt is not the one expected.
    ReceiptMismatch,
    /// The disk is not blank, and no person requested the write.
    DiskNotBlank,
    /// The disk does not support any level of erasure that the action allows.
    LevelUnsupported,
    /// A part of the machine failed its health test.
    HealthTestFailed,
    /// The BMC does not take an account.
    BmcRefused,
    /// Reading or writing a device failed.
    DeviceIo,
    /// The lease ran out before the action ended.
    LeaseExpired,
    /// The session was fenced by a newer one.
    Fenced,
    /// Two computers claim one identity, or one computer claims two.
    AmbiguousIdentity,
    /// A boot token is unknown, expired, or bound to another key.
    TokenRefused,
    /// Agent and coordinator do not speak a common version.
    VersionSkew,
    /// The action took longer than its timeout.
    Timeout,
    /// A person cancelled it.
    Cancelled,
    /// No installed root file system was found.
    NoRootFilesystem,
    /// The installed system's kernel or initramfs was not found.
    NoKernel,
    /// The running kernel does not load another one.
    KexecRefused,
    /// The firmware does not take the keys of Secure Boot.
    KeysRefused,
    /// A program that ran in the installed system, or the worker of the tools layer, failed or could not be started.
    ProgramFailed,
    /// The installed system did not phone home in time.
    NoPhoneHome,
    /// A watch asked for a revision that is no longer kept: list again, then watch from there.
    Expired,
    /// No person has approved this machine yet.
    Unapproved,
    /// The machine is only watched; no workflow may run on it.
    Unmanaged,
    /// The machine is in maintenance: no new workflow begins on it.
    Maintenance,
    /// A certificate or token was revoked.
    Revoked,
    /// The coordinator cannot write its database at the moment.
    StoreUnavailable,
    /// The tools layer, which an action needs, is not configured or cannot be used.
    NoToolsLayer,
    /// A queue or a limit is full.
    LimitReached,
    /// A fault in Landfall itself.
    Internal,
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failure as a person reads it: code, what, cause chain, hint, where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Problem {
    /// The stable code.
    pub code: ErrorCode,
    /// One sentence: what went wrong.
    pub message: String,
    /// The causes, outermost first; none repeats `message`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
    /// The device, path, URL or field it happened at.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// The last log lines of the action, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_log_lines: Vec<String>,
}

impl Problem {
    /// A problem with a code and a sentence.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            causes: Vec::new(),
            hint: String::new(),
            subject: String::new(),
            last_log_lines: Vec::new(),
        }
    }
    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
    /// Adds where it happened.
    #[must_use]
    pub fn at(mut self, subject: impl Into<String>) -> Self {
        self.subject = subject.into();
        self
    }
    /// Adds the chain of sources of `error`, without `error` itself and without what the message says already.
    #[must_use]
    pub fn caused_by(mut self, error: &dyn std::error::Error) -> Self {
        let mut next = error.source();
        while let Some(cause) = next {
            let text = cause.to_string();
            if !self.message.contains(&text) {
                self.causes.push(text);
            }
            next = cause.source();
        }
        self
    }
}

/// One line. Where it happened stands in it once: most messages name it.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)?;
        let named = |text: &str| names(text, &self.subject);
        if !named(&self.message) && !self.causes.iter().any(|cause| named(cause)) {
            write!(f, " (at {})", self.subject)?;
        }
        self.causes.iter().try_for_each(|cause| write!(f, ": {cause}"))?;
        if !self.hint.is_empty() {
            write!(f, "; {}", self.hint)?;
        }
        Ok(())
    }
}

/// Whether a text has this place as a word of its own, or there is no place: `m1` is not in `m10`, and `/dev/sda` is in "/dev/sda: busy".
fn names(text: &str, place: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_' || c == '-' || c == '/';
    place.is_empty()
        || text.match_indices(place).any(|(at, found)| {
            let (before, after) = (&text[..at], &text[at + found.len()..]);
            !before.ends_with(inside) && !after.starts_with(inside)
        })
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_its_place_once() {
        let problem = |message: &str| Problem::new(ErrorCode::DeviceIo, message).hint("check it").at("/dev/sda");
        assert_eq!(problem("cannot flush /dev/sda").to_string(), "DeviceIo: cannot flush /dev/sda; check it");
        assert_eq!(problem("it failed").to_string(), "DeviceIo: it failed (at /dev/sda); check it");
        assert_eq!(
            problem("cannot flush /dev/sda1").to_string(),
            "DeviceIo: cannot flush /dev/sda1 (at /dev/sda); check it"
        );
        let named = Problem { causes: vec!["cannot open /dev/sda".into()], ..problem("it failed") };
        assert_eq!(named.to_string(), "DeviceIo: it failed: cannot open /dev/sda; check it");
        let cause = std::io::Error::other(std::io::Error::other("flush"));
        let problem = Problem::new(ErrorCode::DeviceIo, "cannot flush").caused_by(&cause);
        assert_eq!(problem.causes, Vec::<String>::new(), "the message has it");
        assert_eq!(Problem::new(ErrorCode::DeviceIo, "no").at("").to_string(), "DeviceIo: no");
    }
}
