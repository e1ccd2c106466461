//! What a console's reader gets. A reader that is too slow loses characters, and learns how many: the BMC is never kept waiting.

use std::time::Duration;

use landfall_api::{Characters, ConsoleLine, Problem};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Lines that wait for the reader: at most 255 bytes each, a minute of a port at 19200 baud.
const LINES: usize = 512;
/// For a reader to take the last line: the next reader may wait for it.
const LAST: Duration = Duration::from_secs(1);

/// Where a console's lines go, and where they come out.
pub(super) fn output() -> (Output, mpsc::Receiver<ConsoleLine>) {
    let (lines, receiver) = mpsc::channel(LINES);
    (Output { lines, dropped: 0 }, receiver)
}

/// Where a console's lines go.
pub(super) struct Output {
    lines: mpsc::Sender<ConsoleLine>,
    /// Bytes that the reader was too slow for.
    dropped: usize,
}

impl Output {
    /// Whether there is a reader, for others than the console's task.
    pub(super) fn reader(&self) -> Reader {
        Reader(self.lines.downgrade())
    }

    /// What the computer wrote.
    pub(super) fn characters(&mut self, bytes: Vec<u8>) {
        self.say_dropped();
        let length = bytes.len();
        if self.dropped > 0 || self.lines.try_send(ConsoleLine::Output(Characters(bytes))).is_err() {
            self.dropped += length;
        }
    }

    /// Something for a person to read.
    pub(super) fn notice(&mut self, text: impl Into<String>) {
        self.say_dropped();
        // A reader that is too slow for the console misses this too.
        drop(self.lines.try_send(ConsoleLine::Notice(text.into())));
    }

    fn say_dropped(&mut self) {
        if self.dropped > 0 && self.lines.capacity() > LINES / 2 {
            let text = format!("{} bytes were dropped because the reader was too slow", self.dropped);
            if self.lines.try_send(ConsoleLine::Notice(text)).is_ok() {
                self.dropped = 0;
            }
        }
    }

    /// The last line: why it ends.
    pub(super) async fn end(self, problem: Problem) {
        drop(timeout(LAST, self.lines.send(ConsoleLine::Ended(problem))).await);
    }

    /// Waits until the reader has gone.
    pub(super) async fn closed(&self) {
        self.lines.closed().await;
    }
}

/// Whether a console has a reader.
pub(super) struct Reader(mpsc::WeakSender<ConsoleLine>);

impl Reader {
    /// Whether the reader has gone.
    pub(super) fn is_gone(&self) -> bool {
        self.0.upgrade().is_none_or(|lines| lines.is_closed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_reader_learns_how_much_is_missing() {
        let (mut output, mut lines) = output();
        for _ in 0..LINES + 10 {
            output.characters(b"ab".to_vec());
        }
        for _ in 0..LINES {
            assert!(matches!(lines.recv().await, Some(ConsoleLine::Output(_))));
        }
        output.characters(b"c".to_vec());
        let said = lines.recv().await.unwrap();
        assert!(matches!(&said, ConsoleLine::Notice(text) if text.starts_with("20 bytes were dropped")), "{said:?}");
        assert_eq!(lines.recv().await, Some(ConsoleLine::Output(Characters(b"c".to_vec()))));
    }
}
