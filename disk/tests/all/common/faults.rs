//! An HTTP server with scripted faults: a script says what happens to each response; after the script's end the server
//! works correctly. Also one that stops after so many bytes, for a reader that is to be killed just then.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::Linger;
use proptest::prelude::*;

use super::MIB;

/// No wait of the server's is longer; none should come near it.
const BOUND: Duration = Duration::from_secs(60);
/// One send: so a reader that hangs up is noticed soon.
const PIECE: usize = 64 << 10;

/// What goes wrong with one answer. Places are bytes of the file, cut at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    Good,
    /// The connection is closed there.
    Cut(u64),
    /// The connection is reset there.
    Reset(u64),
    /// Nothing comes any more from there on, until [`Faulty::go_on`].
    Stall(u64),
    /// The same, but meant to be ended by the reader.
    Hang(u64),
    /// 503, come back after so many seconds.
    Busy(u8),
    /// Content-Length says more than there is.
    Longer(u16),
    /// Content-Length says less.
    Shorter(u16),
    /// 200 and everything, whatever range was asked for.
    NoRange,
    /// The validator changes, and only a request that names it gets a range.
    OtherTag,
    /// One bit of the body.
    Flip(u64, u8),
    /// Content-Type names a format that it is not.
    Label,
    /// No length, and no end.
    Endless,
    /// Redirected to where one is redirected to.
    Loop,
}

/// A place in a file of some MiB: anywhere, or at a boundary of MiB, or one byte beside it.
fn place() -> impl Strategy<Value = u64> {
    prop_oneof![0..7 * MIB, (0..7_u64, 0..3_u64).prop_map(|(mib, beside)| (mib * MIB + beside).saturating_sub(1))]
}

/// Any fault.
pub(crate) fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        3 => Just(Fault::Good),
        4 => place().prop_map(Fault::Cut),
        2 => place().prop_map(Fault::Reset),
        2 => place().prop_map(Fault::Stall),
        1 => place().prop_map(Fault::Hang),
        1 => (0..2_u8).prop_map(Fault::Busy),
        1 => (1..2000_u16).prop_map(Fault::Longer),
        1 => (1..2000_u16).prop_map(Fault::Shorter),
        2 => Just(Fault::NoRange),
        2 => Just(Fault::OtherTag),
        4 => (place(), 0..8_u8).prop_map(|(at, bit)| Fault::Flip(at, bit)),
        1 => Just(Fault::Label),
        1 => Just(Fault::Endless),
        1 => Just(Fault::Loop),
    ]
}

#[derive(Debug, Default)]
struct State {
    script: VecDeque<Fault>,
    /// A response waits for [`Faulty::go_on`] or for the reader to hang up.
    stalled: Option<Fault>,
    /// Counts calls of `go_on`: a waiting response waits until it changes.
    epoch: u64,
    /// Bytes of bodies sent in all, of files other than those in `uncounted`.
    served: u64,
    /// No more of them than this.
    budget: Option<u64>,
    /// Counts calls of `budget`: a response from before the last is to a reader that was killed.
    budgets: u64,
}

struct Shared {
    files: Vec<(&'static str, Vec<u8>)>,
    state: Mutex<State>,
    changed: Condvar,
}

/// The server; it ends with the test's process.
#[derive(Clone)]
pub(crate) struct Faulty {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Faulty {
    /// Serves these files by path. Only bytes of `/image` are counted.
    pub(crate) fn start(files: Vec<(&'static str, Vec<u8>)>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { files, state: Mutex::default(), changed: Condvar::new() });
        let server = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (server, stream) = (Arc::clone(&server), stream.unwrap());
                thread::spawn(move || server.answer(stream));
            }
        });
        Self { shared, address }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Sets what happens to the next responses, and ends those that wait.
    pub(crate) fn script(&self, script: impl IntoIterator<Item = Fault>) {
        let mut state = self.shared.lock();
        state.script = script.into_iter().collect();
        self.end_waits(&mut state);
    }

    /// Ends every stall.
    pub(crate) fn go_on(&self) {
        self.end_waits(&mut self.shared.lock());
    }

    fn end_waits(&self, state: &mut State) {
        (state.stalled, state.epoch) = (None, state.epoch + 1);
        self.shared.changed.notify_all();
    }

    /// What the server is stalled by.
    pub(crate) fn stalled(&self) -> Option<Fault> {
        self.shared.lock().stalled
    }

    /// Counts from 0, and gives no more than so many bytes.
    pub(crate) fn budget(&self, budget: Option<u64>) {
        let mut state = self.shared.lock();
        (state.served, state.budget, state.budgets) = (0, budget, state.budgets + 1);
        self.end_waits(&mut state);
    }

    /// Bytes of `/image` given since [`Self::budget`].
    pub(crate) fn served(&self) -> u64 {
        self.shared.lock().served
    }

