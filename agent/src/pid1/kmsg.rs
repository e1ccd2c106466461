//! The kernel log as the agent's console.
//!
//! A line written to `/dev/kmsg` reaches *every* `console=` of the command line, the serial port and the screen alike,
//! with the kernel's own timestamps between the kernel's own lines; `/dev/console` is only the last of them. Before the
//! first line the kernel's rate limit for user space is switched off and its console level raised, or `quiet` and
//! `printk.devkmsg=ratelimit` (the default) would hide what a person at the machine needs to read.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

/// The kernel refuses a record over LOG_LINE_MAX (1024 less a prefix), so longer lines are cut in pieces.
const PIECE: usize = 900;

/// Where lines go: the kernel log, or `/dev/console` where there is none.
#[derive(Clone)]
pub(crate) struct KernelLog {
    sink: Arc<Mutex<Sink>>,
}

enum Sink {
    Kmsg(File),
    Console(File),
    Nowhere,
}

impl KernelLog {
    /// Opens the kernel log and makes it audible.
    pub(crate) fn open() -> Self {
        // Both are best effort: without them lines may be missing on the console, but nothing else fails.
        fs::write("/proc/sys/kernel/printk_devkmsg", "on").unwrap_or_default();
        fs::write("/proc/sys/kernel/printk", "7").unwrap_or_default();
        let open = |path| OpenOptions::new().write(true).open(path);
        let sink = match (open("/dev/kmsg"), open("/dev/console")) {
            (Ok(file), _) => Sink::Kmsg(file),
            (Err(_), Ok(file)) => Sink::Console(file),
            (Err(_), Err(_)) => Sink::Nowhere,
        };
        Self { sink: Arc::new(Mutex::new(sink)) }
    }

    /// Writes `text`, one record a line, at a syslog `priority` (0 emergency to 7 debug).
    pub(crate) fn say(&self, priority: u8, text: &str) {
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in text.lines().flat_map(pieces) {
            let written = match &mut *sink {
                // One write is one record; a buffered or partial write would cut it.
                Sink::Kmsg(file) => file.write_all(format!("<{priority}>landfall: {piece}\n").as_bytes()),
                Sink::Console(file) => file.write_all(format!("landfall: {piece}\r\n").as_bytes()),
                Sink::Nowhere => Ok(()),
            };
            // There is no other place for an error message.
            written.unwrap_or_default();
        }
    }
}

/// Cuts a line into pieces of at most [`PIECE`] bytes, at character boundaries.
fn pieces(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut cut = rest.len().min(PIECE);
        while !rest.is_char_boundary(cut) {
            cut -= 1;
        }
        let (piece, tail) = rest.split_at(cut);
        rest = tail;
        Some(piece)
    })
}

/// One event's line on its way to the log.
pub(crate) struct Record<'a> {
    log: &'a KernelLog,
    priority: u8,
    line: Vec<u8>,
}

impl Write for Record<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        self.log.say(self.priority, &String::from_utf8_lossy(&self.line));
    }
}

impl<'a> MakeWriter<'a> for KernelLog {
    type Writer = Record<'a>;
    fn make_writer(&'a self) -> Self::Writer {
        Record { log: self, priority: 6, line: Vec::new() }
    }
    fn make_writer_for(&'a self, meta: &tracing::Metadata<'_>) -> Self::Writer {
        let priority = match *meta.level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        };
        Record { log: self, priority, line: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_split_without_loss() {
        let line = "ä".repeat(2000);
        let cut: Vec<_> = pieces(&line).collect();
        assert!(cut.iter().all(|p| p.len() <= PIECE && !p.is_empty()));
        assert_eq!(cut.concat(), line);
        assert_eq!(pieces("").count(), 0);
    }
}
