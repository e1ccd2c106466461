//! PgBouncer in front of a server: Debian's program, at a Unix socket.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{PATIENCE, Server, as_server, give};

/// Another program, which is killed when dropped.
#[derive(Debug)]
pub struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// A pooler, until dropped.
#[derive(Debug)]
pub struct Pooler {
    socket_dir: PathBuf,
    _running: Running,
}

impl Pooler {
    /// `mode`: `session`, `transaction` or `statement`.
    pub fn start(server: &Server, mode: &str) -> Self {
        let socket_dir = server.dir().join(format!("pool-{mode}"));
        std::fs::create_dir(&socket_dir).unwrap();
        give(&socket_dir);
        let config = socket_dir.join("pgbouncer.ini");
        let (server, at) = (server.dir().display(), socket_dir.display());
        let text = format!(
            "[databases]\n* = host={server} user=landfall\n[pgbouncer]\nlisten_addr =\nunix_socket_dir = {at}\n\
             auth_type = any\npool_mode = {mode}\ndefault_pool_size = 50\n"
        );
        std::fs::write(&config, text).unwrap();
        let running = Running::start(as_server("/usr/sbin/pgbouncer".as_ref()).arg("--quiet").arg(&config));
        let begun = Instant::now();
        // The socket is there before anything listens on it.
        while UnixStream::connect(socket_dir.join(".s.PGSQL.6432")).is_err() {
            assert!(begun.elapsed() < PATIENCE, "PgBouncer did not start; is Debian's package pgbouncer installed?");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { socket_dir, _running: running }
    }

    /// The URL of a database through it.
    pub fn url(&self, database: &str) -> String {
        format!("postgresql://landfall@/{database}?host={}&port=6432", self.socket_dir.display())
    }
}
