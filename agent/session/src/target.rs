//! Where the coordinator is, or each of several that share one store, and which CA keys prove it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, net::IpAddr, str::FromStr};

use http::Uri;

use landfall_api::Pin;

use crate::Proxy;
use crate::proxy::authority;

/// Addresses that are tried for a connection, at most.
const MAX_PLACES: usize = 8;

/// A coordinator's TLS port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    host: String,
    port: u16,
}

/// What came of connections: shared by all copies of a target, and no part of what it is.
#[derive(Debug, Clone, Default)]
struct Known(Arc<Mutex<Learned>>);

#[derive(Debug, Default)]
struct Learned {
    /// Which place the next connection begins with, counted over all of them.
    first: usize,
    /// Places that a coordinator has named.
    places: Vec<Place>,
}

impl PartialEq for Known {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Known {}

impl Known {
    fn lock(&self) -> MutexGuard<'_, Learned> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The TLS ports of the coordinators, and the pins of their CA. Each connection begins with the place that answered last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    places: Vec<Place>,
    known: Known,
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

/// The URL of a coordinator on the host of another URL, of HTTP or HTTPS; `None`: that one names no host.
pub fn coordinator_beside(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    let host = uri.host().filter(|host| !host.is_empty() && matches!(uri.scheme_str(), Some("http" | "https")))?;
    Some(format!("https://{host}"))
}

impl Target {
    /// Takes `https://host[:port]` (an IP or a name; a lone `/` may follow) and at least one pin.
    ///
    /// # Errors
    /// [`TargetError`], saying what to write instead.
    pub fn new(url: &str, pins: Vec<Pin>) -> Result<Self, TargetError> {
        Self::of(&[url], pins)
    }
    /// The same of several coordinators; the first connection begins with the first of them. Those beyond eight are left out.
    ///
    /// # Errors
    /// [`TargetError`], saying what to write instead; also where there is none.
    pub fn of(urls: &[impl AsRef<str>], pins: Vec<Pin>) -> Result<Self, TargetError> {
        let mut places = Vec::new();
        for url in urls {
            let place = url.as_ref().parse()?;
            if !places.contains(&place) && places.len() < MAX_PLACES {
                places.push(place);
            }
        }
        if places.is_empty() {
            return Err(TargetError::Url(String::new()));
        }
        if pins.is_empty() {
            return Err(TargetError::NoPin);
        }
        Ok(Self { places, known: Known::default(), pins, nameservers: Vec::new(), proxy: None })
    }
    /// Whether one place is of both.
    pub fn meets(&self, other: &Self) -> bool {
        self.places.iter().any(|place| other.places.contains(place))
    }
    /// The same with the places of others behind its own. Those beyond eight are left out.
    #[must_use]
    pub fn beside(mut self, others: &[Self]) -> Self {
        for place in others.iter().flat_map(|other| &other.places) {
            if !self.places.contains(place) && self.places.len() < MAX_PLACES {
                self.places.push(place.clone());
            }
        }
        self
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
    /// Where each coordinator is, in the order in which they are tried now; never empty.
    pub fn places(&self) -> Vec<Place> {
        let known = self.known.lock();
        let mut all = self.all(&known);
        let first = known.first % all.len();
        all.rotate_left(first);
        all
    }
    /// Those of the target, and then those that were learned.
    fn all(&self, known: &Learned) -> Vec<Place> {
        let learned = known.places.iter().filter(|place| !self.places.contains(place));
        self.places.iter().chain(learned).take(MAX_PLACES).cloned().collect()
    }
    /// Whether there is another coordinator than the first.
    pub(crate) fn has_several(&self) -> bool {
        self.places().len() > 1
    }
    /// This place answers: the next connection begins with it.
    pub(crate) fn prefer(&self, place: &Place) {
        let mut known = self.known.lock();
        if let Some(at) = self.all(&known).iter().position(|other| other == place) {
            known.first = at;
        }
    }
    /// The place that was preferred answers, and does not serve: the next connection begins with the one after it. A coordinator that has
    /// lost its place may not know it.
    pub(crate) fn pass_on(&self) {
        let mut known = self.known.lock();
        known.first = (known.first + 1) % self.all(&known).len();
    }
    /// The coordinator that was preferred names these beside it, in place of what was learned before. Those beyond eight in all are left
    /// out, and what is no address.
    pub(crate) fn learn(&self, urls: &[String]) {
        // One that does not know the others: an older one, or it has none.
        let Some(here) = self.places().into_iter().next().filter(|_| !urls.is_empty()) else { return };
        let mut learned: Vec<Place> = Vec::new();
        // It does not name itself.
        for place in std::iter::once(here.clone()).chain(urls.iter().filter_map(|url| url.parse().ok())) {
            if !learned.contains(&place) {
                learned.push(place);
            }
        }
        self.known.lock().places = learned;
        self.prefer(&here);
    }
    /// Hosts and ports that this machine itself connects to.
    pub fn first_hops(&self) -> Vec<(String, u16)> {
        match &self.proxy {
            Some(proxy) => vec![(proxy.host().to_owned(), proxy.port())],
            None => self.places().into_iter().map(|place| (place.host, place.port)).collect(),
        }
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
        for (at, place) in self.all(&self.known.lock()).iter().enumerate() {
            write!(f, "{}{place}", if at == 0 { "" } else { " or " })?;
        }
        Ok(())
    }
}

impl FromStr for Place {
    type Err = TargetError;

    fn from_str(url: &str) -> Result<Self, TargetError> {
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
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { host, port })
    }
}

impl Place {
    /// An IP address (without brackets) or a name.
    pub fn host(&self) -> &str {
        &self.host
    }
    /// The TCP port.
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Place {
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
        let several = Target::of(&["https://a", "https://b:1", "https://a:7443"], pins()).unwrap();
        assert_eq!(several.to_string(), "https://a:7443 or https://b:1");
        assert!(Target::of(&["https://a", "b"], pins()).is_err() && Target::of(&[""; 0], pins()).is_err());
        let hosts = |target: &Target| target.places().into_iter().map(|place| place.host).collect::<Vec<_>>();
        let copy = several.clone();
        copy.pass_on();
        assert_eq!((hosts(&several), &copy), (vec!["b".to_owned(), "a".to_owned()], &several));
        several.pass_on();
        several.prefer(&"https://b:1".parse().unwrap());
        assert_eq!(hosts(&copy), ["b", "a"]);
    }

    #[test]
    fn a_coordinator_names_those_beside_it() {
        let target = Target::of(&["https://a", "https://b"], vec![pin_of_spki(b"ca")]).unwrap();
        let (copy, tried) =
            (target.clone(), || target.places().into_iter().map(|place| place.host).collect::<String>());
        for (reached, named, then) in [
            ("b", &[][..], "ba"),
            ("b", &["https://a", "https://c"], "bca"),
            ("c", &["https://a", "https://b"], "cab"),
            ("c", &["https://a", "nothing", "http://d", "https://d"], "cdab"),
            ("d", &[], "dabc"),
            ("a", &["https://e"], "abe"),
            (
                "a",
                &[
                    "https://a", "https://1", "https://2", "https://3", "https://4", "https://5", "https://6",
                    "https://7",
                ],
                "ab123456",
            ),
        ] {
            copy.prefer(&format!("https://{reached}").parse().unwrap());
            copy.learn(&named.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>());
            assert_eq!(tried(), then, "{reached} {named:?}");
        }
        copy.pass_on();
        assert_eq!(tried(), "b123456a");
        assert_eq!(target.to_string().matches(" or ").count(), 7);
    }
}
