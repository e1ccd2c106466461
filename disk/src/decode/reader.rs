//! Stored bytes taken in exact amounts, for headers and trailers; and the loop drives every stream library.

use super::{DecodeError, Input, Sink};

/// An [`Input`] that knows how far it is.
pub(super) struct Reader<'a> {
    input: &'a mut dyn Input,
    /// Stored bytes consumed so far.
    offset: u64,
}

/// What a library did when it was given input and room for output.
pub(super) struct Step {
    /// Bytes of the input it is done with.
    pub(super) taken: usize,
    /// Bytes it put into the room.
    pub(super) made: usize,
    /// Its stream is over.
    pub(super) ended: bool,
}

impl Input for Reader<'_> {
    fn fill(&mut self) -> Result<&[u8], DecodeError> {
        self.input.fill()
    }
    fn consume(&mut self, bytes: usize) {
        self.offset += bytes as u64;
        self.input.consume(bytes);
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(input: &'a mut dyn Input) -> Self {
        Self { input, offset: 0 }
    }

    /// Offset of the next stored byte.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Appends the next `bytes` bytes, fewer only where the input ends; whether all were there. Memory grows with what is
    /// really there, not with what was asked for.
    pub(super) fn gather(&mut self, into: &mut Vec<u8>, bytes: usize) -> Result<bool, DecodeError> {
        let mut missing = bytes;
        while missing > 0 {
            let piece = self.fill()?;
            if piece.is_empty() {
                return Ok(false);
            }
            let n = piece.len().min(missing);
            into.extend_from_slice(&piece[..n]);
            self.consume(n);
            missing -= n;
        }
        Ok(true)
    }

    /// The next `N` bytes. `within` says where the input is cut if they are not there, as in "it ends in the …".
    pub(super) fn take<const N: usize>(&mut self, within: &str) -> Result<[u8; N], DecodeError> {
        let mut bytes = Vec::with_capacity(N);
        self.gather(&mut bytes, N)?;
        bytes.try_into().map_err(|_| cut(within))
    }

    /// Passes over so many bytes.
    pub(super) fn skip(&mut self, mut bytes: u64, within: &str) -> Result<(), DecodeError> {
        while bytes > 0 {
            let n = self.fill()?.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
            if n == 0 {
                return Err(cut(within));
            }
            self.consume(n);
            bytes -= n as u64;
        }
        Ok(())
    }

    /// Which of several possible things begins here; each is named by its first bytes, which are consumed. `None` at
    /// the end of input. Anything else gives `otherwise`; if the input ends within such first bytes, that is a cut.
    pub(super) fn begins<T: Copy, const N: usize>(
        &mut self, known: &[([u8; N], T)], otherwise: impl FnOnce(&[u8]) -> DecodeError,
    ) -> Result<Option<T>, DecodeError> {
        let mut start = Vec::with_capacity(N);
        self.gather(&mut start, N)?;
        if start.is_empty() {
            return Ok(None);
        }
        match known.iter().find(|(magic, _)| magic.starts_with(&start)) {
            Some((_, what)) if start.len() == N => Ok(Some(*what)),
            Some(_) => Err(cut("first bytes of what follows")),
            None => Err(otherwise(&start)),
        }
    }

    /// Runs a library's stream to its end. False: the input ended first.
    pub(super) fn pump(
        &mut self, sink: &mut Sink, mut run: impl FnMut(&[u8], &mut [u8]) -> Result<Step, DecodeError>,
    ) -> Result<bool, DecodeError> {
        let mut idle = 0;
        loop {
            let bytes = self.fill()?;
            let input_ended = bytes.is_empty();
            let Step { taken, made, ended } = run(bytes, sink.space())?;
            self.consume(taken);
            sink.filled(made)?;
            if ended {
                return Ok(true);
            }
            idle = if taken == 0 && made == 0 { idle + 1 } else { 0 };
            // Libraries may do nothing once, when asked at an awkward point.
            if idle > 1 {
                return if input_ended { Ok(false) } else { Err(bad("its compressed stream makes no progress")) };
            }
        }
    }
}

/// Content that is not what it claims to be.
pub(super) fn bad(reason: impl Into<String>) -> DecodeError {
    DecodeError::Bad(reason.into())
}

/// The input ends too early.
pub(super) fn cut(within: &str) -> DecodeError {
    DecodeError::Unfinished(format!("it ends in the {within}"))
}

#[cfg(test)]
mod tests {
    use super::{super::testing::Pieces, *};

    #[test]
    fn exact_amounts_are_read_and_a_cut_names_its_place() {
        for step in 1..6 {
            let mut pieces = Pieces { bytes: b"abcdefgh", step };
            let mut reader = Reader::new(&mut pieces);
            assert_eq!(&reader.take::<3>("header").unwrap(), b"abc");
            reader.skip(2, "header").unwrap();
            assert_eq!(reader.offset(), 5);
            assert!(
                matches!(reader.take::<4>("trailer"), Err(DecodeError::Unfinished(why)) if why.contains("trailer"))
            );
            assert!(reader.fill().unwrap().is_empty());
            assert!(matches!(reader.skip(u64::MAX, "padding"), Err(DecodeError::Unfinished(_))));
        }
    }

    #[test]
    fn a_partial_magic_is_a_cut_unlike_other_bytes() {
        let begins = |bytes: &'static [u8]| {
            let mut pieces = Pieces { bytes, step: 1 };
            Reader::new(&mut pieces).begins(&[(*b"abcd", 1), (*b"xyzw", 2)], |_| bad("garbage"))
        };
        assert_eq!(begins(b"").unwrap(), None);
        assert_eq!(begins(b"xyzw1").unwrap(), Some(2));
        assert!(matches!(begins(b"xy"), Err(DecodeError::Unfinished(_))));
        assert!(matches!(begins(b"xx"), Err(DecodeError::Bad(_))));
        assert!(matches!(begins(b"abcx"), Err(DecodeError::Bad(_))));
    }
}
