//! The loop that nearly all of a stream goes through: no question whether input or output suffices, because both have
//! slack.

use super::{
    Corrupt, Inflate, Io,
    tables::{END, LITERAL, SPECIAL, consumed, literal_of, value},
};

/// The longest match.
pub(super) const LONGEST: usize = 258;
/// Bytes a match is copied by.
const STRIDE: usize = 16;
/// Room in the output that the fast loop wants: three literals, a match, and what is written too much behind it.
const OUTPUT_SLACK: usize = LONGEST + STRIDE + 8;
/// Bytes in the input that the fast loop wants: for two loads of eight.
const INPUT_SLACK: usize = 16;

impl Io<'_> {
    pub(super) fn has_slack(&self) -> bool {
        self.at + INPUT_SLACK < self.input.len() && self.made + OUTPUT_SLACK < self.output.len()
    }
}

impl Inflate {
    /// Symbols as long as there is slack and until the block ends. Whole bytes that it took too much it gives back.
    pub(super) fn fast(&mut self, io: &mut Io<'_>) -> Result<(), Corrupt> {
        let (mut bits, mut count) = (self.bits, self.count);
        let (input, output) = (io.input, &mut *io.output);
        let (mut at, mut made) = (io.at, io.made);
        let (input_end, output_end) =
            (input.len().saturating_sub(INPUT_SLACK), output.len().saturating_sub(OUTPUT_SLACK));
        macro_rules! refill {
            () => {
                if let Some(word) = input.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
                    // Bits above the count may come in twice; they are the same.
                    bits |= u64::from_le_bytes(*word) << count;
                    at += (63 - count as usize) / 8;
                    count |= 56;
                }
            };
        }
        macro_rules! consume {
            ($entry:expr) => {
                let bits_used = consumed($entry);
                bits >>= bits_used;
                count -= bits_used;
            };
        }
        let mut result = Ok(());
        while at < input_end && made < output_end {
            refill!();
            // After this there are at least 56 bits, enough for three literals of the primary table, or for two and the
            // first half of a match.
            let mut entry = self.literal.at(bits);
            if entry & LITERAL != 0 {
                consume!(entry);
                output[made] = literal_of(entry);
                made += 1;
                entry = self.literal.at(bits);
                if entry & LITERAL != 0 {
                    consume!(entry);
                    output[made] = literal_of(entry);
                    made += 1;
                    entry = self.literal.at(bits);
                    if entry & LITERAL != 0 {
                        consume!(entry);
                        output[made] = literal_of(entry);
                        made += 1;
                        continue;
                    }
                }
            }
            if entry & SPECIAL != 0 {
                if entry & END == 0 {
                    entry = self.literal.below(entry, bits);
                    if entry & LITERAL != 0 {
                        consume!(entry);
                        output[made] = literal_of(entry);
                        made += 1;
                        continue;
                    }
                }
                if entry & SPECIAL != 0 {
                    consume!(entry);
                    self.state = self.after_block();
                    break;
                }
            }
            if entry == 0 {
                result = Err("it uses a code that does not exist");
                break;
            }
            let length = value(entry, bits);
            consume!(entry);
            if count < 28 {
                refill!();
            }
            let mut entry = self.distance.at(bits);
            if entry & SPECIAL != 0 {
                entry = self.distance.below(entry, bits);
            }
            if entry == 0 {
                result = Err("it uses a code that does not exist");
                break;
            }
            let distance = value(entry, bits);
            consume!(entry);
            if distance <= made {
                copy_within(output, made, distance, length);
                made += length;
            } else {
                io.made = made;
                let mut own = Io { input, at, output, made };
                if let Err(error) = self.copy(&mut own, length, distance) {
                    result = Err(error);
                    break;
                }
                made = own.made;
            }
        }
        // A symbol that is none may have begun in input given before: its bytes are not here to be given back.
        result?;
        io.at = at - (count / 8) as usize;
        io.made = made;
        self.count = count % 8;
        self.bits = bits & ((1 << self.count) - 1);
        Ok(())
    }
}

/// A match in the output itself; up to [`STRIDE`] bytes behind it are written too.
#[inline(always)]
fn copy_within(output: &mut [u8], made: usize, distance: usize, length: usize) {
    // One check for all that follows.
    let Some(output) = output.get_mut(made - distance..made + length + STRIDE) else { return };
    if distance >= STRIDE {
        let mut at = 0;
        while at < length {
            let (before, behind) = output.split_at_mut(at + distance);
            if let (Some(from), Some(to)) = (before[at..].first_chunk::<STRIDE>(), behind.first_chunk_mut::<STRIDE>()) {
                *to = *from;
            }
            at += STRIDE;
        }
    } else if distance == 1 {
        let byte = output[0];
        output[1..=length].fill(byte);
    } else {
        for at in 0..length {
            output[at + distance] = output[at];
        }
    }
}
