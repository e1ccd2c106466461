//! Bytes as they are.

use super::{DecodeError, Input, Sink};

pub(super) fn decode(input: &mut dyn Input, sink: &mut Sink) -> Result<(), DecodeError> {
    loop {
        let bytes = input.fill()?;
        if bytes.is_empty() {
            return Ok(());
        }
        let space = sink.space();
        let n = bytes.len().min(space.len());
        space[..n].copy_from_slice(&bytes[..n]);
        input.consume(n);
        sink.filled(n)?;
    }
}
