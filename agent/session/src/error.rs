//! Why the coordinator could not be reached, and what a person can do about it.

use std::{io, net::SocketAddr, time::Duration};

use landfall_api::{ErrorCode, Pin, Problem};
use landfall_pin::rustls_error;
use rustls::{AlertDescription, CertificateError};

use crate::PinMismatch;

/// No connection to the coordinator.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name has no address.
    #[error("cannot resolve the name {host}")]
    NameNotResolvable { host: String, source: Box<dyn std::error::Error + Send + Sync> },
    /// No process listens there.
    #[error("{address} refuses the connection")]
    Refused { address: SocketAddr, source: io::Error },
    /// No route, or no answer.
    #[error("cannot reach {address}")]
    Unreachable { address: SocketAddr, source: io::Error },
    /// The server's certificate is not signed by a pinned CA.
    #[error("the certificate of the server at {address} is not signed by a pinned CA")]
    WrongCa { address: SocketAddr, pinned: Vec<Pin>, source: PinMismatch },
    /// The CA is right, the certificate is not.
    #[error("the certificate of the server at {address} is refused")]
    BadCertificate { address: SocketAddr, source: rustls::Error },
    /// The server does not accept this agent's certificate.
    #[error("the server at {address} refuses this machine's certificate")]
    CredentialsRefused { address: SocketAddr, source: rustls::Error },
    /// TLS failed otherwise.
    #[error("no TLS connection to {address}")]
    Tls { address: SocketAddr, source: io::Error },
    /// A step took too long.
    #[error("{step} {address} took longer than {} s", limit.as_secs())]
    Timeout { step: Step, address: String, limit: Duration },
    /// TLS works, HTTP/2 does not.
    #[error("the server at {address} does not speak HTTP/2")]
    Http2 { address: SocketAddr, source: Option<tonic::transport::Error> },
    /// The proxy on the way does not connect to the coordinator.
    #[error("cannot reach the coordinator by the proxy {proxy}: {source}")]
    Proxy { proxy: String, source: ProxyError },
    /// None of several coordinators can be reached.
    #[error("no coordinator answers: {}", spelled(.0))]
    NoneOf(Vec<ConnectError>),
    /// The agent's own key or certificate cannot be used.
    #[error("this agent's key or certificate cannot be used")]
    Credentials(#[source] rustls::Error),
}

fn spelled(errors: &[ConnectError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Why a proxy does not connect the agent to the coordinator.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// It cannot be reached itself.
    #[error(transparent)]
    Unreachable(Box<ConnectError>),
    /// It answers that it does not connect.
    #[error("it answers {status} {reason}")]
    Refused { status: u16, reason: String },
    /// It is not a proxy, or speaks another protocol.
    #[error("its answer is not one of HTTP")]
    NotHttp,
    /// The connection to it ended early.
    #[error("the connection to it broke")]
    Broken(#[source] io::Error),
    /// It took too long.
    #[error("it did not connect in {0} s")]
    Late(u64),
}

/// A step of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// From the name to its addresses.
    Resolve,
    /// TCP: the other host's kernel answers it.
    Connect,
    /// TLS: the coordinator itself answers it.
    Handshake,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Resolve => "resolving the name",
            Self::Connect => "connecting to",
            Self::Handshake => "the TLS handshake with",
        })
    }
}

impl ConnectError {
    /// What to say of several coordinators that were tried: what one of them answered, for it is there, else that none is.
    pub(crate) fn of_several(mut errors: Vec<Self>) -> Self {
        let refused = |error: &Self| matches!(error, Self::CredentialsRefused { .. });
        let answered = |error: &Self| {
            !matches!(
                error,
                Self::NameNotResolvable { .. } | Self::Refused { .. } | Self::Unreachable { .. } | Self::Timeout { .. }
            )
        };
        let at = errors.iter().position(refused).or_else(|| errors.iter().position(answered));
        let at = at.or((errors.len() == 1).then_some(0));
        match at {
            Some(at) => errors.swap_remove(at),
            None => Self::NoneOf(errors),
        }
    }

    /// The error of a failed handshake.
    pub(crate) fn handshake(address: SocketAddr, pinned: &[Pin], error: io::Error) -> Self {
        let Some(tls) = rustls_error(&error).cloned() else {
            return Self::Tls { address, source: error };
        };
        if let Some(mismatch) = PinMismatch::of(&tls) {
            return Self::WrongCa { address, pinned: pinned.to_vec(), source: mismatch.clone() };
        }
        match tls {
            rustls::Error::InvalidCertificate(_) => Self::BadCertificate { address, source: tls },
            _ if refuses_credentials(&tls) => Self::CredentialsRefused { address, source: tls },
            _ => Self::Tls { address, source: error },
        }
    }

