//! Where the coordinator is, or each of several with one store.

use std::{path::PathBuf, str::FromStr};

/// The coordinator's TLS port where the URL names none.
const DEFAULT_PORT: u16 = 7443;

/// Coordinators that one command tries, at most.
const MAX_PLACES: usize = 8;

/// A coordinator's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// The socket on the coordinator's own host.
    Unix(PathBuf),
    /// TLS ports of coordinators with one store, of which one is active; never empty. Written with commas in between.
    Https(Vec<Place>),
}

/// A coordinator's TLS port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Name or literal address, without brackets.
    pub(crate) host: String,
    /// TCP port.
    pub(crate) port: u16,
}

impl FromStr for Server {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix://") {
            if !path.starts_with('/') {
                return Err("a socket needs an absolute path, such as unix:///var/lib/landfall/api.sock".into());
            }
            return Ok(Self::Unix(path.into()));
        }
        let places = text.split(',').map(str::parse).collect::<Result<Vec<_>, _>>()?;
        if places.len() > MAX_PLACES {
            return Err(format!("it names {} coordinators; {MAX_PLACES} are the most", places.len()));
        }
        Ok(Self::Https(places))
    }
}

impl FromStr for Place {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let Some(authority) = text.strip_prefix("https://").map(|rest| rest.trim_end_matches('/')) else {
            return Err("write unix:///path or https://host[:port], several of these with commas".into());
        };
        let bad =
            || format!("\"{authority}\" is not host[:port]; write https://10.0.0.1:7443 or https://[fd00::1]:7443");
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(bad)?;
                (host, port.strip_prefix(':'))
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let port = port.map_or(Ok(DEFAULT_PORT), |p| p.parse().ok().filter(|p| *p != 0).ok_or_else(bad))?;
        if host.is_empty() || host.contains(['/', '@', '?']) {
            return Err(bad());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Https(places) => {
                let places: Vec<_> = places.iter().map(ToString::to_string).collect();
                f.write_str(&places.join(","))
            }
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "https://[{host}]:{port}") } else { write!(f, "https://{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_reads_and_prints_the_same() {
        let several = "https://10.0.0.1:7443,https://[fd00::1]:1";
        for text in
            ["unix:///run/a.sock", "https://10.0.0.1:7443", "https://[fd00::1]:1", "https://coord.example:9", several]
        {
            assert_eq!(text.parse::<Server>().unwrap().to_string(), text);
        }
        assert_eq!("https://host/".parse::<Server>().unwrap().to_string(), "https://host:7443");
        let many = ["https://a"; MAX_PLACES + 1].join(",");
        for bad in [
            "", "http://x", "unix://relative", "https://", "https://a:b", "https://a:0", "https://[::1", "https://a/b",
            "https://a,", "https://a,unix:///b", &many,
        ] {
            assert!(bad.parse::<Server>().is_err(), "{bad}");
        }
    }
}
