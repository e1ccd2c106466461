//! DEFLATE (RFC 1951) as a stream: our own, because disk images come as one huge gzip member and no library that can be
//! built here decodes one at the speed of the best (libdeflate, which wants the member in memory as a whole).
//!
//! Output goes straight into the caller's blocks; only the last 32 KiB before a block are kept beside it. While input and
//! output have room to spare, a fast loop decodes without asking at each bit whether there is one; near their ends a
//! careful one, which can stop anywhere and takes no byte that it does not need.

mod fast;
mod tables;

use tables::{END, Entry, LITERAL, LONGEST_CODE, SPECIAL, Table, code_bits, consumed, literal_of, value};

/// How far back a match may reach.
const WINDOW: usize = 32 * 1024;
/// The order in which code lengths' codes are stored (3.2.7).
const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// Why a stream is not one: a clause.
pub type Corrupt = &'static str;

/// Where in the stream it is.
enum State {
    BlockHeader,
    /// So many bytes are copied as they are.
    Stored(usize),
    /// The lengths of the code lengths' codes, then those of both codes.
    CodeLengths,
    Lengths,
    Symbols,
    /// A match of a length and a distance that found no room in the output.
    Match(usize, usize),
    Done,
}

/// What one call did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the input that were used up.
    pub taken: usize,
    /// Bytes of the output that were filled.
    pub made: usize,
    /// The stream has ended; what follows in the input is not its own.
    pub ended: bool,
}

/// A stream in the middle.
pub struct Inflate {
    state: State,
    last: bool,
    bits: u64,
    count: u32,
    /// The lengths read so far, and how many there will be.
    lengths: [u8; 320],
    read: usize,
    literals: usize,
    distances: usize,
    codes: usize,
    code_lengths: Table<7, 128>,
    literal: Table<11, 4352>,
    distance: Table<8, 2304>,
    history: Box<[u8; WINDOW]>,
    /// How many bytes at its end are filled.
    remembered: usize,
}

impl Default for Inflate {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Inflate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inflate").finish_non_exhaustive()
    }
}

impl Inflate {
    /// At the start of a stream.
    pub fn new() -> Self {
        Self {
            state: State::BlockHeader,
            last: false,
            bits: 0,
            count: 0,
            lengths: [0; 320],
            read: 0,
            literals: 0,
            distances: 0,
            codes: 0,
            code_lengths: Table::new(),
            literal: Table::new(),
            distance: Table::new(),
            history: Box::new([0; WINDOW]),
            remembered: 0,
        }
    }

    /// Begins another stream.
    pub fn reset(&mut self) {
        (self.state, self.last, self.bits, self.count, self.remembered) = (State::BlockHeader, false, 0, 0, 0);
    }

    /// Decodes until the stream ends, the output is full, or the input is used up. No byte is taken that the stream does not
    /// need, so whatever stands behind it is left.
    ///
    /// # Errors
    /// [`Corrupt`]: this is no DEFLATE stream. The state is of no use then, until [`Inflate::reset`].
    pub fn run(&mut self, input: &[u8], output: &mut [u8]) -> Result<Progress, Corrupt> {
        let mut io = Io { input, at: 0, output, made: 0 };
        self.decode(&mut io)?;
        self.remember(&io.output[..io.made]);
        Ok(Progress { taken: io.at, made: io.made, ended: matches!(self.state, State::Done) })
    }

    /// Keeps the end of what was put out.
    fn remember(&mut self, made: &[u8]) {
        if let Some(start) = made.len().checked_sub(WINDOW) {
            self.history.copy_from_slice(&made[start..]);
        } else if !made.is_empty() {
            self.history.copy_within(made.len().., 0);
            self.history[WINDOW - made.len()..].copy_from_slice(made);
        }
        self.remembered = (self.remembered + made.len()).min(WINDOW);
    }