    /// Waits until so many bytes were given; false: `over` said that there will be no more.
    pub(crate) fn wait_served(&self, bytes: u64, mut over: impl FnMut() -> bool) -> bool {
        let begun = Instant::now();
        let mut state = self.shared.lock();
        while state.served < bytes {
            if over() {
                return false;
            }
            assert!(begun.elapsed() < BOUND, "{} of {bytes} bytes were fetched, and no more", state.served);
            state = self.shared.changed.wait_timeout(state, Duration::from_millis(5)).unwrap().0;
        }
        true
    }
}

/// First byte and end of the range asked for.
fn range(head: &str) -> Option<(usize, usize)> {
    let (first, last) = head.lines().find_map(|line| line.strip_prefix("range: bytes="))?.split_once('-')?;
    Some((first.parse().ok()?, last.parse::<usize>().map_or(usize::MAX, |last| last + 1)))
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn answer(&self, mut stream: TcpStream) {
        let budgets = self.lock().budgets;
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let path = head.split(' ').nth(1).unwrap_or_default();
        if path == "/loop" {
            // A client may hang up, here and below.
            let _ = write!(
                stream,
                "HTTP/1.1 302 Found\r\nlocation: /loop\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            return;
        }
        let Some((name, content)) = self.files.iter().find(|(name, _)| *name == path) else {
            // The writer under test may hang up.
            let _ = write!(stream, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            return;
        };
        let fault = self.lock().script.pop_front().unwrap_or(Fault::Good);
        // Before the image is requested the lease is not checked, and that check is what ends a stall.
        let fault = match fault {
            Fault::Stall(at) | Fault::Hang(at) if *name != "/image" => Fault::Reset(at),
            other => other,
        };
        // The writer under test may hang up, as the script has it do.
        let _ = self.serve(&mut stream, &head, content, fault, (*name == "/image").then_some(budgets));
    }

    fn serve(
        &self, stream: &mut TcpStream, head: &str, content: &[u8], fault: Fault, counted: Option<u64>,
    ) -> std::io::Result<()> {
        let total = content.len();
        let tag = if fault == Fault::OtherTag { "\"other\"" } else { "\"v1\"" };
        let same = head.lines().find_map(|l| l.strip_prefix("if-range: ")).is_none_or(|asked| asked.trim() == tag);
        let ignored = matches!(fault, Fault::NoRange | Fault::Endless) || !same;
        let (status, first, end) = match range(head).filter(|_| !ignored) {
            Some((first, _)) if first >= total => {
                return write!(
                    stream,
                    "HTTP/1.1 416 Range\r\ncontent-range: bytes */{total}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                );
            }
            Some((first, end)) => {
                let end = end.min(total);
                (format!("206 Partial\r\ncontent-range: bytes {first}-{}/{total}", end - 1), first, end)
            }
            None => ("200 OK".to_owned(), 0, total),
        };
        let length = end - first;
        let length = match fault {
            Fault::Busy(seconds) => {
                return write!(
                    stream,
                    "HTTP/1.1 503 Busy\r\nretry-after: {seconds}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                );
            }
            Fault::Loop => {
                return write!(
                    stream,
                    "HTTP/1.1 302 Found\r\nlocation: /loop\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                );
            }
            Fault::Endless => None,
            Fault::Longer(by) => Some(length + usize::from(by)),
            Fault::Shorter(by) => Some(length.saturating_sub(usize::from(by))),
            _ => Some(length),
        };
        let zstd = content.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]);
        let kind = match fault {
            Fault::Label if zstd => "application/gzip",
            Fault::Label => "application/zstd",
            _ => "application/octet-stream",
        };
        let length = length.map_or(String::new(), |length| format!("content-length: {length}\r\n"));
        write!(
            stream,
            "HTTP/1.1 {status}\r\n{length}etag: {tag}\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n"
        )?;
        let mut body = content[first..end].to_vec();
        match fault {
            Fault::Flip(at, bit) => {
                if let Some(byte) = (at as usize).checked_sub(first).and_then(|at| body.get_mut(at)) {
                    *byte ^= 1 << bit;
                }
            }
            Fault::Shorter(by) => body.truncate((end - first).saturating_sub(usize::from(by))),
            _ => {}
        }
        let until = |at: u64| (at as usize).saturating_sub(first).min(body.len());
        match fault {
            Fault::Cut(at) => self.send(stream, &body[..until(at)], counted),
            Fault::Reset(at) => {
                self.send(stream, &body[..until(at)], counted)?;
                setsockopt(&*stream, Linger, &libc::linger { l_onoff: 1, l_linger: 0 })?;
                Ok(())
            }
            Fault::Stall(at) | Fault::Hang(at) => {
                let (before, after) = body.split_at(until(at));
                self.send(stream, before, counted)?;
                self.wait(fault);
                self.send(stream, after, counted)
            }
            Fault::Endless => loop {
                self.send(stream, &body, counted)?;
            },
            _ => self.send(stream, &body, counted),
        }
    }

    /// Waits for `go_on`.
    fn wait(&self, fault: Fault) {
        let mut state = self.lock();
        let epoch = state.epoch;
        state.stalled = Some(fault);
        let (mut state, _) = self.changed.wait_timeout_while(state, BOUND, |state| state.epoch == epoch).unwrap();
        state.stalled = None;
    }

    /// `counted`: within which call of [`Faulty::budget`], if the bytes count.
    fn send(&self, stream: &mut TcpStream, body: &[u8], counted: Option<u64>) -> std::io::Result<()> {
        for mut piece in body.chunks(PIECE) {
            while let Some(budgets) = counted.filter(|_| !piece.is_empty()) {
                let mut state = self.lock();
                if state.budgets != budgets {
                    return Err(std::io::ErrorKind::ConnectionAborted.into());
                }
                let epoch = state.epoch;
                let left = state.budget.map_or(u64::MAX, |budget| budget.saturating_sub(state.served));
                let now = usize::try_from(left).map_or(piece.len(), |left| left.min(piece.len()));
                if now == 0 {
                    // The reader is to be killed now; the next one has another connection.
                    drop(self.changed.wait_timeout_while(state, BOUND, |state| state.epoch == epoch).unwrap());
                    return Err(std::io::ErrorKind::TimedOut.into());
                }
                state.served += now as u64;
                drop(state);
                stream.write_all(&piece[..now])?;
                self.changed.notify_all();
                piece = &piece[now..];
            }
            if counted.is_none() {
                stream.write_all(piece)?;
            }
        }
        Ok(())
    }
}
