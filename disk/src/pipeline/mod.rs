//! The write pipeline: fetch → hash → decode in threads of their own, and on the calling thread plan → invalidate →
//! write → flush → verify → commit, in the order that keeps the disk old, unbootable or verified-new.
//!
//! Async stays out of here; stages are joined by small bounded queues of reusable buffers, so memory does not grow with
//! the image.

mod behind;
mod blocks;
mod body;
mod clear;
mod commit;
mod compare;
mod divide;
mod evidence;
mod hasher;
mod indexed;
mod invalidate;
mod manner;
mod meter;
mod opened;
mod queue;
mod rawcheck;
mod readback;
mod record;
mod reread;
mod stages;
mod stream;
mod writers;
mod zeroes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use body::Body;
pub use clear::clear_device;
pub use commit::{BackupPlaced, Committed, TablePlaced, Verified, place_backup, place_lba0, place_table};
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
pub(crate) use divide::hold_back_device;
pub use divide::{divide_device, finish_device};
use evidence::Evidence;
pub(crate) use hasher::Hasher;
use indexed::Indexed;
use landfall_api::{Digest, DiskReceipt};
use manner::Manner;
use meter::{Meter, Wait};
use opened::Opened;
use stages::Stages;
pub use stream::{Content, ContentOrder, with_content};
use writers::{Tally, Writers};
pub(crate) use zeroes::{Zeroes, is_zero, places};

use crate::buffer::Pool;
use crate::decode::Decoded;
use crate::forgiving::Forgiving;
use crate::gpt::{Captured, HEAD, Kept, Layout, Old};
use crate::index::{Index, StoredAs};
use crate::memory::BUFFERS;
use crate::proof::DetachedSignature;
use crate::source::ImageSource;
use crate::{BlockDevice, Defect, Format, Installed, LogLevel, Observer, WriteError, receipt};

/// How often a waiting writer asks whether it may still act.
const TICK: Duration = Duration::from_millis(100);

/// What comes out of the stages, in any order after the head; disconnected after the last.
type Pieces = Receiver<Result<Decoded, WriteError>>;

/// Asked again and again; an error ends the write with nothing committed.
pub type Check<'a> = &'a dyn Fn() -> Result<(), WriteError>;

/// What the stages compare with what they saw.
#[derive(Debug, Clone, Copy)]
pub enum Expectation<'a> {
    /// Digest of the stored bytes.
    Stored(Digest),
    /// Digest of the raw bytes.
    Raw(Digest),
    /// A signature of the stored bytes.
    Signed(&'a DetachedSignature),
    /// Digests of every chunk, from an index that was itself proven.
    Index(&'a Index),
    /// Nothing: the request waives a proof explicitly.
    Waived,
}

/// One image onto one device: what [`install`] needs beyond the device and the source.
pub struct Order<'a> {
    /// What to call the device in messages.
    pub device: &'a str,
    /// What proves the image.
    pub expectation: Expectation<'a>,
    /// `None`: by content.
    pub format: Option<Format>,
    /// The image is stated to have no partition table; otherwise it must have one.
    pub no_table: bool,
    /// The receipt to leave; its state and time are filled in here.
    pub mark: DiskReceipt,
    /// Labels of partitions of the old table that stay, intact and findable at every instant.
    pub keep: &'a [String],
    /// The disk is likely to hold a part of the image already: what is right is left as it is.
    pub compare: bool,
    /// Everything is read back before the commit.
    pub read_back: bool,
    /// A person accepted that sectors which cannot be read are lost: they count as zeroes, and are written over.
    pub forgive: bool,
    /// Memory that is available for the write, bytes; `None`: enough.
    pub memory: Option<u64>,
    /// Lease and cancel: asked before every destructive step and before the commit.
    pub may_act: Check<'a>,
    /// Is it still the same disk? Asked once, just before the first write.
    pub same_disk: Check<'a>,
}