    fn decode(&mut self, io: &mut Io<'_>) -> Result<(), Corrupt> {
        loop {
            match self.state {
                State::BlockHeader => {
                    if !self.need(io, 3) {
                        return Ok(());
                    }
                    // A stored block's lengths belong to its header, so that both come or none.
                    match self.bits >> 1 & 3 {
                        0 => {
                            let padding = (self.count - 3) % 8;
                            if !self.need(io, 3 + padding + 32) {
                                return Ok(());
                            }
                            self.last = self.take(3 + padding) & 1 == 1;
                            let length = self.take(16);
                            if self.take(16) != length ^ 0xffff {
                                return Err("the length of a stored block is not what it repeats");
                            }
                            self.state = State::Stored(length as usize);
                        }
                        1 => {
                            self.last = self.take(3) & 1 == 1;
                            self.fixed();
                            self.state = State::Symbols;
                        }
                        2 => {
                            if !self.need(io, 17) {
                                return Ok(());
                            }
                            self.last = self.take(3) & 1 == 1;
                            self.literals = 257 + self.take(5) as usize;
                            self.distances = 1 + self.take(5) as usize;
                            self.codes = 4 + self.take(4) as usize;
                            if self.literals > 286 || self.distances > 30 {
                                return Err("a block has too many symbols");
                            }
                            self.lengths[..19].fill(0);
                            self.read = 0;
                            self.state = State::CodeLengths;
                        }
                        _ => return Err("a block is of no known kind"),
                    }
                }
                State::Stored(length) => {
                    // The careful loop leaves no whole byte in the bits.
                    let n = length.min(io.input.len() - io.at).min(io.output.len() - io.made);
                    io.output[io.made..io.made + n].copy_from_slice(&io.input[io.at..io.at + n]);
                    (io.at, io.made) = (io.at + n, io.made + n);
                    if n < length {
                        self.state = State::Stored(length - n);
                        return Ok(());
                    }
                    self.state = self.after_block();
                }
                State::CodeLengths => {
                    while self.read < self.codes {
                        if !self.need(io, 3) {
                            return Ok(());
                        }
                        self.lengths[ORDER[self.read]] = self.take(3) as u8;
                        self.read += 1;
                    }
                    if !self.code_lengths.build(&self.lengths[..19], tables::code_length) {
                        return Err("the code of a block's code lengths is none");
                    }
                    self.read = 0;
                    self.state = State::Lengths;
                }
                State::Lengths => {
                    if !self.lengths(io)? {
                        return Ok(());
                    }
                    self.state = State::Symbols;
                }
                State::Symbols => {
                    if io.has_slack() {
                        self.fast(io)?;
                    } else if !self.careful(io)? {
                        return Ok(());
                    }
                }
                State::Match(length, distance) => {
                    let n = length.min(io.output.len() - io.made);
                    self.copy(io, n, distance)?;
                    if n < length {
                        self.state = State::Match(length - n, distance);
                        return Ok(());
                    }
                    self.state = State::Symbols;
                }
                State::Done => return Ok(()),
            }
        }
    }

    fn after_block(&self) -> State {
        if self.last { State::Done } else { State::BlockHeader }
    }

    /// The code of blocks without one of their own (3.2.6).
    fn fixed(&mut self) {
        let mut lengths = [8; 288];
        lengths[144..256].fill(9);
        lengths[256..280].fill(7);
        // Both are complete codes.
        self.literal.build(&lengths, tables::literal_or_length);
        self.distance.build(&[5; 32], tables::distance);
    }

    /// The lengths of both codes. False: the input ended.
    fn lengths(&mut self, io: &mut Io<'_>) -> Result<bool, Corrupt> {
        let all = self.literals + self.distances;
        while self.read < all {
            let Some(entry) = self.code(io, 0, |own, bits| own.code_lengths.at(bits))? else { return Ok(false) };
            let code = consumed(entry);
            let (length, base, extra) = match value(entry, 0) {
                symbol @ 0..16 => (symbol as u8, 1, 0),
                16 if self.read == 0 => return Err("a block repeats a code length before the first"),
                16 => (self.lengths[self.read - 1], 3, 2),
                17 => (0, 3, 3),
                _ => (0, 11, 7),
            };
            if !self.need(io, code + extra) {
                return Ok(false);
            }
            self.take(code);
            let times = base + self.take(extra) as usize;
            if times > all - self.read {
                return Err("a block repeats a code length beyond the last");
            }
            self.lengths[self.read..self.read + times].fill(length);
            self.read += times;
        }
        let (literals, distances) = self.lengths[..all].split_at(self.literals);
        if literals.get(256) == Some(&0) {
            return Err("a block has no end");
        }
        if !self.literal.build(literals, tables::literal_or_length) || !self.distance.build(distances, tables::distance)
        {
            return Err("a block's code is none");
        }
        Ok(true)
    }

    /// Takes bytes until so many bits are there. False: the input ended.
    fn need(&mut self, io: &mut Io<'_>, count: u32) -> bool {
        while self.count < count {
            let Some(byte) = io.input.get(io.at) else { return false };
            io.at += 1;
            self.bits |= u64::from(*byte) << self.count;
            self.count += 8;
        }
        true
    }

