//! Messages on a pipe, each with its length in front of it.

use std::io::{self, Read, Write};

use prost::Message;

/// The longest message on a pipe, bytes. A job holds a whole workflow: a hundred scripts of 64 KiB are shorter.
pub const MAX_MESSAGE: usize = 8 << 20;
/// A varint of 64 bits has ten bytes at most.
const MAX_VARINT: u32 = 10;

/// A message could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The pipe's.
    #[error("cannot read the pipe")]
    Io(#[source] io::Error),
    /// The pipe ended in a message.
    #[error("the pipe ended in the middle of a message")]
    Cut,
    /// No sender of these messages makes one so long: this is something else.
    #[error("a message of {0} bytes is announced; the limit is {MAX_MESSAGE}")]
    TooLong(u64),
    /// The length is no number.
    #[error("what stands in place of a message's length is no number")]
    NoLength,
    /// The bytes are not that message.
    #[error("the bytes are no such message")]
    Invalid(#[source] prost::DecodeError),
}

/// The next message; `None`: the pipe ended behind the last one.
///
/// # Errors
/// [`ReadError`]
pub fn read<M: Message + Default>(from: &mut impl Read) -> Result<Option<M>, ReadError> {
    let Some(length) = length(from)? else { return Ok(None) };
    let fits = usize::try_from(length).ok().filter(|length| *length <= MAX_MESSAGE);
    let mut bytes = vec![0; fits.ok_or(ReadError::TooLong(length))?];
    from.read_exact(&mut bytes).map_err(cut)?;
    M::decode(&bytes[..]).map(Some).map_err(ReadError::Invalid)
}

/// Writes one message and flushes it.
///
/// # Errors
/// The pipe's; `InvalidInput` for a message that is longer than [`MAX_MESSAGE`].
pub fn write(to: &mut impl Write, message: &impl Message) -> io::Result<()> {
    let length = message.encoded_len();
    if length > MAX_MESSAGE {
        let text = format!("a message has {length} bytes; the limit is {MAX_MESSAGE}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    to.write_all(&message.encode_length_delimited_to_vec())?;
    to.flush()
}

/// Seven bits a byte, the lowest first; the highest bit of a byte says that another follows.
fn length(from: &mut impl Read) -> Result<Option<u64>, ReadError> {
    let mut length = 0;
    for place in 0..MAX_VARINT {
        let mut byte = [0];
        match from.read_exact(&mut byte) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof && place == 0 => return Ok(None),
            read => read.map_err(cut)?,
        }
        let [byte] = byte;
        length |= u64::from(byte & 0x7f).checked_shl(7 * place).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Ok(Some(length));
        }
    }
    Err(ReadError::NoLength)
}

fn cut(error: io::Error) -> ReadError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => ReadError::Cut,
        _ => ReadError::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::{LogLine, Report, report};

    fn line(text: &str) -> Report {
        let line = LogLine { level: "info".into(), message: text.into() };
        Report { report: Some(report::Report::Log(line)) }
    }

    #[test]
    fn messages_come_out_as_they_went_in() {
        let mut pipe = Vec::new();
        // Lengths of one, two and three bytes.
        let sent = [1, 1000, 100_000].map(|length| line(&"x".repeat(length)));
        for message in &sent {
            write(&mut pipe, message).unwrap();
        }
        let mut from = &pipe[..];
        for message in &sent {
            assert_eq!(read::<Report>(&mut from).unwrap().as_ref(), Some(message));
        }
        assert!(read::<Report>(&mut from).unwrap().is_none());
    }

    #[test]
    fn a_cut_message_is_no_end() {
        let mut pipe = Vec::new();
        write(&mut pipe, &line(&"x".repeat(200))).unwrap();
        for length in 1..pipe.len() {
            assert!(matches!(read::<Report>(&mut &pipe[..length]), Err(ReadError::Cut)), "{length}");
        }
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        assert!(matches!(read::<Report>(&mut &[0xff; 20][..]), Err(ReadError::NoLength)));
        // "Segm" of a text: a message of 83 bytes, of which the rest is no protobuf.
        assert!(matches!(read::<Report>(&mut &[b'S'; 200][..]), Err(ReadError::Invalid(_))));
        let mut long = Vec::new();
        prost::encoding::encode_varint(MAX_MESSAGE as u64 + 1, &mut long);
        assert!(matches!(read::<Report>(&mut &long[..]), Err(ReadError::TooLong(_))));
        assert!(write(&mut io::sink(), &line(&"x".repeat(MAX_MESSAGE))).is_err());
    }
}
