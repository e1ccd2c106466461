//! The status on the machine's screen: the first rows of its first terminal. The kernel's log scrolls below them. A key gives the log
//! the whole screen, page by page.
//!
//! The terminal's scrolling region keeps the log out of the rows, so a panic of the kernel is as visible as ever. The kernel takes one
//! write to a terminal as a whole as long as the terminal processes no output (`OPOST`): no line of the log comes between.
//!
//! A serial console shows no such rows: what records it wants lines. It gets one now and then while an action runs.

mod lines;

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt;
use std::thread;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, OutputModes, Winsize, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::kmsg::KernelLog;
use super::records::Records;
use crate::status::{Board, Status};
use crate::thread::on_thread;

/// The first virtual terminal, which the kernel shows at its start.
const TERMINAL: &str = "/dev/tty1";
/// Between two drawings at least: a framebuffer without acceleration is slow.
const PAUSE: Duration = Duration::from_millis(500);
/// All rows are drawn again so often, for a driver may have changed the screen's mode; until then those that have changed.
const REPAIR: Duration = Duration::from_secs(5);
/// Keys that may wait for a drawing.
const KEYS: usize = 16;
/// A screen needs so many rows of its own below ours.
const LEAST_LOG: u16 = 8;
/// Between two lines on the consoles while an action runs.
const REMINDER: Duration = Duration::from_secs(60);

/// Shows the status while the machine has a terminal; one without a screen has it too, and shows nothing.
pub(super) async fn show(board: Board) {
    let mut screen = match Screen::open() {
        Ok(screen) => screen,
        // A kernel without virtual terminals.
        Err(e) => return tracing::debug!("no status on the screen: {TERMINAL}: {e}"),
    };
    let mut keys = match screen.terminal.try_clone() {
        Ok(terminal) => keys(terminal),
        Err(e) => return tracing::debug!("no status on the screen: {TERMINAL}: {e}"),
    };
    let mut watched = board.watch();
    let mut repaired = Instant::now();
    loop {
        let status = watched.borrow_and_update().clone();
        if repaired.elapsed() >= REPAIR {
            repaired = Instant::now();
            screen.shown.clear();
        }
        let drawing = on_thread("screen", move || {
            let drawn = screen.draw(&status);
            (screen, drawn)
        });
        match drawing.await {
            Ok((same, Ok(()))) => screen = same,
            Ok((same, Err(e))) if e.kind() == io::ErrorKind::WouldBlock => {
                screen = same;
                screen.shown.clear();
            }
            Ok((_, Err(e))) | Err(e) => return tracing::warn!("no status on the screen any more: {TERMINAL}: {e}"),
        }
        tokio::select! {
            Some(key) = keys.recv() => {
                screen.obey(key);
                while let Ok(key) = keys.try_recv() {
                    screen.obey(key);
                }
                continue;
            }
            () = sleep(PAUSE) => {}
        }
        tokio::select! {
            Some(key) = keys.recv() => screen.obey(key),
            // Either way the status is drawn again.
            _ = watched.changed() => {}
            () = sleep(REPAIR) => {}
        }
    }
}

