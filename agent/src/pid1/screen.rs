//! The status on the machine's screen: the first rows of its first terminal. The kernel's log scrolls below them.
//!
//! The terminal's scrolling region keeps the log out of the rows, so a panic of the kernel is as visible as ever. The kernel takes one
//! write to a terminal as a whole as long as the terminal processes no output (`OPOST`): no line of the log comes between.
//!
//! A serial console shows no such rows: what records it wants lines. It gets one now and then while an action runs.

mod lines;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use nix::fcntl::OFlag;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, OutputModes, Winsize, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::time::{Instant, sleep, timeout};

use super::kmsg::KernelLog;
use crate::status::{Board, Status};
use crate::thread::on_thread;

/// The first virtual terminal, which the kernel shows at its start.
const TERMINAL: &str = "/dev/tty1";
/// Between two drawings at least: a framebuffer without acceleration is slow.
const PAUSE: Duration = Duration::from_millis(500);
/// All rows are drawn again so often, for a driver may have changed the screen's mode; until then those that have changed.
const REPAIR: Duration = Duration::from_secs(5);
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
        sleep(PAUSE).await;
        // Either way the status is drawn again.
        drop(timeout(REPAIR, watched.changed()).await);
    }
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
}

impl Screen {
    fn open() -> io::Result<Self> {
        // A person may stop the terminal (Scroll Lock): then nothing can be written, and no thread may wait for that.
        let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let terminal = OpenOptions::new().write(true).custom_flags(flags.bits()).open(TERMINAL)?;
        let mut modes = tcgetattr(&terminal)?;
        modes.output_modes.remove(OutputModes::OPOST);
        modes.input_modes.remove(InputModes::IXON);
        modes.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(&terminal, OptionalActions::Now, &modes)?;
        Ok(Self { terminal, shown: Vec::new(), size: (0, 0) })
    }

    fn draw(&mut self, status: &Status) -> io::Result<()> {
        let Winsize { ws_row, ws_col, .. } = tcgetwinsize(&self.terminal)?;
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
