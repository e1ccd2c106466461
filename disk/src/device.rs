//! Block devices: the trait with the few operations that writing an image needs, and its implementation for real
//! devices.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::libc;

use crate::buffer::{ALIGNMENT, Buffer};
use crate::sys;

/// Bytes that can be read at any offset.
pub trait ReadAt {
    /// How many there are.
    fn size(&self) -> u64;
    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// The device's, or `UnexpectedEof` beyond the end.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

/// A device of sectors with a volatile cache. Offsets and lengths of writes are multiples of the logical sector size.
pub trait BlockDevice: ReadAt + Send + Sync {
    /// The unit of reading and writing, bytes: 512 or 4096.
    fn logical_sector(&self) -> u32;
    /// Writes all of `data`.
    ///
    /// # Errors
    /// The device's.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Makes a range read as zeroes. True: the device made them; false: they had to be written.
    ///
    /// # Errors
    /// The device's.
    fn zero_range(&self, offset: u64, length: u64) -> io::Result<bool>;
    /// Returns once everything written is on stable storage.
    ///
    /// # Errors
    /// The device's.
    fn flush(&self) -> io::Result<()>;
    /// Makes the kernel read the partition table again, where that means anything.
    ///
    /// # Errors
    /// The kernel's; the disk's content does not depend on it.
    fn reread_table(&self) -> io::Result<()> {
        Ok(())
    }
}

impl ReadAt for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).ok();
        let from = start.and_then(|s| self.get(s..s.checked_add(buffer.len())?)).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(from);
        Ok(())
    }
}

impl ReadAt for Vec<u8> {
    fn size(&self) -> u64 {
        self.as_slice().size()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.as_slice().read_at(offset, buffer)
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    fn size(&self) -> u64 {
        (**self).size()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, buffer)
    }
}

/// A block device or, for trying things out, a regular file.
#[derive(Debug)]
pub struct RealDevice {
    file: File,
    path: PathBuf,
    size: u64,
    sector: u32,
    direct: bool,
    /// Set once the device has said that it cannot make zeroes.
    writes_zeroes: AtomicBool,
}

/// Keeps every other [`RealDevice::open`] away from a device for as long as the file is open. Programs that know nothing of it can
/// still open it exclusively, as mkfs does: a container's must.
///
/// # Errors
/// `EBUSY` if another has it.
pub(crate) fn lock(file: &File) -> io::Result<()> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => Errno::EBUSY.into(),
        TryLockError::Error(error) => error,
    })
}

/// Largest single transfer through a bounce buffer.
const BOUNCE: usize = 1 << 20;

impl RealDevice {
    /// Opens for writing. On block devices exclusively, so that the kernel refuses what is mounted or held; and past the
    /// page cache, where the file system or device allows.
    ///
    /// # Errors The kernel's; `EBUSY` if another program holds the device, or has it lent.
    pub fn open(path: &Path) -> io::Result<Self> {
        let device = Self::open_held(path)?;
        lock(&device.file)?;
        Ok(device)
    }

    /// The same for who has its lock.
    pub(crate) fn open_held(path: &Path) -> io::Result<Self> {
        Self::open_with(path, true)
    }

    /// Opens for reading only.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open_read_only(path: &Path) -> io::Result<Self> {
        Self::open_with(path, false)
    }

    /// Opens for writing, also while something stands on the partitions: for the receipt, which none of them covers.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn open_shared(path: &Path) -> io::Result<Self> {
        Self::open_as(path, true, false)
    }

    fn open_with(path: &Path, write: bool) -> io::Result<Self> {
        Self::open_as(path, write, write)
    }

    fn open_as(path: &Path, write: bool, exclusive: bool) -> io::Result<Self> {
        let block = std::fs::metadata(path)?.file_type().is_block_device();
        let exclusive = if block && exclusive { libc::O_EXCL } else { 0 };
        let open = |flags| {
            OpenOptions::new().read(true).write(write).custom_flags(flags | exclusive | libc::O_CLOEXEC).open(path)
        };
        let (file, direct) = match open(libc::O_DIRECT) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => (open(0)?, false),
            other => (other?, true),
        };
        let (size, sector) = if block {
            (sys::size_bytes(&file)?, sys::logical_sector(&file)?)
        } else {
            // A trailing part of a sector is not there, as on a loop device.
            (file.metadata()?.len() / 512 * 512, 512)
        };
        if !sector.is_power_of_two() || !(512..=ALIGNMENT as u32).contains(&sector) {
            return Err(io::Error::other(format!("sectors of {sector} bytes are not supported")));
        }
        Ok(Self { file, path: path.into(), size, sector, direct, writes_zeroes: AtomicBool::new(false) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// For calls of the kernel that are no reads or writes.
    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    /// Whether it is a block device, and not a regular file.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn is_block(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.file_type().is_block_device())
    }

    /// Whether writes go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    fn check(&self, offset: u64, length: u64) -> io::Result<()> {
        let sector = u64::from(self.sector);
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.size);
        if inside && offset.is_multiple_of(sector) && length.is_multiple_of(sector) {
            return Ok(());
        }
        let what = format!("{length} bytes at {offset} are not whole sectors of {sector} bytes within {}", self.size);
        Err(io::Error::new(io::ErrorKind::InvalidInput, what))
    }

    /// A disk that was taken out has no bytes any more, and the kernel's reason is that of a full one.
    fn named(&self, error: io::Error) -> io::Error {
        let block = self.file.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device());
        if block && !matches!(sys::size_bytes(&self.file), Ok(1..)) {
            return io::Error::new(io::ErrorKind::NotConnected, format!("the disk is gone ({error})"));
        }
        error
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if !self.direct {
            return self.file.read_exact_at(buffer, offset);
        }
        let sector = u64::from(self.sector);
        let whole = offset.is_multiple_of(sector) && (buffer.len() as u64).is_multiple_of(sector);
        if whole && buffer.as_ptr().align_offset(ALIGNMENT) == 0 {
            return self.file.read_exact_at(buffer, offset);
        }
        let mut bounce = Buffer::new(BOUNCE.min(buffer.len() + 2 * ALIGNMENT).next_multiple_of(ALIGNMENT));
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let skip = (at % sector) as usize;
            let want = (skip + buffer.len() - done).next_multiple_of(self.sector as usize);
            let step = want.min(bounce.space().len());
            self.file.read_exact_at(&mut bounce.space()[..step], at - skip as u64)?;
            let now = (step - skip).min(buffer.len() - done);
            buffer[done..done + now].copy_from_slice(&bounce.space()[skip..skip + now]);
            done += now;
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if !self.direct || data.as_ptr().align_offset(ALIGNMENT) == 0 {
            return self.file.write_all_at(data, offset);
        }
        let mut bounce = Buffer::new(BOUNCE.min(data.len().next_multiple_of(ALIGNMENT)));
        let mut at = offset;
        for chunk in data.chunks(BOUNCE) {
            bounce.space()[..chunk.len()].copy_from_slice(chunk);
            bounce.len = chunk.len();
            self.file.write_all_at(bounce.data(), at)?;
            at += chunk.len() as u64;
        }
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        let mut zeroes = Buffer::new(BOUNCE.min(usize::try_from(length).unwrap_or(BOUNCE)));
        let step = zeroes.space().len();
        zeroes.len = step;
        let mut done = 0;
        while done < length {
            let now = usize::try_from(length - done).map_or(step, |left| left.min(step));
            self.file.write_all_at(&zeroes.data()[..now], offset + done)?;
            done += now as u64;
        }
        Ok(())
    }
}

