//! Reads a tar stream: headers by the parser of the `tar-core` crate, content straight from the caller's buffers.
//!
//! A stream is whole only with its end mark, two blocks of zeroes, and with nothing but zeroes after it.

use std::io::BufRead;

use tar_core::parse::{Limits as ParserLimits, ParseError, ParseEvent, Parser};
use tar_core::{EntryType, Header};

use crate::{Fault, UnpackError, entry::Entry, name::MAX_NAME, pax};

/// What a header may take, bytes: names and records of one entry.
const MAX_RECORDS: u32 = 1 << 20;
/// The most pieces of a file with holes: a map of 4 MiB, of files far more scattered than images of disks are.
const MAX_PIECES: usize = 1 << 18;
/// The most bytes from an entry's first header to its content: a map's text has at most 42 bytes a piece.
const MAX_HEADER: usize = 12 << 20;
/// A block of the format, bytes.
const BLOCK: u64 = 512;

/// A stream, between two entries or in the content of one.
pub(crate) struct Reader<'a> {
    input: &'a mut dyn BufRead,
    parser: Parser,
    /// What was taken out of the input and not yet consumed: headers that lie across two of its buffers.
    taken: Vec<u8>,
    at: usize,
    /// Bytes of the stream that were consumed.
    offset: u64,
    /// Content of the present entry that was not consumed, and the zeroes that fill its last block.
    content: u64,
    padding: u64,
    /// The last entry's name, for people.
    entry: Option<String>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(input: &'a mut dyn BufRead) -> Self {
        let limits = ParserLimits {
            max_metadata_size: MAX_RECORDS,
            max_path_len: Some(MAX_NAME as u32),
            max_sparse_entries: MAX_PIECES,
            ..ParserLimits::default()
        };
        let mut parser = Parser::new(limits);
        // It knows no time before 1970. What else it would pass over is refused by `pax`.
        parser.set_ignore_pax_errors(true);
        Self { input, parser, taken: Vec::new(), at: 0, offset: 0, content: 0, padding: 0, entry: None }
    }

    /// The next entry; `None` once the stream has ended and nothing follows.
    ///
    /// # Errors
    /// [`UnpackError`]: of the stream, or of one entry.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, UnpackError> {
        self.skip(self.content)?;
        self.skip_padding()?;
        loop {
            let bytes = match self.taken.get(self.at..).filter(|rest| !rest.is_empty()) {
                Some(rest) => rest,
                None => self.input.fill_buf().map_err(|source| unread(&self.entry, source))?,
            };
            if bytes.is_empty() {
                let within = after(&self.entry);
                return Err(UnpackError::Truncated { within: format!("what comes after {within}") });
            }
            let event = self.parser.parse(bytes);
            if !matches!(event, Ok(ParseEvent::End { .. }) | Ok(ParseEvent::NeedData { .. }) | Err(_))
                && let Some(reason) = passed_over(bytes)
            {
                let after = after(&self.entry).into();
                return Err(UnpackError::Damaged { offset: self.offset, after, reason: reason.into() });
            }
            let (consumed, entry) = match event {
                Ok(ParseEvent::NeedData { min_bytes }) => {
                    self.gather(min_bytes)?;
                    continue;
                }
                Ok(ParseEvent::Entry { consumed, entry }) => (consumed, Entry::new(&entry, None)),
                Ok(ParseEvent::SparseEntry { consumed, entry, sparse_map, real_size }) => {
                    (consumed, Entry::new(&entry, Some((sparse_map, real_size))))
                }
                Ok(ParseEvent::GlobalExtensions { consumed, pax_data }) => {
                    pax::check_global(pax_data)
                        .map_err(|fault| UnpackError::Refused { entry: "for the whole archive".into(), fault })?;
                    self.consume(consumed);
                    continue;
                }
                Ok(ParseEvent::End { consumed }) => {
                    self.consume(consumed);
                    return self.end().map(|()| None);
                }
                Err(error) => return Err(self.damaged(&error)),
            };
            let entry = entry.map_err(|(entry, fault)| UnpackError::Refused { entry, fault })?;
            self.consume(consumed);
            self.content = entry.content;
            self.padding = entry.content.wrapping_neg() % BLOCK;
            self.entry = Some(entry.shown.clone());
            return Ok(Some(entry));
        }
    }

    /// The next bytes of the present entry's content, at most `most` of them; never none while content is left.
    ///
    /// # Errors
    /// [`UnpackError`] where the stream ends or cannot be read.
    pub(crate) fn content(&mut self, most: u64) -> Result<&[u8], UnpackError> {
        let most = usize::try_from(most.min(self.content)).unwrap_or(usize::MAX);
        let entry = &self.entry;
        let bytes = match self.taken.get(self.at..).filter(|rest| !rest.is_empty()) {
            Some(rest) => rest,
            None => self.input.fill_buf().map_err(|source| unread(entry, source))?,
        };
        if bytes.is_empty() && most > 0 {
            let within = after(entry);
            return Err(UnpackError::Truncated { within: format!("the content of {within}") });
        }
        Ok(&bytes[..bytes.len().min(most)])
    }

    /// So many bytes of content were used.
    pub(crate) fn used(&mut self, bytes: usize) {
        self.consume(bytes);
        self.content = self.content.saturating_sub(bytes as u64);
    }

    fn skip(&mut self, mut bytes: u64) -> Result<(), UnpackError> {
        while bytes > 0 {
            let n = self.content(bytes)?.len();
            self.used(n);
            bytes -= n as u64;
        }
        Ok(())
    }

    fn skip_padding(&mut self) -> Result<(), UnpackError> {
        self.content = std::mem::take(&mut self.padding);
        self.skip(self.content)
    }

    /// Takes more bytes out of the input, until at least so many are there in one piece.
    fn gather(&mut self, least: usize) -> Result<(), UnpackError> {
        self.taken.drain(..self.at);
        self.at = 0;
        // The parser may ask for fewer than it saw, where it looks for the end of a line.
        let least = least.max(self.taken.len() + 1);
        if least > MAX_HEADER {
            let reason = format!("its next header has more than {} MiB", MAX_HEADER >> 20);
            return Err(UnpackError::Damaged { offset: self.offset, after: after(&self.entry).into(), reason });
        }
        // It begins anew each time, so what grows in small steps is taken in growing ones.
        let wanted = least.max(self.taken.len() * 2);
        while self.taken.len() < wanted {
            let bytes = self.input.fill_buf().map_err(|source| unread(&self.entry, source))?;
            let n = bytes.len().min(wanted - self.taken.len());
            if n == 0 && self.taken.len() < least {
                let within = after(&self.entry);
                return Err(UnpackError::Truncated { within: format!("the header after {within}") });
            }
            if n == 0 {
                break;
            }
            self.taken.extend_from_slice(&bytes[..n]);
            self.input.consume(n);
        }
        Ok(())
    }

    fn consume(&mut self, bytes: usize) {
        self.offset += bytes as u64;
        if self.at < self.taken.len() {
            self.at += bytes;
        } else {
            self.input.consume(bytes);
        }
    }

    /// After the end mark: writers fill a record of the tape with zeroes.
    fn end(&mut self) -> Result<(), UnpackError> {
        let joined = |entry: &Option<String>| UnpackError::Refused { entry: after(entry).into(), fault: Fault::Joined };
        if self.taken.get(self.at..).is_some_and(|rest| rest.iter().any(|byte| *byte != 0)) {
            return Err(joined(&self.entry));
        }
        loop {
            let bytes = self.input.fill_buf().map_err(|source| unread(&self.entry, source))?;
            if bytes.is_empty() {
                return Ok(());
            }
            if bytes.iter().any(|byte| *byte != 0) {
                return Err(joined(&self.entry));
            }
            let n = bytes.len();
            self.input.consume(n);
        }
    }

    fn damaged(&self, error: &ParseError) -> UnpackError {
        let reason = match error {
            _ if self.offset == 0 && matches!(error, ParseError::Header(_)) => "it is not a tar archive".into(),
            error => crate::name::shown(error.to_string().as_bytes()),
        };
        UnpackError::Damaged { offset: self.offset, after: after(&self.entry).into(), reason }
    }
}

