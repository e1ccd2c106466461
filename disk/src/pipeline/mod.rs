//! The write pipeline: fetch → hash → decode in threads of their own, and on the calling thread plan → invalidate →
//! write → flush → verify → commit, in the order that keeps the disk old, unbootable or verified-new.
//!
//! Async stays out of here; stages are joined by small bounded queues of reusable buffers, so memory does not grow with
//! the image.

mod body;
mod commit;
mod hasher;
mod invalidate;
mod meter;
mod stages;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use landfall_api::{Digest, DiskReceipt};

pub use commit::{BackupPlaced, Committed, TablePlaced, Verified, place_backup, place_lba0, place_table};
pub(crate) use hasher::Hasher;
use stages::Stages;

use crate::{
    BlockDevice, Format, LogLevel, Observer, WriteError, buffer::Buffer, decode::Decoded, gpt::Layout,
    source::ImageSource,
};

/// How often a waiting writer asks whether it may still act.
const TICK: Duration = Duration::from_millis(100);

/// Asked again and again; an error ends the write with nothing committed.
pub type Check<'a> = &'a dyn Fn() -> Result<(), WriteError>;

/// What the stages compare with what they saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expectation {
    /// Digest of the stored bytes.
    Stored(Digest),
    /// Digest of the raw bytes.
    Raw(Digest),
    /// Nothing: the request says, spelled out, that nothing proves the image.
    Waived,
}

/// One image onto one device: what [`install`] needs beyond the device and the source.
pub struct Order<'a> {
    /// What to call the device in messages.
    pub device: &'a str,
    /// What proves the image.
    pub expectation: Expectation,
    /// `None`: by content.
    pub format: Option<Format>,
    /// The mark to leave; its state and time are filled in here.
    pub mark: DiskReceipt,
    /// Lease and cancel: asked before every destructive step and before the commit.
    pub may_act: Check<'a>,
    /// Is it still the same disk? Asked once, just before the first write.
    pub same_disk: Check<'a>,
}

/// What [`install`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// The mark now on the disk.
    pub receipt: Option<DiskReceipt>,
    /// Why there is none.
    pub no_receipt: Option<String>,
    /// Bytes fetched and hashed.
    pub stored_bytes: u64,
    /// Bytes they decoded to.
    pub raw_bytes: u64,
    /// Bytes really written.
    pub written_bytes: u64,
}

/// Writes the image from `source` to `device`. Whether the disk may be written at all is the caller's to decide first.
///
/// Blocking; starts three threads and ends them before it returns.
///
/// # Errors
/// [`WriteError`]; nothing is committed then, and the device is untouched if the image's head was refused.
pub fn install(
    device: &dyn BlockDevice,
    source: &mut dyn ImageSource,
    order: &Order<'_>,
    observer: &dyn Observer,
) -> Result<Installed, WriteError> {
    let stop = AtomicBool::new(false);
    let image = source.name().to_owned();
    let meter = meter::Meter::new(observer);
    thread::scope(|scope| {
        // Whatever way the closure is left, the stages must not go on fetching.
        let _stop = StopOnDrop(&stop);
        let stages = Stages::start(scope, source, order.expectation, order.format, &stop, &meter)?;
        write(device, &image, stages, order, &meter, observer)
    })
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn write(
    device: &dyn BlockDevice,
    image: &str,
    stages: Stages,
    order: &Order<'_>,
    meter: &meter::Meter<'_>,
    observer: &dyn Observer,
) -> Result<Installed, WriteError> {
    // The head is looked at whole before anything is destroyed.
    meter.stage("fetch");
    let head: Buffer = match next(&stages.pieces, order.may_act)? {
        Some(Decoded::Block { offset: 0, bytes }) => bytes,
        Some(_) => return Err(WriteError::Internal("the image's start did not come first".into())),
        None => {
            // Whatever is wrong with it, the evidence says nothing more than that it is empty.
            return Err(WriteError::Truncated { subject: image.into(), reason: "it is empty".into() });
        }
    };
    let layout = Layout::plan(head.data(), device.logical_sector(), device.size(), order.device, image)?;
    meter.expect_raw(layout.claimed);
    if let Err(why) = &layout.receipt_room {
        observer.log(LogLevel::Warn, &format!("the installed disk will carry no receipt: {why}"));
    }
    (order.may_act)()?;
    (order.same_disk)()?;
    invalidate::invalidate(device, &layout, order, observer)?;

    meter.stage("write");
    let mut body = body::Body::new(device, &layout, order.device, meter);
    let mut next_piece = Some(Decoded::Block { offset: 0, bytes: head });
    while let Some(piece) = next_piece {
        (order.may_act)()?;
        match piece {
            Decoded::Block { offset, bytes } => {
                body.write(offset, bytes.data())?;
                stages.blocks.give(bytes);
            }
            Decoded::Zeroes(range) => body.zeroes(range)?,
        }
        next_piece = next(&stages.pieces, order.may_act)?;
    }
    let evidence = stages.evidence.recv().map_err(|_| silent())?;
    let (captured, written_bytes) = body.finish()?;

    meter.stage("verify");
    let raw_bytes = evidence.raw_bytes();
    let stored_bytes = evidence.stored_bytes();
    let verified = Verified::new(evidence, order.expectation, layout, captured, image)?;

    meter.stage("commit");
    (order.may_act)()?;
    let (receipt, no_receipt) = commit::commit(device, verified, order, observer)?;
    meter.finish();
    Ok(Installed { receipt, no_receipt, stored_bytes, raw_bytes, written_bytes })
}

/// The next piece the stages hand on, asking meanwhile whether we may still act; `None` after the last.
fn next(pieces: &Receiver<Result<Decoded, WriteError>>, may_act: Check<'_>) -> Result<Option<Decoded>, WriteError> {
    loop {
        match pieces.recv_timeout(TICK) {
            Ok(piece) => return piece.map(Some),
            Err(RecvTimeoutError::Timeout) => may_act()?,
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
        }
    }
}

fn silent() -> WriteError {
    WriteError::Internal("a stage of the pipeline ended without a word".into())
}

/// Names what was tried on the device.
fn device_io(device: &str, action: impl Into<String>) -> impl FnOnce(std::io::Error) -> WriteError {
    let (device, action) = (device.to_owned(), action.into());
    move |source| WriteError::DeviceIo { device, action, source }
}