impl ReadAt for RealDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > self.size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read(offset, buffer).map_err(|error| self.named(error))
    }
}

impl BlockDevice for RealDevice {
    fn logical_sector(&self) -> u32 {
        self.sector
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len() as u64)?;
        self.write(offset, data).map_err(|error| self.named(error))
    }

    fn zero_range(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.check(offset, length)?;
        if length == 0 {
            return Ok(true);
        }
        if !self.writes_zeroes.load(Ordering::Relaxed) {
            // On a block device the kernel (blkdev_fallocate) turns this into WRITE ZEROES without fallback: the range
            // then reads as zeroes for certain, or the call fails. A discard would promise nothing.
            let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
            let signed = |n: u64| libc::off_t::try_from(n).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
            match fallocate(&self.file, hole, signed(offset)?, signed(length)?) {
                Ok(()) => return Ok(true),
                // After any refusal the zeroes are written instead; a real fault then shows as a write error.
                Err(Errno::ENOSPC | Errno::EINTR) => {}
                Err(_) => self.writes_zeroes.store(true, Ordering::Relaxed),
            }
        }
        self.write_zeroes(offset, length).map_err(|error| self.named(error))?;
        Ok(false)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data().map_err(|error| self.named(error))
    }

    fn reread_table(&self) -> io::Result<()> {
        // The kernel reads no table of a regular file.
        if self.file.metadata()?.file_type().is_block_device() { sys::reread_table(&self.file) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(bytes: u64) -> (tempfile::NamedTempFile, RealDevice) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(bytes).unwrap();
        let device = RealDevice::open(file.path()).unwrap();
        (file, device)
    }

    #[test]
    fn unaligned_memory_and_odd_reads_pass_through_the_bounce_buffer() {
        let (_file, device) = device(3 << 20);
        let data: Vec<u8> = (0..(2 << 20) + 512).map(|i| (i % 251) as u8).collect();
        device.write_at(512, &data[..]).unwrap();
        let mut back = vec![0; (2 << 20) + 100];
        device.read_at(515, &mut back).unwrap();
        assert_eq!(back, data[3..3 + back.len()]);
    }

    #[test]
    fn a_zeroed_range_reads_as_zeroes_and_its_neighbours_stay() {
        let (_file, device) = device(1 << 20);
        device.write_at(0, &[7; 16384]).unwrap();
        device.zero_range(4096, 8192).unwrap();
        let mut back = vec![1; 16384];
        device.read_at(0, &mut back).unwrap();
        assert!(back[..4096].iter().all(|b| *b == 7) && back[12288..].iter().all(|b| *b == 7));
        assert!(back[4096..12288].iter().all(|b| *b == 0));
    }

    #[test]
    fn parts_of_sectors_and_ranges_beyond_the_end_are_refused() {
        let (_file, device) = device(1 << 20);
        assert!(device.write_at(1, &[0; 512]).is_err());
        assert!(device.write_at(0, &[0; 100]).is_err());
        assert!(device.write_at(1 << 20, &[0; 512]).is_err());
        assert!(device.zero_range(0, (1 << 20) + 512).is_err());
        assert!(device.read_at((1 << 20) - 1, &mut [0; 2]).is_err());
    }
}