    fn take(&mut self, count: u32) -> u64 {
        let bits = self.bits & ((1 << count) - 1);
        self.bits >>= count;
        self.count -= count;
        bits
    }

    /// The entry of the code that follows the next `skip` bits, its bits there and not yet consumed. `None`: the input
    /// ended.
    fn code(&mut self, io: &mut Io<'_>, skip: u32, look: fn(&Self, u64) -> Entry) -> Result<Option<Entry>, Corrupt> {
        loop {
            let entry = look(self, self.bits >> skip);
            // What is missing reads as zeroes: an entry counts only if all its bits are there.
            let there = self.count.saturating_sub(skip);
            if entry != 0 && code_bits(entry) <= there {
                return Ok(Some(entry));
            }
            if there >= LONGEST_CODE {
                return Err("it uses a code that does not exist");
            }
            if !self.need(io, self.count + 1) {
                return Ok(None);
            }
        }
    }

    fn literal_at(&self, bits: u64) -> Entry {
        let entry = self.literal.at(bits);
        if entry & (SPECIAL | END) == SPECIAL { self.literal.below(entry, bits) } else { entry }
    }

    fn distance_at(&self, bits: u64) -> Entry {
        let entry = self.distance.at(bits);
        if entry & SPECIAL != 0 { self.distance.below(entry, bits) } else { entry }
    }

    /// One symbol. False: the input ended or the output is full. A symbol is consumed as a whole or not at all.
    fn careful(&mut self, io: &mut Io<'_>) -> Result<bool, Corrupt> {
        let Some(entry) = self.code(io, 0, Self::literal_at)? else { return Ok(false) };
        let length_bits = consumed(entry);
        if entry & LITERAL != 0 {
            let Some(place) = io.output.get_mut(io.made) else { return Ok(false) };
            *place = literal_of(entry);
            io.made += 1;
            self.take(length_bits);
        } else if entry & SPECIAL != 0 {
            self.take(length_bits);
            self.state = self.after_block();
        } else {
            if !self.need(io, length_bits) {
                return Ok(false);
            }
            let Some(far) = self.code(io, length_bits, Self::distance_at)? else { return Ok(false) };
            if !self.need(io, length_bits + consumed(far)) {
                return Ok(false);
            }
            let length = value(entry, self.bits);
            self.take(length_bits);
            let distance = value(far, self.bits);
            self.take(consumed(far));
            self.state = State::Match(length, distance);
        }
        Ok(true)
    }

    /// Puts out `length` bytes, for which there is room, of what lies `distance` back.
    fn copy(&self, io: &mut Io<'_>, length: usize, distance: usize) -> Result<(), Corrupt> {
        let from_history = distance.saturating_sub(io.made);
        if from_history > self.remembered {
            return Err("a match reaches back beyond the beginning");
        }
        let old = from_history.min(length);
        let start = WINDOW - from_history;
        io.output[io.made..io.made + old].copy_from_slice(&self.history[start..start + old]);
        io.made += old;
        for _ in old..length {
            io.output[io.made] = io.output[io.made - distance];
            io.made += 1;
        }
        Ok(())
    }
}

/// One call's input and output.
struct Io<'a> {
    input: &'a [u8],
    at: usize,
    output: &'a mut [u8],
    made: usize,
}

#[cfg(test)]
mod tests {
    use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
    use proptest::prelude::*;

    use super::{fast::LONGEST, *};

    /// Bytes that compress, with runs of zeroes.
    fn sample() -> Vec<u8> {
        (0..50_000_u32).flat_map(|i| if i % 20_000 < 6_000 { [0; 4] } else { (i / 7).to_le_bytes() }).collect()
    }

    #[test]
    fn a_code_that_does_not_exist_is_refused_also_where_it_began_in_the_input_before() {
        // A fixed block with a match of length 3 at distance code 30, which is none; its bits are known only later.
        let mut inflate = Inflate::new();
        let mut output = vec![0; 1000];
        assert_eq!(inflate.run(&[0x03, 0x3e, 0x00], &mut output).unwrap().taken, 3);
        assert!(inflate.run(&[0; 100], &mut output).is_err());
    }

