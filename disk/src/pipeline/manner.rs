//! How one image is written to one device: what all threads that write or read back share.

use std::sync::atomic::AtomicBool;

use super::{Order, meter::Meter, zeroes::Zeroes};
use crate::BlockDevice;

/// How the threads write, the same for every block.
pub(super) struct Manner<'a> {
    pub(super) device: &'a dyn BlockDevice,
    /// What to call it in messages.
    pub(super) name: &'a str,
    pub(super) meter: &'a Meter<'a>,
    pub(super) zeroes: &'a Zeroes<'a>,
    /// Blocks are read first, and what is right already is not written again.
    pub(super) compare: bool,
    /// What was written is read back.
    pub(super) read_back: bool,
    /// Set when the write has ended; what waits is then not written any more.
    pub(super) stop: &'a AtomicBool,
}

impl<'a> Manner<'a> {
    pub(super) fn new(
        device: &'a dyn BlockDevice, order: &Order<'a>, meter: &'a Meter<'a>, zeroes: &'a Zeroes<'a>,
        stop: &'a AtomicBool,
    ) -> Self {
        let (compare, read_back) = (order.compare, order.read_back);
        Self { device, name: order.device, meter, zeroes, compare, read_back, stop }
    }
}
