//! Whether a coordinator with this configuration runs now, and which process it is.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::{collections::HashSet, fs, os::unix::net::UnixStream, path::Path, time::Duration};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use crate::{config::Config, finding::Finding};

/// For its answer.
const LIMIT: Duration = Duration::from_secs(5);

/// Its metrics are some 100 kB.
const MOST: u64 = 4 << 20;

/// A coordinator that answers on the API's socket, if one does.
pub(super) struct Running {
    /// Its process.
    pub(super) pid: Option<i32>,
    /// Inodes of its sockets.
    sockets: HashSet<u64>,
    /// Only its own user and root may ask.
    hidden: bool,
    /// Another coordinator leads: that one answers what is broadcast.
    pub(super) is_led: bool,
}

impl Running {
    pub(super) fn find(config: &Config) -> Self {
        let stream = UnixStream::connect(config.api_socket());
        let hidden = stream.as_ref().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
        let pid =
            stream.as_ref().ok().and_then(|stream| getsockopt(stream, PeerCredentials).ok()).map(|peer| peer.pid());
        let is_led = stream.is_ok_and(|stream| is_led(stream).unwrap_or_default());
        let sockets = pid.map(|pid| sockets_of(Path::new(&format!("/proc/{pid}/fd")))).unwrap_or_default();
        Self { pid, sockets, hidden, is_led }
    }

    pub(super) fn finding(&self) -> Finding {
        match self.pid {
            Some(pid) if self.is_led => {
                Finding::ok("coordinator", format!("it runs, process {pid}; another one leads"))
            }
            Some(pid) => Finding::ok("coordinator", format!("it runs, process {pid}")),
            None if self.hidden => {
                let hint = "run the doctor as root, or as the coordinator's own user";
                Finding::warn("coordinator", "this user may not check whether one runs", hint)
            }
            None => Finding::ok("coordinator", "none runs with this data directory"),
        }
    }

    /// Whether this socket is its own.
    pub(super) fn owns(&self, inode: u64) -> bool {
        self.sockets.contains(&inode)
    }
}

/// Whether the one that answers does not lead.
fn is_led(mut stream: UnixStream) -> io::Result<bool> {
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(MOST).read_to_string(&mut answer)?;
    Ok(answer.contains("\nlandfall_active 0\n"))
}

/// Empty where the process is another user's.
pub(super) fn sockets_of(fds: &Path) -> HashSet<u64> {
    let Ok(entries) = fs::read_dir(fds) else { return HashSet::new() };
    let links = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter_map(|link| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()).collect()
}
