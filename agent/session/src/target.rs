//! Where the coordinator is, and which CA keys prove it.

use std::{fmt, net::IpAddr};

use http::Uri;

use landfall_api::Pin;

use crate::Proxy;
use crate::proxy::authority;

/// The coordinator's TLS port and the pins of its CA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    host: String,
    port: u16,
    pins: Vec<Pin>,
    nameservers: Vec<IpAddr>,
    proxy: Option<Proxy>,
}

/// A target that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Not `https://host[:port]`.
    #[error("\"{0}\" is not a coordinator's address; write https://host:port, such as https://10.77.0.1:7443")]
    Url(String),
    /// Nothing to check the server against.
    #[error("no CA pin is given, so no server can be trusted; add landfall.ca=sha256:… to the kernel command line")]
    NoPin,
}

/// The port if the address names none.
const DEFAULT_PORT: u16 = 7443;

impl Target {
    /// Takes `https://host[:port]` (an IP or a name; a lone `/` may follow) and at least one pin.
    ///
    /// # Errors
    /// [`TargetError`], saying what to write instead.
    pub fn new(url: &str, pins: Vec<Pin>) -> Result<Self, TargetError> {
        let bad = || TargetError::Url(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| bad())?;
        let plain = uri.path_and_query().is_none_or(|p| p.as_str() == "/");
        let authority = uri.authority().filter(|a| !a.as_str().contains('@')).ok_or_else(bad)?;
        if uri.scheme_str() != Some("https") || !plain || authority.host().is_empty() {
            return Err(bad());
        }
        // `Authority::port_u16` is None for a port that is not a number as well as for none.
        let port = match authority.port() {
            Some(port) => port.as_u16(),
            None if authority.as_str().len() == authority.host().len() => DEFAULT_PORT,
            None => return Err(bad()),
        };
        if pins.is_empty() {
            return Err(TargetError::NoPin);
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { host, port, pins, nameservers: Vec::new(), proxy: None })
    }
    /// Asks these servers for names, in place of those in `/etc/resolv.conf` (a boot image has none).
    #[must_use]
    pub fn with_nameservers(mut self, nameservers: Vec<IpAddr>) -> Self {
        self.nameservers = nameservers;
        self
    }
    /// Has this proxy connect to it, which then also asks for its name.
    #[must_use]
    pub fn with_proxy(mut self, proxy: Option<Proxy>) -> Self {
        self.proxy = proxy;
        self
    }
    /// The proxy on the way.
    pub const fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref()
    }
    /// Host and port that this machine itself connects to.
    pub fn first_hop(&self) -> (&str, u16) {
        self.proxy.as_ref().map_or((&self.host, self.port), |proxy| (proxy.host(), proxy.port()))
    }
    /// An IP address (without brackets) or a name.
    pub fn host(&self) -> &str {
        &self.host
    }
    /// The TCP port.
    pub const fn port(&self) -> u16 {
        self.port
    }
    /// Which CA keys are trusted; never empty.
    pub fn pins(&self) -> &[Pin] {
        &self.pins
    }
    /// Name servers to ask; empty: the system's.
    pub fn nameservers(&self) -> &[IpAddr] {
        &self.nameservers
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}", authority(&self.host, self.port))
    }
}

#[cfg(test)]
mod tests {
    use landfall_pin::pin_of_spki;

    use super::*;

    #[test]
    fn addresses_parse_and_print_alike() {
        let pins = || vec![pin_of_spki(b"ca")];
        for (text, printed) in [
            ("https://10.77.0.1:7443", "https://10.77.0.1:7443"),
            ("https://boot.example/", "https://boot.example:7443"),
            ("https://[fd00::1]:9", "https://[fd00::1]:9"),
        ] {
            assert_eq!(Target::new(text, pins()).unwrap().to_string(), printed);
        }
        for bad in ["", "10.0.0.1:7443", "http://10.0.0.1", "https://", "https://a:b", "https://u@h", "https://h/x"] {
            assert_eq!(Target::new(bad, pins()), Err(TargetError::Url(bad.to_owned())), "{bad}");
        }
        assert_eq!(Target::new("https://10.0.0.1", Vec::new()), Err(TargetError::NoPin));
    }
}
