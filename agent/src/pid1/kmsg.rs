//! The kernel log as the agent's console.
//!
//! A line written to `/dev/kmsg` reaches *every* `console=` of the command line, the serial port and the screen alike,
//! with the kernel's own timestamps between the kernel's own lines; `/dev/console` is only the last of them. Before the
//! first line the kernel's rate limit for user space is switched off and its console level raised, or `quiet` and
//! `printk.devkmsg=ratelimit` (the default) would hide what a person at the machine needs to read.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, io};

use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

/// The kernel refuses a record over LOG_LINE_MAX (1024 less a prefix), so longer lines are cut in pieces.
const PIECE: usize = 900;

/// The kernel's settings for its log (Documentation/admin-guide/sysctl/kernel.rst): file, value, and what a person misses
/// without it.
const SETTINGS: [(&str, &str, &str); 2] = [
    ("/proc/sys/kernel/printk_devkmsg", "on", "the kernel drops all but 10 of the agent's lines in 5 s"),
    ("/proc/sys/kernel/printk", "7", "with `quiet` the console shows errors alone"),
];

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
    /// Opens the kernel log and makes it audible; returns what the kernel refused as sentences, because there is no log
    /// yet. Lines may be missing on the console then, but nothing else fails.
    pub(crate) fn open() -> (Self, Vec<String>) {
        let complaints = SETTINGS.iter().filter_map(|(file, value, loss)| {
            let refused = set(Path::new(file), value).err()?;
            Some(format!("{file}: cannot write \"{value}\": {refused}; {loss}"))
        });
        let complaints = complaints.collect();
        let open = |path| OpenOptions::new().write(true).open(path);
        let sink = match (open("/dev/kmsg"), open("/dev/console")) {
            (Ok(file), _) => Sink::Kmsg(file),
            (Err(_), Ok(file)) => Sink::Console(file),
            (Err(_), Err(_)) => Sink::Nowhere,
        };
        (Self { sink: Arc::new(Mutex::new(sink)) }, complaints)
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

/// Gives one of the kernel's settings a value, with a newline: without one the kernel refuses `printk_devkmsg` (EINVAL).
/// One write, because the kernel takes each for the whole value. A value that stands already is not written: with
/// `printk.devkmsg=on` on its command line the kernel refuses every write.
fn set(file: &Path, value: &str) -> io::Result<()> {
    if fs::read_to_string(file).is_ok_and(|text| text.trim() == value) {
        return Ok(());
    }
    fs::write(file, format!("{value}\n"))
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

    #[test]
    fn each_setting_is_written_as_one_whole_line() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("setting");
        for ((_, value, _), line) in SETTINGS.iter().zip(["on\n", "7\n"]) {
            fs::write(&file, "ratelimit\n").unwrap();
            set(&file, value).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), line);
        }
    }

    #[test]
    fn a_setting_that_cannot_be_written_is_an_error() {
        assert!(set(Path::new("/proc/self/status"), "on").is_err());
    }
}