/// The keys that are pressed. A thread waits for them: the terminal is no socket.
fn keys(mut terminal: File) -> mpsc::Receiver<u8> {
    let (sender, keys) = mpsc::channel(KEYS);
    thread::spawn(move || {
        let mut key = [0];
        loop {
            let ready = poll(&mut [PollFd::new(terminal.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE);
            match ready.map_err(io::Error::from).and_then(|_| terminal.read(&mut key)) {
                Ok(1..) if sender.blocking_send(key[0]).is_ok() => {}
                Err(e) if [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&e.kind()) => {}
                // A terminal that gives nothing more would do so for ever.
                Ok(_) | Err(_) => return,
            }
        }
    });
    keys
}

/// Says on the consoles now and then how far the actions are.
pub(super) async fn remind(board: Board, log: KernelLog) {
    let watched = board.watch();
    loop {
        sleep(REMINDER).await;
        let actions: Vec<_> = watched.borrow().actions.values().map(lines::action).collect();
        actions.iter().for_each(|line| log.say(6, line));
    }
}

struct Screen {
    terminal: File,
    /// The rows as they were drawn last, and on what size of a screen.
    shown: Vec<String>,
    size: (u16, u16),
    view: View,
}

/// What the screen shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum View {
    Status,
    /// The log alone: so many pages before the newest.
    Log(usize),
}

impl View {
    /// What a key makes of it. Keys without a meaning change nothing.
    const fn after(self, key: u8) -> Self {
        match (self, key) {
            (Self::Status, b'l') => Self::Log(0),
            (Self::Log(_), b'l' | b'q') => Self::Status,
            (Self::Log(pages), b'b') => Self::Log(pages.saturating_add(1)),
            (Self::Log(pages), b'f') => Self::Log(pages.saturating_sub(1)),
            _ => self,
        }
    }
}

impl Screen {
    fn open() -> io::Result<Self> {
        // A person may stop the terminal (Scroll Lock): then nothing can be written, and no thread may wait for that.
        let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let terminal = OpenOptions::new().read(true).write(true).custom_flags(flags.bits()).open(TERMINAL)?;
        let mut modes = tcgetattr(&terminal)?;
        modes.output_modes.remove(OutputModes::OPOST);
        modes.input_modes.remove(InputModes::IXON);
        modes.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(&terminal, OptionalActions::Now, &modes)?;
        Ok(Self { terminal, shown: Vec::new(), size: (0, 0), view: View::Status })
    }

    fn obey(&mut self, key: u8) {
        let view = self.view.after(key);
        if view != self.view {
            self.view = view;
            // All of it is drawn again, and the region set.
            (self.shown, self.size) = (Vec::new(), (0, 0));
        }
    }

    fn draw(&mut self, status: &Status) -> io::Result<()> {
        let Winsize { ws_row, ws_col, .. } = tcgetwinsize(&self.terminal)?;
        if let View::Log(pages) = self.view {
            return self.draw_log(pages, (ws_row, ws_col));
        }
        if ws_row < lines::ROWS + LEAST_LOG {
            return Ok(());
        }
        if self.shown.is_empty() {
            // A driver that took the screen over has forgotten the region.
            self.terminal.write_all(region(ws_row, self.size != (ws_row, ws_col)).as_bytes())?;
            self.size = (ws_row, ws_col);
        }
        let new = lines::of(status, ws_col.into());
        for (at, line) in new.iter().enumerate().filter(|(at, line)| self.shown.get(*at) != Some(line)) {
            self.terminal.write_all(row(at + 1, line).as_bytes())?;
        }
        self.shown = new;
        Ok(())
    }

    /// Draws a page of the log once; what the kernel says from then on scrolls in below.
    fn draw_log(&mut self, pages: usize, size: (u16, u16)) -> io::Result<()> {
        if self.size == size {
            return Ok(());
        }
        let rows = log_rows(size.1.into()).unwrap_or_else(|e| vec![format!("cannot read the log: /dev/kmsg: {e}")]);
        let height = usize::from(size.0).saturating_sub(2).max(1);
        let pages = pages.min(rows.len().saturating_sub(1) / height);
        self.view = View::Log(pages);
        let text = page(&rows, pages, height).join("\r\n");
        // The whole screen scrolls.
        let drawn = format!("\x1b[r\x1b[0m\x1b[2J\x1b[H{text}\r\n{}\r\n", lines::pages(size.1.into()));
        self.terminal.write_all(drawn.as_bytes())?;
        self.size = size;
        Ok(())
    }
}

fn log_rows(columns: usize) -> io::Result<Vec<String>> {
    let (mut records, mut rows) = (Records::open()?, Vec::new());
    while let Some(record) = records.next()? {
        rows.extend(lines::rows(&record, columns));
    }
    Ok(rows)
}

/// So many rows, so many pages before the newest; the oldest page is full too.
fn page(rows: &[String], pages: usize, height: usize) -> &[String] {
    let newest = rows.len().saturating_sub(pages.saturating_mul(height));
    let end = newest.max(height).min(rows.len());
    &rows[end.saturating_sub(height)..end]
}

/// Lets the log scroll below our rows (console_codes(4)). `fresh`: the cursor may stand in them, and is moved out first.
fn region(rows: u16, fresh: bool) -> String {
    let down = if fresh { "\n".repeat(lines::ROWS.into()) } else { String::new() };
    format!("{down}\x1b7\x1b[{};{rows}r\x1b8", lines::ROWS + 1)
}

/// Draws one row, and puts the cursor back. The row is cleared first: after a full one the cursor stands on its last character.
fn row(number: usize, line: &str) -> String {
    format!("\x1b7\x1b[{number};1H\x1b[0m\x1b[K{line}\x1b8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_turn_the_pages_of_the_log() {
        let after = |keys: &[u8]| keys.iter().fold(View::Status, |view, key| view.after(*key));
        for (keys, view) in [
            (&b""[..], View::Status),
            (b"bfq", View::Status),
            (b"l", View::Log(0)),
            (b"lbb", View::Log(2)),
            (b"lbbf", View::Log(1)),
            (b"lffx", View::Log(0)),
            (b"ll", View::Status),
            (b"lbq", View::Status),
        ] {
            assert_eq!(after(keys), view, "{keys:?}");
        }
    }

    #[test]
    fn every_page_of_a_log_is_full() {
        let rows: Vec<_> = (0..7).map(|n| n.to_string()).collect();
        for (pages, shown) in
            [(0, &["4", "5", "6"][..]), (1, &["1", "2", "3"]), (2, &["0", "1", "2"]), (99, &["0", "1", "2"])]
        {
            assert_eq!(page(&rows, pages, 3), shown);
        }
        assert_eq!((page(&rows, 0, 9).len(), page(&rows, 5, 9).len(), page(&[], 1, 9).len()), (7, 7, 0));
    }
}
