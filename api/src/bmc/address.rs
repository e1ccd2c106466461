//! Where a BMC is. Pure: checks only the text.

use std::net::{IpAddr, Ipv6Addr};
use std::{fmt, str::FromStr};

use ipnet::IpNet;

/// How a BMC is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BmcProtocol {
    /// Redfish over HTTPS; port 443 where none is stated.
    Redfish,
    /// Redfish over HTTP, which shows the password to the network: for labs. Port 80 where none is stated.
    PlainRedfish,
    /// IPMI 2.0 over LAN (RMCP+), over UDP; port 623 where none is stated.
    Ipmi,
    /// Calls over HTTPS that the document states; port 443 where none is stated.
    Webhook,
    /// The same over HTTP, which shows the password to the network; port 80 where none is stated.
    PlainWebhook,
}

impl BmcProtocol {
    const ALL: [Self; 5] = [Self::Redfish, Self::PlainRedfish, Self::Ipmi, Self::Webhook, Self::PlainWebhook];

    /// The port where none is stated.
    const fn port(self) -> u16 {
        match self {
            Self::Redfish | Self::Webhook => 443,
            Self::PlainRedfish | Self::PlainWebhook => 80,
            Self::Ipmi => 623,
        }
    }

    /// What an address begins with, and what its URL does.
    const fn schemes(self) -> (&'static str, &'static str) {
        match self {
            Self::Redfish => ("redfish+https", "https"),
            Self::PlainRedfish => ("redfish+http", "http"),
            Self::Ipmi => ("ipmi", "ipmi"),
            Self::Webhook => ("webhook+https", "https"),
            Self::PlainWebhook => ("webhook+http", "http"),
        }
    }

    /// What stands before a host of it in a Secret's `spec.bmcs`.
    pub const fn before_places(self) -> &'static str {
        match self {
            Self::Redfish | Self::Ipmi => "",
            Self::PlainRedfish => "http://",
            Self::Webhook => "webhook+https://",
            Self::PlainWebhook => "webhook+http://",
        }
    }

    /// Whether a web server stands in for a BMC.
    pub const fn is_webhook(self) -> bool {
        matches!(self, Self::Webhook | Self::PlainWebhook)
    }
}

/// A BMC's address, such as `redfish+https://192.0.2.7` or `ipmi://192.0.2.7`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BmcAddress {
    protocol: BmcProtocol,
    /// A name or an address; one of IPv6 without its brackets.
    host: String,
    port: Option<u16>,
    /// Begins with `/`, or is empty.
    path: String,
}

/// The text is not a BMC's address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{shown}\" is not the address of a BMC: {hint}")]
pub struct BmcAddressError {
    /// The text, without what may be a password.
    shown: String,
    hint: &'static str,
}

const FORMS: &str = "write redfish+https://HOST, or redfish+https://HOST/redfish/v1/Systems/ID where the BMC has several systems; \
    ipmi://HOST for one without Redfish; or webhook+https://HOST for a web server in its place";

impl BmcAddress {
    /// How it is spoken to.
    pub const fn protocol(&self) -> BmcProtocol {
        self.protocol
    }

    /// The host: a name or an address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, where one is stated.
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// The path of the computer's system; empty if the BMC is to have one alone.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The URL of the BMC, without a path.
    pub fn base(&self) -> String {
        format!("{}://{}", self.protocol.schemes().1, self.authority())
    }

    fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match self.port {
            Some(port) => format!("{host}:{port}"),
            None => host,
        }
    }
}

impl fmt::Display for BmcAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.protocol.schemes().0, self.authority(), self.path)
    }
}

impl FromStr for BmcAddress {
    type Err = BmcAddressError;

