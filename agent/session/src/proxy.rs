//! An HTTP proxy on the way to the coordinator: it connects the agent to the coordinator's TLS port (CONNECT; RFC 9110, 9.3.6), and sees
//! nothing of what passes.

use std::{fmt, str::FromStr};

use http::Uri;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::ProxyError;

/// A proxy's answer is no longer.
const MAX_HEAD: usize = 8 << 10;

/// `http://HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    host: String,
    port: u16,
}

/// Text that is no proxy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a proxy; write http://HOST:PORT, without a user and a password")]
pub struct NoProxy(String);

impl Proxy {
    /// An IP address (without brackets) or a name.
    pub fn host(&self) -> &str {
        &self.host
    }
    /// The TCP port.
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for Proxy {
    type Err = NoProxy;
    fn from_str(text: &str) -> Result<Self, NoProxy> {
        // A password is not shown.
        let bad = || NoProxy(if text.contains('@') { "a URL with a user".to_owned() } else { format!("\"{text}\"") });
        let uri: Uri = text.parse().map_err(|_| bad())?;
        let plain = uri.path_and_query().is_none_or(|path| path.as_str() == "/");
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(bad)?;
        let port = authority.port_u16().filter(|port| *port != 0).ok_or_else(bad)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if uri.scheme_str() != Some("http") || !plain || host.is_empty() {
            return Err(bad());
        }
        Ok(Self { host, port })
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", authority(&self.host, self.port))
    }
}

/// As it stands in a URL.
pub(crate) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Has the proxy at the other end connect to `to`, host and port; what is sent from then on is for that one.
pub(crate) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, to: &str) -> Result<(), ProxyError> {
    let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(ProxyError::Broken)?;
    let mut head = Vec::new();
    // Byte by byte, since what follows the answer is the coordinator's. It is short, and comes once a connection.
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == MAX_HEAD {
            return Err(ProxyError::NotHttp);
        }
        head.push(stream.read_u8().await.map_err(ProxyError::Broken)?);
    }
    // "HTTP/1.1 200 Connection established", RFC 9112, 4; the reason may be missing.
    let line = String::from_utf8_lossy(&head);
    let line = line.lines().next().and_then(|line| line.strip_prefix("HTTP/1.")).ok_or(ProxyError::NotHttp)?;
    let mut words = line.splitn(3, ' ').skip(1);
    let status: u16 = words.next().and_then(|status| status.parse().ok()).ok_or(ProxyError::NotHttp)?;
    let reason = words.next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(80).collect();
    if (200..300).contains(&status) { Ok(()) } else { Err(ProxyError::Refused { status, reason }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_parse_and_print_alike() {
        for text in ["http://10.0.0.1:3128", "http://proxy.example:80", "http://[fd00::1]:3128"] {
            assert_eq!(text.parse::<Proxy>().unwrap().to_string(), text);
        }
        assert_eq!("http://p:1/".parse::<Proxy>().unwrap().host(), "p");
        for bad in ["", "p:3128", "https://p:3128", "http://p", "http://p:1/x", "http://p:0", "socks5://p:1"] {
            let said = bad.parse::<Proxy>().unwrap_err().to_string();
            assert!(said.starts_with(&format!("\"{bad}\" is not a proxy")), "{said}");
        }
        let said = "http://u:s3cret@p:1".parse::<Proxy>().unwrap_err().to_string();
        assert!(said.contains("without a user") && !said.contains("s3cret"), "{said}");
    }

    #[tokio::test]
    async fn each_answer_of_a_proxy_has_its_own_message() {
        for (answer, says) in [
            ("HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n", "Ok(())"),
            ("HTTP/1.0 200\r\n\r\n", "Ok(())"),
            ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "it answers 407 Proxy Authentication Required"),
            ("HTTP/1.1 403 \r\n\r\n", "it answers 403 "),
            ("SSH-2.0-x\r\n\r\n", "not one of HTTP"),
            ("HTTP/1.1 x y\r\n\r\n", "not one of HTTP"),
            (&"x".repeat(MAX_HEAD + 1), "not one of HTTP"),
            ("HTTP/1.1 200 OK\r\n", "the connection to it broke"),
        ] {
            let (mut agent, mut proxy) = tokio::io::duplex(64 << 10);
            proxy.write_all(answer.as_bytes()).await.unwrap();
            proxy.shutdown().await.unwrap();
            let said = match connect(&mut agent, "boot.example:7443").await {
                Ok(()) => "Ok(())".to_owned(),
                Err(error) => error.to_string(),
            };
            assert!(said.contains(says), "{answer}: {said}");
            let mut request = String::new();
            drop(agent);
            proxy.read_to_string(&mut request).await.unwrap();
            assert_eq!(request, "CONNECT boot.example:7443 HTTP/1.1\r\nHost: boot.example:7443\r\n\r\n");
        }
    }
}
