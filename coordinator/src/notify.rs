//! Reports the process's state to the service manager: systemd's sd_notify protocol. One datagram to the socket that
//! `NOTIFY_SOCKET` names; without the variable there is no service manager.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// It serves.
pub fn ready() {
    tell("READY=1");
}

/// It serves, and the coordinator at this URL leads.
pub fn led_by(url: &str) {
    tell(&format!("STATUS={url} leads"));
}

/// It leads.
pub fn leads() {
    tell("STATUS=it leads");
}

/// It drains.
pub fn stopping() {
    tell("STOPPING=1");
}

/// It reads its configuration again; [`ready`] says that it has.
pub fn reloading() {
    // By the clock that systemd compares with its own request's time.
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map(Duration::from);
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.unwrap_or_default().as_micros()));
}

/// It works: asked for by [`watchdog`].
pub fn alive() {
    tell("WATCHDOG=1");
}

/// How often the service manager is to hear [`alive`]: half of the time after which it restarts the process. `None` if it
/// does not watch.
pub fn watchdog() -> Option<Duration> {
    every(&std::env::var("WATCHDOG_USEC").ok()?)
}

fn every(limit: &str) -> Option<Duration> {
    limit.parse().ok().map(|limit| Duration::from_micros(limit) / 2).filter(|every| !every.is_zero())
}

fn tell(state: &str) {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(error) = send(&socket, state)
    {
        tracing::warn!(%error, state, "cannot notify the service manager");
    }
}

fn send(socket: &OsString, state: &str) -> std::io::Result<()> {
    // A name that begins with @ is an abstract one, which has no file.
    let to = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &to).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_hears_twice_in_its_limit() {
        assert_eq!(every("300000000"), Some(Duration::from_secs(150)));
        assert_eq!((every("0"), every("soon")), (None, None));
    }

    #[test]
    fn both_socket_kinds_get_the_notification() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let listening = UnixDatagram::bind(&path).unwrap();
        send(&path.into_os_string(), "READY=1").unwrap();
        let name = format!("landfall-test-{}", std::process::id());
        let hidden = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        send(&OsString::from(format!("@{name}")), "STOPPING=1").unwrap();
        for (socket, expected) in [(listening, "READY=1"), (hidden, "STOPPING=1")] {
            let mut buffer = [0; 64];
            let length = socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], expected.as_bytes());
        }
        assert!(send(&dir.path().join("gone").into_os_string(), "READY=1").is_err());
    }
}
