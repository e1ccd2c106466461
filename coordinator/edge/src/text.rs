//! Text that came from outside, for a line of the log.

/// Bytes of a path in a line.
pub const MAX_PATH: usize = 200;

/// The text up to `most` bytes, or a little less where a character would be divided.
pub fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}