impl<'a> Order<'a> {
    /// Writes over everything what nothing proves, compares nothing, and reads nothing back.
    pub fn new(device: &'a str, mark: DiskReceipt, may_act: Check<'a>, same_disk: Check<'a>) -> Self {
        Self {
            device,
            expectation: Expectation::Waived,
            format: None,
            no_table: false,
            mark,
            keep: &[],
            compare: false,
            read_back: false,
            forgive: false,
            memory: None,
            may_act,
            same_disk,
        }
    }

    /// An order without conditions, which may always act.
    #[cfg(test)]
    pub(crate) fn plain(device: &'a str, mark: DiskReceipt) -> Self {
        Self::new(device, mark, &|| Ok(()), &|| Ok(()))
    }
}

/// Writes the image from `source` to `device`. Whether the disk may be written at all is the caller's to decide first.
///
/// Blocking; starts the threads it needs and ends them before it returns.
///
/// # Errors
/// [`WriteError`]; nothing is committed then, and the device is untouched if the image's head was refused.
pub fn install(
    device: &dyn BlockDevice, source: &mut dyn ImageSource, order: &Order<'_>, observer: &dyn Observer,
) -> Result<Installed, WriteError> {
    if let Expectation::Index(index) = order.expectation
        && index.format == StoredAs::Zstd
    {
        return install_indexed(device, source, index, order, observer);
    }
    let stop = AtomicBool::new(false);
    let meter = Meter::new(observer);
    let zeroes = Zeroes::new(device, order.device);
    let manner = Manner::new(device, order, &meter, &zeroes, &stop);
    let blocks = Arc::new(Pool::new(HEAD));
    let image = source.name().to_owned();
    fits_memory(order.memory, &image, BUFFERS)?;
    let context = Context { image: &image, stop: &stop, meter: &meter, memory: order.memory };
    thread::scope(|scope| {
        // However the closure ends, the stages must stop fetching.
        let _stop = StopOnDrop(&stop);
        meter.stage("fetch");
        let wanted = order.format;
        let opened = watched(order.may_act, &stop, || Opened::look(source, wanted, context))?;
        let raw = opened.raw_bytes(order.expectation);
        let stages = Stages::start(scope, opened, source, order.expectation, false, &blocks, context)?;
        let head = match next(&stages.pieces, &meter, order.may_act)? {
            Some(Decoded::Block { offset: 0, bytes }) => bytes,
            Some(_) => return Err(WriteError::Internal("the first piece was not the image's start".into())),
            // The evidence could only add that the image is empty.
            None => return Err(WriteError::Truncated { subject: image.clone(), reason: "it is empty".into() }),
        };
        let job = Job { device, order, observer, meter: &meter, image: &image };
        let layout = job.destroy(head.data(), raw)?;
        let mut body = Body::new(&layout, &manner, Writers::start(scope, &manner, &blocks)?, &blocks, order.may_act);
        meter.stage("write");
        body.write(0, head)?;
        job.drain(&mut body, &stages.pieces)?;
        let evidence = stages.evidence()?;
        let (captured, tally) = body.finish()?;
        job.conclude(evidence, layout, captured, tally)
    })
}

