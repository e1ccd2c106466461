//! Why a BMC could not be used.

use landfall_api::Digest;

/// What went wrong, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BmcError {
    /// It does not answer, or not in time.
    #[error("{url} does not answer: {why}; check the BMC's address, its network and its cable")]
    Unreachable {
        /// What was asked for.
        url: String,
        /// As the connection says it.
        why: String,
    },
    /// Nothing in the document vouches for its certificate.
    #[error(
        "the certificate of {url} is not trusted ({why}); if it is the BMC's, write spec.bmc.certificate: {certificate}"
    )]
    Untrusted {
        /// Where.
        url: String,
        /// The certificate's digest.
        certificate: Digest,
        /// What was expected.
        why: String,
    },
    /// The document's trust cannot be used.
    #[error("spec.bmc.caCertificates cannot be used: {0}")]
    Authorities(String),
    /// The document's calls cannot be used.
    #[error("spec.bmc.webhook cannot be used: {0}")]
    Calls(String),
    /// It has ended the session, or does not know it.
    #[error("{url} has ended the session")]
    SessionEnded {
        /// Where.
        url: String,
    },
    /// It refuses the account.
    #[error("{url} refuses the account \"{username}\"{said}; correct the Secret, and it is tried again at once")]
    Refused {
        /// Where.
        url: String,
        /// The account.
        username: String,
        /// What is wrong with it, after a colon; or nothing.
        said: String,
    },
    /// The account may not do that.
    #[error(
        "the account \"{username}\" may not use {url}{said}; give it the privilege to configure and to control the computer"
    )]
    Forbidden {
        /// Where.
        url: String,
        /// The account.
        username: String,
        /// What the BMC says, after a colon; or nothing.
        said: String,
    },
    /// An answer is not what Redfish or IPMI says.
    #[error("the answer of {url} is invalid: {what}")]
    Invalid {
        /// Where.
        url: String,
        /// What is wrong with it.
        what: String,
    },
    /// It cannot do that.
    #[error("{url} does not support {what}")]
    Unsupported {
        /// Where.
        url: String,
        /// What.
        what: String,
    },
    /// It reports success, and reads back something else.
    #[error("{url} accepted {what} and did not keep it: it reads {read}")]
    NotKept {
        /// Where.
        url: String,
        /// What was set.
        what: String,
        /// What is read.
        read: String,
    },
    /// Its serial console is in use.
    #[error("another console is open at {url}; end it there, or take it over (--take-over)")]
    ConsoleBusy {
        /// Where.
        url: String,
    },
    /// Its serial console is switched off.
    #[error(
        "Serial over LAN is switched off at {url}; switch it on there, for the channel and for the account (ipmitool: \
         \"sol set enabled true\" and \"sol payload enable CHANNEL USER\")"
    )]
    ConsoleOff {
        /// Where.
        url: String,
    },
    /// It has ended the serial console.
    #[error("{url} has ended the console: another program took it over, or the BMC set it up anew")]
    ConsoleEnded {
        /// Where.
        url: String,
    },
    /// It answered with an error of IPMI.
    #[error("{url} answered {request} with {code:#04x}{said}")]
    Answered {
        /// Where.
        url: String,
        /// The request.
        request: &'static str,
        /// The completion code, or the status of a login.
        code: u8,
        /// What it means, after a colon; or nothing.
        said: &'static str,
    },
    /// It answered with an error of HTTP.
    #[error("{url} answered {status}{said}")]
    Failed {
        /// Where.
        url: String,
        /// The status of HTTP.
        status: u16,
        /// What the BMC says, after a colon; or nothing.
        said: String,
    },
}

impl BmcError {
    /// Whether the computer is not in the state for the request, such as a shutdown of one without a system that runs.
    pub const fn is_of_the_state(&self) -> bool {
        // IPMI 2.0, table 5-2: "not supported in the present state"; HTTP: "Conflict".
        matches!(self, Self::Answered { code: 0xd5, .. } | Self::Failed { status: 409, .. })
    }

    /// Whether the same request may succeed later: the BMC is busy, or starts, or does not answer.
    pub fn is_passing(&self) -> bool {
        match self {
            // 409, 412, 423 and 429: busy, changed, locked, too many requests.
            Self::Failed { status, .. } => *status >= 500 || matches!(status, 408 | 409 | 412 | 423 | 425 | 429),
            // IPMI 2.0, table 5-2: busy, timed out, lost arbitration, cannot answer now, not in the present state.
            Self::Answered { code, .. } => matches!(code, 0xc0 | 0xc3 | 0xce | 0xd2 | 0xd5),
            Self::Unreachable { .. } | Self::SessionEnded { .. } | Self::Invalid { .. } => true,
            _ => false,
        }
    }
}