    fn deflate(raw: &[u8], level: u32) -> Vec<u8> {
        let mut stored = Vec::with_capacity(raw.len() + 4096);
        let mut library = Compress::new(Compression::new(level), false);
        library.compress_vec(raw, &mut stored, FlushCompress::Finish).unwrap();
        stored
    }

    /// What `stored` decodes to, input and output in pieces; how many bytes were taken, and whether it ended.
    fn inflate(stored: &[u8], step: usize, room: usize) -> Result<(Vec<u8>, usize, bool), Corrupt> {
        let (mut inflate, mut raw, mut at) = (Inflate::new(), Vec::new(), 0);
        let mut output = vec![0; room];
        loop {
            let piece = &stored[at..(at + step).min(stored.len())];
            let Progress { taken, made, ended } = inflate.run(piece, &mut output)?;
            raw.extend(&output[..made]);
            at += taken;
            if ended || (taken == 0 && made == 0) {
                return Ok((raw, at, ended));
            }
        }
    }

    /// Bytes of these bits, the first the lowest.
    fn bits(bits: &str) -> Vec<u8> {
        let bits: Vec<u8> = bits.bytes().filter(|bit| *bit != b' ').map(|bit| bit - b'0').collect();
        bits.chunks(8).map(|byte| byte.iter().rev().fold(0, |all, bit| all << 1 | bit)).collect()
    }

    #[test]
    fn matches_reach_back_over_the_whole_window_and_no_further() {
        let before: Vec<u8> = (0..WINDOW as u32 / 4).flat_map(|i| i.wrapping_mul(0x9e37_79b1).to_le_bytes()).collect();
        // A fixed block: length 258, distance 32768, the end.
        let far = bits("1 10 11000101 11101 1111111111111 0000000");
        for missing in [0, 1] {
            let length = (WINDOW - missing) as u16;
            let mut stored = vec![0];
            stored.extend(length.to_le_bytes());
            stored.extend((!length).to_le_bytes());
            stored.extend(&before[missing..]);
            stored.extend(&far);
            stored.extend([0; 64]);
            for (step, room) in [(1 << 20, 1 << 20), (4096, 5000), (100, 999), (1 << 20, 300), (64, 1)] {
                let result = inflate(&stored, step, room);
                if missing == 0 {
                    assert!(result.unwrap().0 == [&before[..], &before[..LONGEST]].concat(), "{step}, {room}");
                } else {
                    assert!(result.is_err(), "{step}, {room}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn what_was_compressed_comes_back_however_it_is_cut_up(
            noise in prop::collection::vec(any::<u8>(), 0..40_000), level in 0..=9_u32, step in 1..70_000_usize, room in 1..70_000_usize,
        ) {
            let raw = [&sample()[..60_000], &noise, &noise, &sample()[..30_000]].concat();
            let stored = deflate(&raw, level);
            let longer = [&stored[..], &[0x55; 40]].concat();
            let (found, taken, ended) = inflate(&longer, step.max(40), room.max(40)).unwrap();
            prop_assert!(ended && found == raw);
            prop_assert_eq!(taken, stored.len(), "no byte behind the end is taken");
        }

        /// An independent decoder is of the same opinion about everything.
        #[test]
        fn arbitrary_streams_are_judged_as_zlib_does(
            bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0..8_u8, valid: bool,
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut stored = if valid { deflate(&sample()[20_000..24_000], 6) } else { [&[kind][..], &bytes].concat() };
            for (at, flip) in flips {
                let at = at.index(stored.len());
                stored[at] ^= flip;
            }
            // So that neither waits for more.
            stored.extend([0; 64]);
            let ours = inflate(&stored, stored.len(), 1 << 20);
            let mut theirs = vec![0; 1 << 20];
            let mut library = Decompress::new(false);
            let status = library.decompress(&stored, &mut theirs, FlushDecompress::None);
            theirs.truncate(library.total_out() as usize);
            match ours {
                Ok((raw, taken, true)) => {
                    prop_assert!(matches!(status, Ok(flate2::Status::StreamEnd)), "{:?}", status);
                    prop_assert!(raw == theirs);
                    prop_assert_eq!(taken as u64, library.total_in());
                }
                Ok((raw, _, false)) => prop_assert!(!matches!(status, Ok(flate2::Status::StreamEnd)) && raw.len() >= theirs.len()),
                Err(_) => prop_assert!(!matches!(status, Ok(flate2::Status::StreamEnd))),
            }
            // In pieces of one byte, too.
            let _ = inflate(&stored, 1, 64);
        }
    }
}
