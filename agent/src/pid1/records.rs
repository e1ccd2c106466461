//! The kernel's log, read from the boot's first line on, as a console shows it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;

use nix::errno::Errno;
use nix::fcntl::OFlag;

/// One record of the kernel's log: at most CONSOLE_EXT_LOG_MAX bytes (Linux, `kernel/printk/internal.h`).
const RECORD: usize = 8192;
/// What proves this machine to its coordinator.
const TOKEN: &str = "landfall.token=";

/// The log, and how far it is read.
pub(super) struct Records {
    log: File,
    record: Vec<u8>,
}

impl Records {
    /// Begins at the first line that the kernel still has.
    ///
    /// # Errors
    /// The kernel has no log to read.
    pub(super) fn open() -> io::Result<Self> {
        let log = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open("/dev/kmsg")?;
        Ok(Self { log, record: vec![0; RECORD] })
    }

    /// The next record that is shown, with its end of line; nothing once all are read.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn next(&mut self) -> io::Result<Option<String>> {
        loop {
            match self.log.read(&mut self.record) {
                Ok(length) => {
                    if let Some(line) = shown(&self.record[..length]) {
                        return Ok(Some(line));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                // The kernel has overwritten what was to be read next.
                Err(error) if error.raw_os_error() == Some(Errno::EPIPE as i32) => {
                    return Ok(Some("landfall: this console is too slow: lines are left out\r\n".to_owned()));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Records {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.log.as_fd()
    }
}

/// A record (Linux, `Documentation/ABI/testing/dev-kmsg`) as a console shows it, but for a token; nothing of what is for debugging.
fn shown(record: &[u8]) -> Option<String> {
    let record = std::str::from_utf8(record).ok()?;
    let (head, text) = record.split_once(';')?;
    let mut fields = head.split(',');
    let (priority, _, micros): (u64, _, u64) =
        (fields.next()?.parse().ok()?, fields.next()?, fields.next()?.parse().ok()?);
    let text = without_tokens(&plain(text.lines().next()?)).replace('\n', "\r\n");
    (priority % 8 < 7).then(|| format!("[{:5}.{:06}] {text}\r\n", micros / 1_000_000, micros % 1_000_000))
}

/// A text without the kernel's escapes, `\x` and two digits, and without control characters but the ends of lines.
fn plain(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\\x") {
        bytes.extend_from_slice(before.as_bytes());
        let byte = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.extend(byte);
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).chars().filter(|c| !c.is_control() || *c == '\n').collect()
}

/// The command line is in the log, and this port has other readers than the screen.
fn without_tokens(text: &str) -> String {
    let mut pieces = text.split(TOKEN);
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |shown, piece| {
        // A quote may stand before it, in it or behind it (the kernel takes quotes away).
        let end = piece.find(' ').unwrap_or(piece.len());
        format!("{shown}{TOKEN}…{}", &piece[end..])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_shown_as_a_console_shows_them() {
        let shown = |record: &str| shown(record.as_bytes());
        for (record, line) in [
            ("6,339,5140900,-;NET: family 10\n SUBSYSTEM=net\n", "[    5.140900] NET: family 10\r\n"),
            (
                "14,1,12000007,-;landfall: up to 71 \\xc2\\xb0C, \\x5cx41\n",
                "[   12.000007] landfall: up to 71 °C, \\x41\r\n",
            ),
            ("6,2,3,-;two\\x0alines\\x1b[2J\n", "[    0.000003] two\r\nlines[2J\r\n"),
            ("6,2,3,-;a=1 landfall.token=secret quiet\n", "[    0.000003] a=1 landfall.token=… quiet\r\n"),
            (
                "6,2,3,-;\"landfall.token=secret\" landfall.token=more\n",
                "[    0.000003] \"landfall.token=… landfall.token=…\r\n",
            ),
            ("6,2,3,-;landfall.token=\"secret\" quiet\n", "[    0.000003] landfall.token=… quiet\r\n"),
        ] {
            assert_eq!(shown(record).as_deref(), Some(line));
        }
        for record in ["7,340,5690716,-;udevd: starting\n", "", "6,1;no time\n", "x,1,2,-;no priority\n"] {
            assert_eq!(shown(record), None, "{record}");
        }
    }
}
