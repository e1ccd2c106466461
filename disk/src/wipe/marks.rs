//! What shows that a disk has erased itself: marks that are written before, and must be gone afterwards. What the disk returns
//! in their place (zeroes, ones, a pattern, an error) is its own matter.

use uuid::Uuid;

use crate::pipeline::{device_io, places};
use crate::{BlockDevice, Order, RECEIPT_PLACE, WriteError};
use std::ops::Range;

/// Marks on a disk.
pub(super) struct Marks {
    places: Vec<u64>,
    /// Fills each mark, with its offset: no erased sector, and no other mark, has the same content.
    nonce: [u8; 16],
}

impl Marks {
    /// Writes marks at places of `within`, and flushes them. A place that cannot be written carries none.
    ///
    /// # Errors
    /// [`WriteError`] if no place can be written, or of the flush, or of the order's checks.
    pub(super) fn put(device: &dyn BlockDevice, within: &Range<u64>, order: &Order<'_>) -> Result<Self, WriteError> {
        let mut marks = Self { places: Vec::new(), nonce: *Uuid::new_v4().as_bytes() };
        let mut refused = None;
        for place in distinct(within) {
            (order.may_act)()?;
            match device.write_at(place.start, &marks.at(&place)) {
                Ok(()) => marks.places.push(place.start),
                // A disk is given away because sectors of it are bad. Whether it erased itself shows elsewhere too.
                Err(error) => refused = Some((place, error)),
            }
        }
        if let (true, Some((place, error))) = (marks.places.is_empty(), refused) {
            return Err(device_io(order.device, format!("mark the bytes at {} of", place.start))(error));
        }
        device.flush().map_err(device_io(order.device, "flush the marks on"))?;
        Ok(marks)
    }

    /// At how many places something else is read now. What the disk does not return counts for nothing.
    ///
    /// # Errors
    /// [`WriteError::NotErased`] for the first mark that is still there.
    pub(super) fn gone(
        &self, device: &dyn BlockDevice, order: &Order<'_>, method: &'static str,
    ) -> Result<u32, WriteError> {
        let mut gone = 0;
        for at in &self.places {
            let place = *at..at + LENGTH.min(device.size() - at);
            let mark = self.at(&place);
            let mut now = vec![0; mark.len()];
            if device.read_at(*at, &mut now).is_err() {
                continue;
            }
            if now == mark {
                return Err(WriteError::NotErased { device: order.device.into(), method, offset: *at });
            }
            gone += 1;
        }
        Ok(gone)
    }

    fn at(&self, place: &Range<u64>) -> Vec<u8> {
        let unit = [&self.nonce[..], &u128::from(place.start).to_le_bytes()].concat();
        unit.into_iter().cycle().take((place.end - place.start) as usize).collect()
    }
}

/// A mark, bytes: the larger of the two sector sizes.
const LENGTH: u64 = 4096;

/// Places to look at, each once, none of them in the receipt's place.
pub(super) fn distinct(within: &Range<u64>) -> Vec<Range<u64>> {
    let mut all = [places(within, false), places(within, true)].concat();
    all.retain(|place| place.end <= RECEIPT_PLACE.start || place.start >= RECEIPT_PLACE.end);
    all.sort_by_key(|place| place.start);
    all.dedup();
    all
}