/// What the parser passes over in the headers of an entry, and others do not.
fn passed_over(mut bytes: &[u8]) -> Option<&'static str> {
    let mut extended = false;
    while let Some(block) = bytes.first_chunk::<512>() {
        if block.iter().all(|byte| *byte == 0) {
            return Some("a block of zeroes stands alone, and an archive ends with two");
        }
        let header = Header::from_bytes(block);
        let known = header.is_ustar() || header.is_gnu();
        // Its name would be read without what stands before it.
        if !known && block[257..262] == *b"ustar" {
            return Some("its next header is of an unknown version of ustar");
        }
        match header.entry_type() {
            EntryType::XHeader | EntryType::GnuLongName | EntryType::GnuLongLink if known => extended = true,
            EntryType::XGlobalHeader if extended => return Some("an extended header stands before no entry"),
            _ => return None,
        }
        let content = header.entry_size().ok()?.checked_next_multiple_of(BLOCK)?;
        bytes = bytes.get(usize::try_from(BLOCK + content).ok()?..)?;
    }
    None
}

fn unread(entry: &Option<String>, source: std::io::Error) -> UnpackError {
    UnpackError::Read { after: after(entry).into(), source }
}

fn after(entry: &Option<String>) -> &str {
    entry.as_deref().unwrap_or("its start")
}