    fn from_str(text: &str) -> Result<Self, BmcAddressError> {
        let bad = |hint| BmcAddressError { shown: text.to_owned(), hint };
        // Wherever it stands: a password may have a slash in it.
        if text.contains('@') {
            let hint = "name the account in a Secret (spec.bmc.credentials); addresses are logged and shown";
            let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
            let scheme = BmcProtocol::ALL.into_iter().map(|known| known.schemes().0).find(|known| *known == scheme);
            return Err(BmcAddressError {
                shown: scheme.map_or("…".to_owned(), |scheme| format!("{scheme}://…")),
                hint,
            });
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(|| bad(FORMS))?;
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let known = BmcProtocol::ALL.into_iter().find(|protocol| protocol.schemes().0 == scheme);
        let protocol = known.ok_or_else(|| bad(FORMS))?;
        let path = rest.get(authority.len()..).unwrap_or_default().trim_end_matches('/');
        if !path.bytes().all(|b| b.is_ascii_graphic()) || path.contains(['?', '#', '"', '\\', '<', '>']) {
            return Err(bad("the path may have no spaces, queries and fragments"));
        }
        if protocol == BmcProtocol::Ipmi && !path.is_empty() {
            return Err(bad("an address of IPMI has no path; write ipmi://HOST or ipmi://HOST:PORT"));
        }
        let (host, port) = split_port(authority).ok_or_else(|| bad(FORMS))?;
        // Two spellings of one port are one BMC.
        let port = port.filter(|port| *port != protocol.port());
        let host = host.to_ascii_lowercase();
        if !is_host(&host) {
            return Err(bad("write a host's name, an IPv4 address, or an IPv6 address in brackets"));
        }
        Ok(Self { protocol, host, port, path: path.to_owned() })
    }
}

/// The host without brackets, and the port.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let port = |text: &str| text.parse().ok().filter(|port| *port != 0).map(Some);
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, behind) = rest.split_once(']')?;
        host.parse::<Ipv6Addr>().ok()?;
        return match behind.strip_prefix(':') {
            Some(text) => Some((host, port(text)?)),
            None => behind.is_empty().then_some((host, None)),
        };
    }
    match authority.split_once(':') {
        Some((host, text)) => Some((host, port(text)?)),
        None => Some((authority, None)),
    }
}

fn is_host(host: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    host.parse::<IpAddr>().is_ok() || host.len() <= 253 && host.split('.').all(is_label)
}

/// What stands before a place in a Secret's `spec.bmcs`, by the protocol that may be spoken there. A webhook is called as a document
/// states it, with any path and body: a place of BMCs is none of webhooks.
const PLACES: [(&str, &[BmcProtocol]); 4] = [
    ("http://", &[BmcProtocol::PlainRedfish]),
    ("webhook+https://", &[BmcProtocol::Webhook]),
    ("webhook+http://", &[BmcProtocol::PlainWebhook]),
    ("", &[BmcProtocol::Redfish, BmcProtocol::Ipmi]),
];

/// A place without what stands before it, and the protocols that may be spoken there.
fn parted(place: &str) -> (&str, &'static [BmcProtocol]) {
    let found = PLACES.iter().find_map(|(before, protocols)| Some((place.strip_prefix(before)?, *protocols)));
    found.unwrap_or((place, &[]))
}

/// Whether the text names BMCs in a Secret's `spec.bmcs`: a network such as `192.0.2.0/24`, an address, a host's name, or
/// `*.` and a domain; with `http://` before it where they may see the account without TLS, and with `webhook+https://` or
/// `webhook+http://` for web servers in the place of BMCs.
pub fn is_bmc_place(place: &str) -> bool {
    let (place, _) = parted(place);
    place.parse::<IpNet>().is_ok() || is_host(place.strip_prefix("*.").unwrap_or(place))
}

/// Whether that place has the BMC, as its host is written: a name is not looked up, so that who answers for the name cannot widen
/// it.
pub fn place_has(place: &str, bmc: &BmcAddress) -> bool {
    let (place, protocols) = parted(place);
    if !protocols.contains(&bmc.protocol) {
        return false;
    }
    let host = bmc.host();
    if let Ok(address) = host.parse::<IpAddr>() {
        return place.parse::<IpNet>().is_ok_and(|net| net.contains(&address))
            || place.parse::<IpAddr>().is_ok_and(|one| one == address);
    }
    let (place, host) = (place.to_ascii_lowercase(), host.to_ascii_lowercase());
    match place.strip_prefix("*.") {
        Some(domain) => host.strip_suffix(domain).is_some_and(|name| name.ends_with('.') && name.len() > 1),
        None => place == host,
    }
}