/// The same from a packed image, of which each chunk is proven and can be had alone.
fn install_indexed(
    device: &dyn BlockDevice, source: &mut dyn ImageSource, index: &Index, order: &Order<'_>, observer: &dyn Observer,
) -> Result<Installed, WriteError> {
    let stop = AtomicBool::new(false);
    let meter = Meter::new(observer);
    let zeroes = Zeroes::new(device, order.device);
    // Chunks that the disk already holds are not fetched; so fetched chunks need no second comparison.
    let manner = Manner { compare: false, ..Manner::new(device, order, &meter, &zeroes, &stop) };
    let blocks = Arc::new(Pool::new(HEAD));
    let image = source.name().to_owned();
    let indexed =
        Indexed { index, context: Context { image: &image, stop: &stop, meter: &meter, memory: order.memory } };
    fits_memory(order.memory, &image, BUFFERS + indexed.memory())?;
    meter.stage("fetch");
    let head = watched(order.may_act, &stop, || indexed.head(source))?;
    let mut said = [order.format, source.claimed_format()].into_iter().flatten();
    if let Some(other) = said.find(|said| *said != Format::Zstd) {
        let reason = format!("its stated format is {other}, but its index is of a zstd file");
        return Err(WriteError::BadFormat { subject: image, reason, defect: Defect::Stated });
    }
    let job = Job { device, order, observer, meter: &meter, image: &image };
    let layout = job.destroy(head.data(), Some(index.raw_bytes))?;
    let wanted = indexed.wanted(device, &layout, order.compare, order.may_act)?;
    meter.expect(&wanted.iter().map(|i| &index.chunks[*i]).collect::<Vec<_>>(), index.raw_bytes);
    let (captured, tally, evidence) = thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        let mut body = Body::new(&layout, &manner, Writers::start(scope, &manner, &blocks)?, &blocks, order.may_act);
        meter.stage("write");
        let running = indexed.start(scope, source, &wanted, &blocks)?;
        body.write(0, head)?;
        indexed.zeroes(&mut body, order.may_act)?;
        job.drain(&mut body, &running.pieces)?;
        let evidence = running.evidence(index)?;
        let (captured, tally) = body.finish()?;
        Ok::<_, WriteError>((captured, tally, evidence))
    })?;
    let unchanged = meter.unchanged_bytes();
    let mut installed = job.conclude(evidence, layout, captured, tally)?;
    installed.unchanged_bytes += unchanged;
    Ok(installed)
}

/// What every stage needs to know.
#[derive(Clone, Copy)]
struct Context<'a> {
    /// What to call the image in messages.
    image: &'a str,
    /// Set when the write has ended, however it did.
    stop: &'a AtomicBool,
    meter: &'a Meter<'a>,
    /// Bytes that are available for the write, if known.
    memory: Option<u64>,
}

/// Starts a thread of the pipeline; `what` it is called in messages.
fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>, what: &'static str, run: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, WriteError> {
    let started = Builder::new().name(format!("landfall-{what}")).spawn_scoped(scope, run);
    started.map_err(|source| WriteError::Start { what, source })
}

/// Refuses an image whose write takes more memory than is available, if that is known.
fn fits_memory(memory: Option<u64>, image: &str, needed: u64) -> Result<(), WriteError> {
    match memory.filter(|available| *available < needed) {
        Some(available) => Err(WriteError::NotEnoughMemory { subject: image.into(), needed, available }),
        None => Ok(()),
    }
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The steps every install takes on the calling thread, wherever its bytes come from.
struct Job<'a> {
    device: &'a dyn BlockDevice,
    order: &'a Order<'a>,
    observer: &'a dyn Observer,
    meter: &'a Meter<'a>,
    /// What to call the image in messages.
    image: &'a str,
}

