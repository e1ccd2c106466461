//! The kernel log as the agent's console.
//!
//! A line written to `/dev/kmsg` reaches *every* `console=` of the command line, the serial port and the screen alike,
//! with the kernel's own timestamps between the kernel's own lines; `/dev/console` is only the last of them. Before the
//! first line the kernel's rate limit for user space is switched off and its console level raised, or `quiet` and
//! `printk.devkmsg=ratelimit` (the default) would hide what a person at the machine needs to read.
//!
//! The kernel returns from such a write when the line is on the slowest console: at 9600 baud a line takes a tenth of a second. So a
//! thread writes, and the work never waits for it.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use std::{fs, io};

use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

use super::spcr::Copier;

/// The kernel refuses a record over LOG_LINE_MAX (1024 less a prefix), so longer lines are cut in pieces.
const PIECE: usize = 900;
/// Lines that wait for the console; what comes on top of them is left out. A serial port at 9600 baud prints them in a minute.
const WAITING: usize = 512;

/// The kernel's settings for its log (Documentation/admin-guide/sysctl/kernel.rst): file, value, and what a person misses
/// without it.
const SETTINGS: [(&str, &str, &str); 2] = [
    ("/proc/sys/kernel/printk_devkmsg", "on", "the kernel drops all but 10 of the agent's lines in 5 s"),
    ("/proc/sys/kernel/printk", "7", "with `quiet` the console shows errors alone"),
];

/// Where lines go: the kernel log, or `/dev/console` where there is none.
#[derive(Clone)]
pub(crate) struct KernelLog(Arc<Shared>);

struct Shared {
    sink: Mutex<Sink>,
    /// Opened a second time: a slow console holds the first.
    urgent: Mutex<Sink>,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Copies the kernel's log to a console that the kernel does not print on.
    copier: OnceLock<Copier>,
}

#[derive(Default)]
struct Queue {
    /// Priority and text, the oldest first. One that is being written stands in front.
    lines: VecDeque<(u8, String)>,
    /// How many were left out since the last that was taken.
    left_out: u64,
}

enum Sink {
    Kmsg(File),
    Console(File),
    Nowhere,
    #[cfg(test)]
    Test(Box<dyn FnMut(&str) + Send>),
}

impl Sink {
    fn open() -> Self {
        let open = |path| OpenOptions::new().write(true).open(path);
        match (open("/dev/kmsg"), open("/dev/console")) {
            (Ok(file), _) => Self::Kmsg(file),
            (Err(_), Ok(file)) => Self::Console(file),
            (Err(_), Err(_)) => Self::Nowhere,
        }
    }

    /// Writes `text`, one record a line, at a syslog `priority` (0 emergency to 7 debug).
    fn say(&mut self, priority: u8, text: &str) {
        for piece in text.lines().flat_map(pieces) {
            let written = match self {
                // One write is one record; a buffered or partial write would cut it.
                Self::Kmsg(file) => file.write_all(format!("<{priority}>landfall: {piece}\n").as_bytes()),
                Self::Console(file) => file.write_all(format!("landfall: {piece}\r\n").as_bytes()),
                Self::Nowhere => Ok(()),
                #[cfg(test)]
                Self::Test(write) => {
                    write(piece);
                    Ok(())
                }
            };
            // There is no other place for an error message.
            written.unwrap_or_default();
        }
    }
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
        (Self::over(Sink::open(), Sink::open()), complaints)
    }

    fn over(sink: Sink, urgent: Sink) -> Self {
        let (sink, urgent) = (Mutex::new(sink), Mutex::new(urgent));
        let (queue, changed) = (Mutex::default(), Condvar::new());
        let shared = Shared { sink, urgent, queue, changed, copier: OnceLock::new() };
        let log = Self(Arc::new(shared));
        let writer = log.clone();
        std::thread::spawn(move || writer.write_for_ever());
        log
    }

    /// Hands `text` to the console, which takes its time, at a syslog `priority` (0 emergency to 7 debug).
    pub(crate) fn say(&self, priority: u8, text: &str) {
        let mut queue = self.queue();
        if queue.lines.len() < WAITING {
            queue.lines.push_back((priority, text.to_owned()));
            self.0.changed.notify_all();
        } else {
            queue.left_out += 1;
        }
    }

    /// The same at once, before what waits.
    pub(crate) fn say_now(&self, priority: u8, text: &str) {
        self.0.urgent.lock().unwrap_or_else(PoisonError::into_inner).say(priority, text);
    }

    /// Waits until every console has everything; `limit` is of each.
    pub(crate) fn flush(&self, limit: Duration) {
        // What a slow console has not printed by then is lost.
        drop(self.0.changed.wait_timeout_while(self.queue(), limit, |queue| !queue.lines.is_empty()));
        if let Some(copier) = self.0.copier.get() {
            copier.flush(limit);
        }
    }

    /// From now on a flush waits for this copier too.
    pub(crate) fn copied_by(&self, copier: Copier) {
        // There is one port.
        self.0.copier.set(copier).unwrap_or_default();
    }

    fn write_for_ever(&self) -> ! {
        loop {
            let waits = self.0.changed.wait_while(self.queue(), |queue| queue.lines.is_empty());
            let mut queue = waits.unwrap_or_else(PoisonError::into_inner);
            let (line, left_out) = (queue.lines.front().cloned(), std::mem::take(&mut queue.left_out));
            drop(queue);
            if let Some((priority, text)) = line {
                self.sink().say(priority, &text);
            }
            let mut queue = self.queue();
            queue.lines.pop_front();
            if left_out > 0 {
                let lost = format!("this console is too slow: {left_out} lines are left out");
                queue.lines.push_back((4, lost));
            }
            self.0.changed.notify_all();
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sink(&self) -> MutexGuard<'_, Sink> {
        self.0.sink.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn a_slow_console_holds_up_no_work() {
        let (written, lines) = std::sync::mpsc::channel();
        let (go_on, waits) = std::sync::mpsc::channel::<()>();
        let log = KernelLog::over(
            Sink::Test(Box::new(move |line| {
                written.send(line.to_owned()).unwrap();
                // Until the test ends, which closes it.
                waits.recv().unwrap_or_default();
            })),
            Sink::Nowhere,
        );
        log.say(6, "line 0");
        assert_eq!(lines.recv().unwrap(), "line 0");
        // The first is being written; none of these waits for it.
        (1..WAITING + 10).for_each(|n| log.say(6, &format!("line {n}")));
        log.flush(Duration::from_millis(1));
        drop(go_on);
        log.flush(Duration::from_secs(60));
        let written: Vec<_> = lines.try_iter().collect();
        assert_eq!(written.len(), WAITING, "{written:?}");
        assert_eq!(written[0], "line 1");
        assert_eq!(written[WAITING - 2], format!("line {}", WAITING - 1));
        assert_eq!(written[WAITING - 1], "this console is too slow: 10 lines are left out");
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