string_scalar!(BmcAddress, "^((redfish|webhook)\\+https?|ipmi)://", "The address of a BMC");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_round_trips_and_knows_its_parts() {
        for (text, host, base, path) in [
            ("redfish+https://192.0.2.7", "192.0.2.7", "https://192.0.2.7", ""),
            ("redfish+https://BMC-1.example/", "bmc-1.example", "https://bmc-1.example", ""),
            ("redfish+http://h:8000/redfish/v1/Systems/a", "h", "http://h:8000", "/redfish/v1/Systems/a"),
            ("redfish+https://[2001:db8::7]:8443/x/", "2001:db8::7", "https://[2001:db8::7]:8443", "/x"),
            ("ipmi://192.0.2.7", "192.0.2.7", "ipmi://192.0.2.7", ""),
            ("ipmi://[2001:db8::7]:6230/", "2001:db8::7", "ipmi://[2001:db8::7]:6230", ""),
        ] {
            let address: BmcAddress = text.parse().unwrap();
            assert_eq!((address.host(), address.base().as_str(), address.path()), (host, base, path), "{text}");
            assert_eq!(address.to_string().parse(), Ok(address));
        }
    }

    #[test]
    fn a_bad_address_is_refused_without_its_password() {
        for bad in [
            "", "192.0.2.7", "https://192.0.2.7", "ipmi://192.0.2.7/redfish/v1", "ipmi://", "redfish+https://",
            "redfish+https:///x", "redfish+https://h:0", "redfish+https://h:x", "redfish+https://2001:db8::7",
            "redfish+https://[h]", "redfish+https://[::1]x", "redfish+https://h/a b", "redfish+https://h/?a",
            "redfish+https://a..b",
        ] {
            assert!(bad.parse::<BmcAddress>().is_err(), "{bad}");
        }
        for written in
            ["redfish+https://root:hunter2@h", "redfish+https://root:a/hunter2@h", "root:hunter2@h", "hunter2://a@h"]
        {
            let refused = written.parse::<BmcAddress>().unwrap_err().to_string();
            assert!(!refused.contains("hunter2") && refused.contains("Secret"), "{refused}");
        }
    }

    #[test]
    fn a_place_has_hosts_as_they_are_written() {
        for (place, host, has) in [
            ("192.0.2.0/24", "192.0.2.7", true),
            ("192.0.2.0/24", "192.0.3.7", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("2001:db8::/32", "2001:db8::7", true),
            ("0.0.0.0/0", "h.example", false),
            ("*.bmc.example", "a.bmc.example", true),
            ("*.bmc.example", "A.b.BMC.example", true),
            ("*.bmc.example", "bmc.example", false),
            ("*.bmc.example", "evilbmc.example", false),
            ("a.example", "A.example", true),
            ("a.example", "b.a.example", false),
        ] {
            assert!(is_bmc_place(place), "{place}");
            let (tls, plain) = (format!("redfish+https://{host}"), format!("redfish+http://{host}"));
            let has_it = |place: &str, address: &str| {
                place_has(place, &address.replace("2001:db8::7", "[2001:db8::7]").parse().unwrap())
            };
            assert_eq!(has_it(place, &tls), has, "{place} {host}");
            assert!(!has_it(place, &plain), "without TLS only where it is named so");
            assert_eq!(has_it(&format!("http://{place}"), &plain), has, "{place} {host}");
            assert!(!has_it(&format!("http://{place}"), &tls));
            for scheme in ["webhook+https", "webhook+http"] {
                let webhook = format!("{scheme}://{host}");
                assert_eq!(has_it(&format!("{scheme}://{place}"), &webhook), has, "{place} {host}");
                assert!(
                    !has_it(place, &webhook) && !has_it(&format!("http://{place}"), &webhook),
                    "not where BMCs are"
                );
            }
        }
        for bad in ["", "*", "*.", "a b", "192.0.2.0/33", "a.*"] {
            assert!(!is_bmc_place(bad), "{bad}");
        }
    }
}