    /// As a person reads it; `target` is what was dialled.
    pub fn to_problem(&self, target: &impl std::fmt::Display) -> Problem {
        let (code, hint) = match self {
            Self::NameNotResolvable { .. } | Self::Timeout { step: Step::Resolve, .. } => (
                ErrorCode::SourceUnreachable,
                "check the name, and the name servers that DHCP gives; or use an IP address in landfall.coordinator="
                    .to_owned(),
            ),
            Self::Refused { .. } => (
                ErrorCode::SourceUnreachable,
                "the host is up but no program listens: check that landfall-coordinator runs there and that the port \
                    is correct"
                    .to_owned(),
            ),
            Self::Timeout { step: Step::Handshake, .. } => (
                ErrorCode::SourceUnreachable,
                "the host accepts the connection but the program does not answer: check that landfall-coordinator is \
                    neither stopped nor overloaded"
                    .to_owned(),
            ),
            Self::Timeout { step: Step::Connect, .. } => (
                ErrorCode::SourceUnreachable,
                "nothing answers at this address: check that the host is up, and routes and firewall on the way to it"
                    .to_owned(),
            ),
            Self::Unreachable { source, .. } if source.kind() == io::ErrorKind::NetworkUnreachable => (
                ErrorCode::SourceUnreachable,
                "this machine has no route to the coordinator: check its carrier, its address and the gateway that DHCP \
                    gives"
                    .to_owned(),
            ),
            Self::NoneOf(_) => (
                ErrorCode::SourceUnreachable,
                "check that one of them is active, and routes and firewall on the way to it".to_owned(),
            ),
            Self::Unreachable { .. } => (
                ErrorCode::SourceUnreachable,
                "check cable, VLAN, routes and firewall between this machine and the coordinator".to_owned(),
            ),
            Self::WrongCa { pinned, .. } => {
                let pinned: Vec<_> = pinned.iter().map(ToString::to_string).collect();
                let hint = format!(
                    "landfall.ca= is {}; if the coordinator was set up again, boot again to get its new command line; \
                        if not, another server answers at this address",
                    pinned.join(", ")
                );
                (ErrorCode::Unauthenticated, hint)
            }
            Self::BadCertificate { source, .. } => {
                let hint = match source {
                    rustls::Error::InvalidCertificate(
                        CertificateError::Expired
                        | CertificateError::ExpiredContext { .. }
                        | CertificateError::NotValidYet
                        | CertificateError::NotValidYetContext { .. },
                    ) => "this machine's clock and the coordinator's disagree: check both",
                    _ => "the coordinator's server certificate is damaged: restart it to have another issued",
                };
                (ErrorCode::Unauthenticated, hint.to_owned())
            }
            Self::CredentialsRefused {
                source: rustls::Error::AlertReceived(AlertDescription::CertificateExpired), ..
            } => (
                ErrorCode::Unauthenticated,
                "by the coordinator's clock this agent's certificate is too old or not valid yet: check the clocks of both, \
                    then restart the machine, which enrols again"
                    .to_owned(),
            ),
            Self::CredentialsRefused { .. } | Self::Credentials(_) => {
                (ErrorCode::Unauthenticated, "the agent must enrol again: restart the machine".to_owned())
            }
            Self::Proxy { source: ProxyError::Refused { status: 407, .. }, .. } => (
                ErrorCode::SourceUnreachable,
                "have the proxy let this machine through without a password: the agent has none".to_owned(),
            ),
            Self::Proxy { source: ProxyError::Refused { .. } | ProxyError::Late(_), .. } => (
                ErrorCode::SourceUnreachable,
                "permit CONNECT to the coordinator's TLS port on the proxy, and check that the proxy reaches it".to_owned(),
            ),
            Self::Proxy { .. } => (
                ErrorCode::SourceUnreachable,
                "check landfall.proxy=, and that the proxy runs and can be reached from this machine".to_owned(),
            ),
            Self::Tls { .. } | Self::Http2 { .. } => (
                ErrorCode::SourceUnreachable,
                "check that the port belongs to landfall-coordinator, and that nothing in between opens TLS".to_owned(),
            ),
        };
        Problem::new(code, self.to_string()).caused_by(self).hint(hint).at(target.to_string())
    }
}

/// Whether the other side's alert says that our certificate is no good (any more).
pub(crate) const fn refuses_credentials(error: &rustls::Error) -> bool {
    matches!(
        error,
        rustls::Error::AlertReceived(
            AlertDescription::CertificateExpired
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateUnknown
                | AlertDescription::CertificateRequired
                | AlertDescription::BadCertificate
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_names_the_cause_that_is_known() {
        let address: SocketAddr = "192.0.2.1:7443".parse().unwrap();
        let late = |step| ConnectError::Timeout { step, address: address.to_string(), limit: Duration::from_secs(5) };
        let hint = |error: ConnectError| error.to_problem(&"c").hint;
        let stopped = hint(late(Step::Handshake));
        assert!(stopped.contains("stopped") && !stopped.contains("cable"), "{stopped}");
        assert!(hint(late(Step::Connect)).contains("host is up"));
        assert!(hint(late(Step::Resolve)).contains("name servers"));
        let unreachable = |kind: io::ErrorKind| hint(ConnectError::Unreachable { address, source: kind.into() });
        assert!(unreachable(io::ErrorKind::NetworkUnreachable).contains("no route"));
        assert!(unreachable(io::ErrorKind::HostUnreachable).contains("VLAN"));
        let alert = |alert| ConnectError::CredentialsRefused { address, source: rustls::Error::AlertReceived(alert) };
        assert!(hint(alert(AlertDescription::CertificateExpired)).contains("clocks of both"));
        assert!(!hint(alert(AlertDescription::CertificateRevoked)).contains("clock"));
        for dates in [CertificateError::Expired, CertificateError::NotValidYet] {
            let source = rustls::Error::InvalidCertificate(dates);
            assert!(hint(ConnectError::BadCertificate { address, source }).contains("clock"));
        }
    }
}