impl Job<'_> {
    /// The head is looked at whole, then the old content goes. `raw`: how long the image is, where that is known before its
    /// end; its own table may claim less.
    fn destroy(&self, head: &[u8], raw: Option<u64>) -> Result<Layout, WriteError> {
        let Self { device, order, observer, meter, image } = self;
        let size = device.size();
        let sector = device.logical_sector();
        let looked = Forgiving::new(*device, order.forgive);
        let old = Old::read(&looked, sector).map_err(unreadable(order.device, "read the partition table of"))?;
        let kept = kept_of(&old, order, sector)?;
        let layout = Layout::plan(head, sector, device.size(), order.device, image, order.no_table, &kept)?;
        if let Some(needed) = raw.filter(|raw| *raw > size) {
            return Err(WriteError::DiskTooSmall { device: order.device.into(), needed, size });
        }
        meter.expect_raw(layout.claimed);
        if let Err(why) = &layout.receipt_room {
            observer.log(LogLevel::Warn, &format!("the installed disk will carry no receipt: {why}"));
        }
        (order.may_act)()?;
        (order.same_disk)()?;
        invalidate::invalidate(&looked, &layout, &old, order, raw, *observer)?;
        Ok(layout)
    }

    /// Writes whatever the stages hand on, until they have no more.
    fn drain(&self, body: &mut Body<'_, '_>, pieces: &Pieces) -> Result<(), WriteError> {
        // A device that fails while the image does not come is not waited for.
        while let Some(piece) = next(pieces, self.meter, &|| (self.order.may_act)().and_then(|()| body.works()))? {
            match piece {
                Decoded::Block { offset, bytes } => body.write(offset, bytes)?,
                Decoded::Zeroes(range) => body.zeroes(range)?,
            }
            (self.order.may_act)()?;
        }
        Ok(())
    }

    /// Flush, verify, read back, commit.
    fn conclude(
        &self, evidence: Evidence, layout: Layout, captured: Captured, tally: Tally,
    ) -> Result<Installed, WriteError> {
        let Self { device, order, observer, meter, image } = self;
        meter.stage("flush");
        device.flush().map_err(device_io(order.device, "flush the image to"))?;
        meter.stage("verify");
        let (raw_bytes, stored_bytes) = (evidence.raw_bytes(), meter.stored_bytes());
        let verified = Verified::new(evidence, order.expectation, layout, captured, image)?;
        let mut read_back_bytes = 0;
        if let Some(left) = tally.left {
            read_back_bytes = readback::read_rest(*device, order.device, left, meter, order.may_act)?;
        }
        meter.stage("commit");
        (order.may_act)()?;
        let (receipt, no_receipt) = commit::commit(*device, verified, order, *observer)?;
        meter.finish();
        Ok(Installed {
            receipt,
            no_receipt,
            stored_bytes,
            raw_bytes,
            written_bytes: tally.written,
            unchanged_bytes: tally.unchanged,
            read_back_bytes,
        })
    }
}

/// The next piece the stages hand on, asking meanwhile whether we may still act; `None` after the last.
fn next(pieces: &Pieces, meter: &Meter<'_>, may_act: Check<'_>) -> Result<Option<Decoded>, WriteError> {
    let waiting = Instant::now();
    loop {
        match pieces.recv_timeout(TICK) {
            Ok(piece) => {
                meter.waited(Wait::Pieces, waiting);
                return piece.map(Some);
            }
            Err(RecvTimeoutError::Timeout) => may_act()?,
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
        }
    }
}

/// Runs something that may wait long, on a thread of its own, asking meanwhile whether we may still act.
fn watched<T: Send>(
    may_act: Check<'_>, stop: &AtomicBool, run: impl FnOnce() -> Result<T, WriteError> + Send,
) -> Result<T, WriteError> {
    thread::scope(|scope| {
        let (done, finished) = bounded(1);
        scope.spawn(move || {
            // The calling thread waits for it below.
            let _ = done.send(run());
        });
        loop {
            match finished.recv_timeout(TICK) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => may_act().inspect_err(|_| stop.store(true, Ordering::Release))?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(WriteError::Internal(
                        "the thread that examines the image ended without a result".into(),
                    ));
                }
            }
        }
    })
}

/// The partitions that stay; refused if the receipt cannot list them all.
fn kept_of(old: &Old, order: &Order<'_>, sector: u32) -> Result<Kept, WriteError> {
    let kept = Kept::choose(old, order.keep, sector)
        .map_err(|reason| WriteError::KeepRefused { device: order.device.into(), reason })?;
    has_room(&order.mark, kept.partitions.len(), order.device)?;
    Ok(kept)
}

/// Refuses to keep more partitions than a receipt with this mark can list.
pub(crate) fn has_room(mark: &DiskReceipt, wanted: usize, device: &str) -> Result<(), WriteError> {
    let room = receipt::room_for_kept(mark, wanted);
    if room < wanted { Err(WriteError::TooManyKept { device: device.into(), wanted, room }) } else { Ok(()) }
}

/// Names what was tried of what the device holds already.
pub(crate) fn unreadable(device: &str, action: &'static str) -> impl FnOnce(std::io::Error) -> WriteError {
    let device = device.to_owned();
    move |source| WriteError::Unreadable { device, action, source }
}

/// Names what was tried on the device.
pub(crate) fn device_io(device: &str, action: impl Into<String>) -> impl FnOnce(std::io::Error) -> WriteError {
    let (device, action) = (device.to_owned(), action.into());
    move |source| WriteError::DeviceIo { device, action, source }
}
