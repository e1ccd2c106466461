//! Where the disk's bytes come from: a file with holes, or a compressed stream; distinguished by content.

use std::fs::File;
use std::io;
use std::io::{BufReader, Cursor, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use liblzma::{read::XzDecoder, stream};
use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

/// Stands for the standard input.
const STDIN: &str = "-";
/// A zstd stream that declares a larger window (128 MiB) is refused; the agent refuses it too.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// What decoding an xz stream may take, bytes; `xz -9` declares 64 MiB.
const XZ_MEMORY_MAX: u64 = 512 << 20;
/// Enough for every magic number below.
const HEAD: u64 = 16;
const READ_AHEAD: usize = 1 << 18;

/// Formats that are refused by name rather than packed as raw disks, each with the command that converts it.
const REFUSED: [(&[u8], &str); 7] = [
    (b"QFI\xfb", "is a qcow2 image; convert it with qemu-img convert -O raw first"),
    (b"KDMV", "is a VMDK image; convert it with qemu-img convert -O raw first"),
    (b"vhdxfile", "is a VHDX image; convert it with qemu-img convert -O raw first"),
    (b"conectix", "is a VHD image; convert it with qemu-img convert -O raw first"),
    (b"BZh", "is bzip2-compressed; pipe it: bzip2 -dc FILE | landfall-image pack -"),
    (b"\x04\x22\x4d\x18", "is lz4-compressed; pipe it: lz4 -dc FILE | landfall-image pack -"),
    (b"PK\x03\x04", "is a ZIP archive; unpack it first"),
];

/// A piece of the disk.
pub(super) enum Piece {
    /// So many zero bytes.
    Zeros(u64),
    /// What the buffer holds.
    Data,
}

/// The disk, read once from its first byte to its last.
pub(super) enum Source {
    /// Bytes as they are, in something that can be read anywhere.
    File { file: File, at: u64, size: u64 },
    /// Anything else.
    Stream(Box<dyn Read + Send>),
}

impl Source {
    /// Opens `path`, or the standard input for `-`.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if path.as_os_str() == STDIN {
            return Self::new(io::stdin(), None);
        }
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::Error::other("is a directory"));
        }
        // A device has no length, but an end.
        let size = lseek(&file, 0, Whence::SeekEnd).ok().and_then(|end| u64::try_from(end).ok());
        let at_start = lseek(&file, 0, Whence::SeekSet).is_ok();
        let seekable = size.filter(|_| at_start).map(|size| file.try_clone().map(|file| (file, size))).transpose()?;
        Self::new(file, seekable)
    }

    fn new(mut input: impl Read + Send + 'static, seekable: Option<(File, u64)>) -> io::Result<Self> {
        let mut head = Vec::new();
        input.by_ref().take(HEAD).read_to_end(&mut head)?;
        if let Some((_, why)) = REFUSED.iter().find(|(magic, _)| head.starts_with(magic)) {
            return Err(io::Error::other(*why));
        }
        let stored = |head: Vec<u8>| Cursor::new(head).chain(BufReader::with_capacity(READ_AHEAD, input));
        Ok(Self::Stream(match head.as_slice() {
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
                let mut decoder = zstd::Decoder::new(stored(head))?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Box::new(decoder)
            }
            [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(stored(head))),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
                let stream = stream::Stream::new_stream_decoder(XZ_MEMORY_MAX, stream::CONCATENATED)?;
                Box::new(XzDecoder::new_stream(stored(head), stream))
            }
            _ => match seekable {
                Some((file, size)) => return Ok(Self::File { file, at: 0, size }),
                None => Box::new(stored(head)),
            },
        }))
    }

    /// Bytes of the disk, where they are known before it is read.
    pub(super) fn size(&self) -> Option<u64> {
        match self {
            Self::File { size, .. } => Some(*size),
            Self::Stream(_) => None,
        }
    }

    /// The next `chunk` bytes, fewer at the end; `None` behind it. `buffer` is filled with what is not zero.
    pub(super) fn next(&mut self, chunk: usize, buffer: &mut Vec<u8>) -> io::Result<Option<Piece>> {
        match self {
            Self::File { file, at, size } => {
                let length = (*size - *at).min(chunk as u64);
                if length == 0 {
                    return Ok(None);
                }
                if data_from(file, *at, *size) >= *at + length {
                    *at += length;
                    return Ok(Some(Piece::Zeros(length)));
                }
                buffer.resize(usize::try_from(length).unwrap_or(chunk), 0);
                file.read_exact_at(buffer, *at)?;
                *at += length;
            }
            Self::Stream(stream) => {
                // What is reserved is all that the read takes: a chunk has its bound.
                buffer.clear();
                buffer.reserve_exact(chunk);
                if stream.take(chunk as u64).read_to_end(buffer)? == 0 {
                    return Ok(None);
                }
            }
        }
        Ok(Some(if all_zero(buffer) { Piece::Zeros(buffer.len() as u64) } else { Piece::Data }))
    }
}

/// Where the file has data at or behind `at`; its size if nowhere.
fn data_from(file: &File, at: u64, size: u64) -> u64 {
    let Ok(offset) = i64::try_from(at) else { return at };
    match lseek(file, offset, Whence::SeekData) {
        Ok(found) => u64::try_from(found).unwrap_or(at),
        Err(Errno::ENXIO) => size,
        // The file system cannot tell: read the file.
        Err(_) => at,
    }
}

fn all_zero(bytes: &[u8]) -> bool {
    // Each byte equals the next, and the first is zero: one comparison of memory, which is as fast as it gets.
    bytes.first().is_none_or(|first| *first == 0) && bytes.get(1..).is_none_or(|rest| rest == &bytes[..rest.len()])
}
