//! VMware's VMDK, subformat streamOptimized, in one pass over the stored bytes (VMware, Virtual Disk Format 5.0).
//!
//! One file: a header, a descriptor in text, and grains, each behind a marker that says where on the disk it belongs and how
//! long its zlib stream is. Grains come in the order of the disk, each once, so what comes out is in order too; what has no
//! grain is zero. Tables say the same once more, by the place of every grain in the file. There are two kinds of file:
//!
//! - the header says that the directory is at the end: tables behind the grains, then the directory, a footer and a marker of the
//!   end. This is what VMware and VirtualBox write, and without footer and marker the file has not ended;
//! - tables before the grains, and nothing but zeroes behind them, less than a grain: what `qemu-img` writes. It has no footer and
//!   no marker of the end: the file has ended once the last grain that the tables list has passed.
//!
//! Either way the tables and the grains that passed must agree, so a file that lost or gained a grain is no success, even
//! without a digest; each grain has a checksum of its own (Adler-32).
//!
//! Memory: two digests for each table (512 grains, most often 32 MiB of the disk), and one grain as it is stored and as it
//! unpacks. It is computed from the header.

mod descriptor;
mod grain;
mod header;
mod marker;
mod pass;
mod tables;
#[cfg(test)]
mod tests;

pub(crate) use header::{Header, Refusal, START};

use super::{DecodeError, Input, Limits, Sink, reader::Reader};

/// Bytes of a sector of the format; places and lengths are counted in these.
const SECTOR: u64 = 512;

/// What a file that starts like this is: of its first bytes at least [`START`], or all there are.
///
/// # Errors
/// [`Refusal`]: it is no streamOptimized VMDK that can be written.
pub(crate) fn open(start: &[u8]) -> Result<Header, Refusal> {
    let header = Header::parse(start)?;
    let place = header.descriptor();
    let text = start.get(place.start as usize..place.end as usize);
    descriptor::check(text.ok_or_else(|| Refusal::Short("descriptor of the VMDK".into()))?, header.capacity())?;
    Ok(header)
}

/// Decodes the file, from its first byte on.
pub(super) fn decode(input: &mut dyn Input, sink: &mut Sink, limits: Limits) -> Result<(), DecodeError> {
    let mut input = Reader::new(input);
    let mut start = Vec::new();
    input.gather(&mut start, SECTOR as usize)?;
    let rest = Header::parse(&start)?.descriptor().end - SECTOR;
    input.gather(&mut start, rest as usize)?;
    let header = open(&start)?;
    drop(start);
    limits.allow(header.memory())?;
    pass::run(header, input, sink)
}
