//! A real coordinator process with a configuration and a data directory of its own, and its API over the Unix socket.

pub(crate) mod agent;

use std::io::{BufRead as _, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

pub(crate) const API: &str = "/apis/landfall.dev/v1alpha1";
/// Generous: a loaded machine is not a failure.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// The process; killed when dropped.
pub(crate) struct Coordinator {
    pub(crate) child: Child,
    log: Arc<(Mutex<Log>, Condvar)>,
}

/// What a process has logged so far, and whether that is all.
#[derive(Default)]
struct Log {
    said: String,
    ended: bool,
}

impl Coordinator {
    /// Waits until it is ready.
    pub(crate) fn start(config: &Path) -> Self {
        Self::spawn(Command::new(program()).args(["--config".as_ref(), config.as_os_str()]))
    }

    /// Whatever `command` is, in the end it is a coordinator.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self::spawn_until(command, " ready ")
    }

    /// Waits for a log line with this in it.
    pub(crate) fn spawn_until(command: &mut Command, expected: &str) -> Self {
        let mut child = command.env("RUST_LOG", "info").stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let log = Arc::<(Mutex<Log>, Condvar)>::default();
        let tail = log.clone();
        // Read to the end: a full pipe would stop it at its next log line.
        std::thread::spawn(move || {
            let (tail, changed) = &*tail;
            for line in lines {
                let said = &mut tail.lock().unwrap().said;
                said.push_str(&line);
                said.push('\n');
                changed.notify_all();
            }
            tail.lock().unwrap().ended = true;
            changed.notify_all();
        });
        let started = Self { child, log };
        started.until(expected, 1);
        started
    }

    /// What it has logged so far.
    pub(crate) fn said(&self) -> String {
        self.log.0.lock().unwrap().said.clone()
    }

    /// Waits until it has logged this so many times.
    pub(crate) fn until(&self, expected: &str, times: usize) {
        let (log, changed) = &*self.log;
        let lacks = |log: &Log| log.said.matches(expected).count() < times;
        let waited = changed.wait_timeout_while(log.lock().unwrap(), LIMIT, |log| !log.ended && lacks(log)).unwrap();
        let (is_missing, has_ended, said) = (lacks(&waited.0), waited.0.ended, waited.0.said.clone());
        drop(waited);
        assert!(!is_missing, "not {times} times {expected:?}, ended: {has_ended}:\n{said}");
    }

    /// Gives it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// SIGTERM, as for an upgrade; ends well.
    pub(crate) fn terminate(mut self) {
        self.signal(Signal::SIGTERM);
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < LIMIT, "it does not end:\n{}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(status.success(), "{status}:\n{}", self.said());
    }

    /// SIGKILL: nothing is tidied up, as in a crash.
    pub(crate) fn kill(mut self) {
        self.kill_now();
    }

    fn kill_now(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.kill_now();
    }
}

/// The built program.
pub(crate) fn program() -> &'static str {
    env!("CARGO_BIN_EXE_landfall-coordinator")
}

/// Runs it with these arguments to its end; whether it succeeded, and all it said.
pub(crate) fn run(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(program()).args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (output.status.success(), said)
}

pub(crate) struct Site {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) host: &'static str,
    pub(crate) http: u16,
    pub(crate) tls: u16,
}

impl Site {
    /// Its data directory is `data` below `dir`.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        Self::with_data(dir, &data)
    }

    /// With a data directory of the caller's choice.
    pub(crate) fn with_data(dir: tempfile::TempDir, data: &Path) -> Self {
        let [http, tls] = landfall_edge::testing::ports();
        for file in ["vmlinuz", "initramfs", "images/os.zst"] {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, b"content").unwrap();
        }
        let site = Self { dir, host: "127.0.0.1", http, tls };
        site.configure("c.toml", data);
        site
    }

    /// Another configuration of the same site, for another data directory.
    pub(crate) fn configure(&self, name: &str, data: &Path) -> PathBuf {
        let (at, data, host, http, tls) = (self.dir.path().display(), data.display(), self.host, self.http, self.tls);
        let config = format!(
            "data_dir = \"{data}\"\nadvertise = \"{host}\"\n\
             [http]\nlisten = \"{host}:{http}\"\n[tls]\nlisten = \"{host}:{tls}\"\n[tftp]\nenabled = false\n\
             [boot]\nkernel = \"{at}/vmlinuz\"\ninitramfs = \"{at}/initramfs\"\nimages = \"{at}/images\"\n\
             [limits]\nheartbeat = \"1s\"\n"
        );
        let path = self.dir.path().join(name);
        std::fs::write(&path, config).unwrap();
        path
    }

    /// The URL of its TLS port.
    pub(crate) fn url(&self) -> String {
        format!("https://{}:{}", self.host, self.tls)
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.dir.path().join("c.toml")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Asks over the Unix socket, as `landfall` does; must succeed.
    pub(crate) fn api(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = call(&self.data().join("api.sock"), method, &format!("{API}{path}"), body).unwrap();
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        serde_json::from_str(&answer).unwrap_or(Value::String(answer))
    }
}

/// One request over the socket, and its whole answer; an error if there is none, or not a whole one.
pub(crate) fn call(socket: &Path, method: &str, path: &str, body: &Value) -> std::io::Result<(u16, String)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(LIMIT))?;
    request(&mut stream, method, path, &body.to_string())
}

/// One HTTP request on a stream.
pub(crate) fn request(
    stream: &mut (impl Read + Write), method: &str, path: &str, body: &str,
) -> std::io::Result<(u16, String)> {
    let length = body.len();
    let whole = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    // In one piece: an answer may come before the end of what it does not need, and then the rest is not taken.
    stream.write_all(whole.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let broken = || std::io::Error::other("the answer broke off");
    let answer = String::from_utf8(answer).map_err(|_| broken())?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(broken)?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or_else(broken)?;
    let head = head.to_ascii_lowercase();
    if let Some(length) = head.lines().find_map(|line| line.strip_prefix("content-length: ")) {
        if length.trim().parse() != Ok(body.len()) {
            return Err(broken());
        }
    } else if head.contains("transfer-encoding: chunked") {
        return Ok((status, unchunked(body).ok_or_else(broken)?));
    }
    Ok((status, body.to_owned()))
}

/// The body of a chunked answer, if it came to its end.
fn unchunked(mut body: &str) -> Option<String> {
    let mut out = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n")?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        if size == 0 {
            return Some(out);
        }
        out.push_str(rest.get(..size)?);
        body = rest.get(size + 2..)?;
    }
}

pub(crate) fn document(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "landfall.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

pub(crate) fn machine(name: &str, mac: &str) -> Value {
    document("Machine", name, json!({"identity": {"macs": [mac]}}))
}
