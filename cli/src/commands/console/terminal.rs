//! The terminal of a person at a console: raw while the console is open, and as it was on every way out.

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::fd::AsFd as _;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

use crate::text::visible;

/// Bytes that are read of the keyboard at once: a paste has more.
const PIECE: usize = 1024;
/// Pieces that wait; then the terminal keeps the rest.
const PIECES: usize = 16;

/// A terminal in raw mode: each key goes to the machine, Ctrl-C too. Dropping it sets the terminal as it was, also in a panic.
pub(super) struct Raw(Termios);

impl Raw {
    /// # Errors
    /// Those of the terminal.
    pub(super) fn enter() -> io::Result<Self> {
        let stdin = io::stdin();
        let before = tcgetattr(stdin.as_fd())?;
        let raw = Self(before);
        raw.again()?;
        Ok(raw)
    }

    /// Raw once more: a shell sets the terminal as it likes while a command is stopped.
    pub(super) fn again(&self) -> io::Result<()> {
        let mut modes = self.0.clone();
        modes.make_raw();
        Ok(tcsetattr(io::stdin().as_fd(), OptionalActions::Flush, &modes)?)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(io::stdin().as_fd(), OptionalActions::Drain, &self.0);
    }
}

/// Whether a person sits there: who reads the output types at the same place.
pub(super) fn is_there() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// What is typed, piece by piece, until the terminal is gone. A thread of its own, which nothing waits for at the end: a read of a
/// terminal cannot be cut off.
pub(super) fn keys() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(PIECES);
    std::thread::spawn(move || {
        let mut piece = [0; PIECE];
        while let Ok(length @ 1..) = io::stdin().lock().read(&mut piece) {
            if sender.blocking_send(piece[..length].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Something for the person, beside what the machine writes: never on standard output.
pub(super) fn say(is_raw: bool, lines: &[&str]) {
    // A raw terminal begins no new line by itself.
    let end = if is_raw { "\r" } else { "" };
    let mut said = String::new();
    if is_raw {
        said.push_str("\r\n");
    }
    for line in lines {
        said.push_str(&format!("[landfall: {}]{end}\n", visible(line)));
    }
    drop(io::stderr().write_all(said.as_bytes()));
}
